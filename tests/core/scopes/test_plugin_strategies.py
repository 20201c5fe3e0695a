"""Merges with strategies of third-party plugins."""

from __future__ import annotations

import threading

import pytest
from support.content import content, digest
from support.forks import START, contested, stored

from kbcore.embed import open_kb
from kbcore.errors import Conflict, InvalidInput, PluginFailed
from kbcore.operations.episodes.correction import PurgeTarget
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import ConflictingFact, Keep, MergeConflict, Resolution
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact


class Ours:
    """A third-party strategy: the fact with the higher confidence wins and gets a note."""

    always = None

    def resolve(self, conflict):
        best = max((*conflict.source, *conflict.target), key=lambda fact: fact.confidence or 0.0)
        noted = ConflictingFact(
            best.positive,
            best.created_at,
            best.valid_from,
            None,
            best.confidence,
            {"contested": True},
        )
        return Resolution(Keep.FACTS, (noted,))


class Answer:
    """Whatever a test wants it to say."""

    always = None

    def __init__(self, answer):
        self.answer = answer

    def resolve(self, conflict):
        return self.answer(conflict)


class ThirdParty:
    def __init__(self, **strategies):
        self.strategies = strategies

    @hookimpl
    def kb_merge_strategies(self):
        return self.strategies


def test_a_plugin_decides(tmp_path):
    plugin = ThirdParty(SUREST=Ours())
    with open_kb(path=tmp_path, plugins=[plugin]) as kb:
        contested(kb.kb)
        outcome = kb.merge("s", strategy="SUREST")
        assert (outcome.conflicts, outcome.merged) == (2, 3)
        found = stored(kb.kb)
        assert found["sure", False]["metadata"] == {"contested": True}
        assert found["sure", False]["confidence"] == 0.9
        assert len([name for name in found if name[0] == "sign"]) == 1
        before = digest(kb._runtime)
        with pytest.raises(InvalidInput, match="SUREST"):
            kb.merge("s", strategy="other")
        kb._runtime.system.store.close(clean=False)
    with open_kb(
        path=tmp_path
    ) as kb:  # the decisions are in the log: no strategy has to decide again
        assert digest(kb._runtime) == before


def test_a_plugin_gets_both_sides():
    seen = []

    def answer(conflict):
        seen.append(conflict)
        return Resolution(Keep.TARGET if conflict.args == ("sign",) else Keep.SOURCE)

    with open_kb(plugins=[ThirdParty(ASK=Answer(answer))]) as kb:
        contested(kb.kb)
        kb.tell("p", ["gone"], ttl=1_000_000)
        kb.merge("s", strategy="ASK")
        by_args = {conflict.args[0]: conflict for conflict in seen}
        assert set(by_args) == {"sure", "sign"}
        assert isinstance(by_args["sure"], MergeConflict)
        assert [fact.confidence for fact in by_args["sure"].source] == [0.4]
        assert by_args["sure"].target[0].metadata == {"who": "base", "b": 1}
        assert [fact.positive for fact in by_args["sign"].source + by_args["sign"].target] == [
            False,
            True,
        ]
        found = stored(kb.kb)
        assert (found["sure", False]["confidence"], ("sign", True) in found) == (0.4, False)


@pytest.mark.parametrize("name", ["SOURCE_WINS", "TARGET_WINS", "KEEP_BOTH", "SUREST", "NEITHER"])
def test_every_strategy_unites_evidence(tmp_path, name):
    """Evidence is united outside of the decision, and the support it gives outlives a purge."""
    seen = []

    def neither(conflict):
        seen.append(conflict)
        return Resolution(Keep.FACTS)

    plugin = ThirdParty(SUREST=Ours(), NEITHER=Answer(neither))
    with open_kb(path=tmp_path, plugins=[plugin]) as kb:
        episodes = {id: kb.kb.add_episode("ann", f"text of {id}", id=id).episode for id in "xyz"}

        def told(arg, episode, scope, confidence=None):
            evidence = (Evidence(episodes[episode].id),)
            kb.kb.assert_facts(
                [Fact("p", (arg,), scope=scope, confidence=confidence, evidence=evidence)]
            )

        def evidence_of(arg):
            return {
                span["episode"]
                for row in kb.kb.query_rows("p", [arg])
                for span in row.get("evidence", ())
            }

        told("same", "x", None)
        told("same", "y", "s")
        told("sure", "x", None, 0.25)
        told("sure", "y", "s", 0.75)
        told("theirs", "z", "s")
        diff = kb.kb.diff_scopes(None, "s")
        assert (len(diff.modified), diff.unchanged, len(diff.added)) == (1, 1, 1)
        assert kb.merge("s", strategy=name).conflicts == 1
        expected = {} if name == "NEITHER" else {"sure": {"x", "y"}}
        expected |= {"same": {"x", "y"}, "theirs": {"z"}}
        assert {arg: evidence_of(arg) for arg in expected} == expected
        assert all(fact.metadata == {} for each in seen for fact in (*each.source, *each.target))
        before = digest(kb._runtime)
        kb._runtime.system.store.close(clean=False)
    with open_kb(path=tmp_path) as kb:
        assert digest(kb._runtime) == before
        for gone, left in (("x", "y"), ("y", None)):
            kb.kb.purge(PurgeTarget(episode=gone))
            for arg in expected.keys() - {"theirs"}:
                assert evidence_of(arg) == ({left} if left else set())
                assert bool(kb.kb.query_rows("p", [arg])) == bool(left)


def raises(conflict):
    raise ValueError("no idea")


ODD = ConflictingFact(True, START, START, None, 2.0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (raises, "ASK failed at p.*ValueError: no idea"),
        (lambda c: None, "NoneType, not a Resolution"),
        (lambda c: Resolution("source"), "not a Resolution"),  # type: ignore[arg-type]
        (lambda c: Resolution(Keep.FACTS, c.source + c.source), "two facts of one sign"),
        (lambda c: Resolution(Keep.FACTS, [c.source]), "not a tuple"),  # type: ignore[arg-type]
        (lambda c: Resolution(Keep.FACTS, (ODD,)), "confidence outside 0 to 1"),
        (lambda c: Resolution(Keep.FACTS, (ConflictingFact(True, -1, START),)), "an invalid time"),
        (
            lambda c: Resolution(
                Keep.FACTS, (ConflictingFact(True, START, START, metadata={"x": object()}),)
            ),
            "not JSON",
        ),
    ],
)
def test_a_failing_plugin_changes_nothing(answer, said):
    with open_kb(plugins=[ThirdParty(ASK=Answer(answer))]) as kb:
        contested(kb.kb)
        before = content(kb._runtime)
        with pytest.raises(PluginFailed, match=said):
            kb.merge("s", strategy="ASK")
        assert content(kb._runtime) == before


def test_a_plugin_that_refuses_one_conflict_refuses_the_merge():
    answer = Answer(lambda c: Resolution(Keep.REFUSE if c.args == ("sign",) else Keep.BOTH))
    with open_kb(plugins=[ThirdParty(ASK=answer)]) as kb:
        contested(kb.kb)
        before = content(kb._runtime)
        with pytest.raises(Conflict):
            kb.merge("s", strategy="ASK")
        assert content(kb._runtime) == before


def test_a_plugin_must_declare_a_constant_decision():
    class Silent:
        def resolve(self, conflict):
            return Resolution(Keep.SOURCE)

    with open_kb(plugins=[ThirdParty(ASK=Silent())]) as kb:
        contested(kb.kb)
        with pytest.raises(PluginFailed, match="always"):
            kb.merge("s", strategy="ASK")


def test_conflicts_that_change_during_a_decision_are_decided_again():
    turns = []

    def answer(conflict):
        turns.append(conflict.source[0].confidence)
        if len(turns) == 1:  # a write that comes between the decision and the merge
            writer = threading.Thread(target=lambda: kb.tell("p", ["x"], scope="s", confidence=0.7))
            writers.append(writer)
            writer.start()
        return Resolution(Keep.SOURCE)

    writers: list[threading.Thread] = []
    with open_kb(plugins=[ThirdParty(ASK=Answer(answer))]) as kb:
        kb.tell("p", ["x"], confidence=0.1)
        kb.tell("p", ["x"], scope="s", confidence=0.5)
        kb.merge("s", strategy="ASK")
        writers[0].join(20)
        # Either the write came before the merge, which was then decided again, or after it.
        assert stored(kb.kb)["x", False]["confidence"] == turns[-1]
