"""Facts by salience: accesses, priorities, and facts as of a point in time."""

from __future__ import annotations

import math
from array import array

import pytest
from support.engines import HOUR, T0, tell
from support.memories import X, formula, names
from support.runtimes import runtime

from kbcore.errors import ConfigError, InvalidInput, NotFound
from kbcore.plug.hookspecs import hookimpl
from kbcore.state.facts import Fact
from kbplanner.engine.backend import Attribute
from kbplanner.ir.terms import ANONYMOUS, Atom, Literal
from kbplanner.syntax.parser import parse_rule

# -- salience --------------------------------------------------------------------------------------


def test_salience_is_recency_frequency_priority_and_confidence(kb, clock):
    tell(kb, "p", "old")
    clock.advance(HOUR)
    tell(kb, "p", "doubtful", confidence=0.5)
    tell(kb, "p", "important")
    kb.prioritize("p", ["important"], 1.0)
    rows = kb.salient("p", [X])
    assert names(rows) == [("p", "important"), ("p", "old"), ("p", "doubtful")]
    wanted = [formula(0, priority=1.0), formula(HOUR), formula(0, confidence=0.5)]
    assert [row["salience"] for row in rows] == pytest.approx(wanted)


def test_repeated_assertions_and_salience_reads_are_accesses(kb, clock):
    tell(kb, "p", "a")
    tell(kb, "p", "a")
    clock.advance(HOUR)
    assert kb.salient("p", [X])[0]["salience"] == pytest.approx(formula(HOUR, accesses=2))
    clock.advance(HOUR)
    assert kb.salient("p", [X])[0]["salience"] == pytest.approx(formula(HOUR, accesses=3))


@pytest.mark.parametrize("ruled", [False, True])
@pytest.mark.parametrize("facts", [1, 100])
def test_a_goal_is_an_access_of_the_stored_facts_that_answer_it(kb, clock, ruled, facts):
    if ruled:
        kb.assert_rules([parse_rule("p(?x) :- q(?x).")])
        tell(kb, "q", "derived")
    kb.assert_facts([Fact("p", (f"a{i}",)) for i in range(facts)])
    tell(kb, "q", "b")
    clock.advance(HOUR)
    for _ in range(3):
        kb.infer(Literal(Atom("p", (X,))))
    kb.query_rows("q", [X])
    clock.advance(HOUR)
    rows = kb.salient()
    found = {row["salience"] for row in rows if row["predicate"] == "p"}
    assert list(found) == [pytest.approx(formula(HOUR, accesses=4))]
    if len(rows) < 50:
        assert {row["salience"] for row in rows if row["predicate"] == "q"} <= {
            rows[-1]["salience"]
        }
        assert rows[-1]["salience"] == pytest.approx(formula(2 * HOUR))


def test_accesses_of_many_goals_are_applied_incrementally(kb):
    kb.assert_facts([Fact("p", (f"a{i}",)) for i in range(10)])
    for i in range(2500):
        kb.infer(Literal(Atom("p", (f"a{i % 10}",))))
    for _ in range(3):
        kb.infer(Literal(Atom("p", (X,))))
    assert [row["salience"] for row in kb.salient("p", ["a3"])] == [
        pytest.approx(formula(0, accesses=254))
    ]
    relation = kb._read_tenant().partition(None).named("p")[0].relation
    assert relation.attributes(Attribute.ACCESSES, array("I", [3, 4]))[:] == array("q", [255, 254])


def test_salient_takes_a_limit_a_minimum_a_pattern_and_every_partition(kb, clock):
    for i in range(5):
        tell(kb, "p", "a", str(i))
        clock.advance(HOUR)
    tell(kb, "p", "b", "5", scope="s")
    tell(kb, "q", "b", positive=False)
    assert names(kb.salient("p", None, scope="*", limit=2)) == [("p", "b", "5"), ("p", "a", "4")]
    assert names(kb.salient("p", ["a", X], limit=2)) == [("p", "a", "4"), ("p", "a", "3")]
    assert kb.salient("p", ["b", X]) == []
    assert kb.salient("p", ["nobody", X]) == []
    assert kb.salient("p", [X]) == []
    assert kb.salient("nothing", None) == []
    assert kb.salient(minimum=1.0) == []
    first = kb.salient(limit=1)[0]
    assert (first["predicate"], first["negated"]) == ("p", False)
    assert len(kb.salient()) == 6
    with pytest.raises(InvalidInput):
        kb.salient(minimum=1.5)


def test_equal_salience_the_newest_comes_first(kb):
    kb.assert_facts([Fact("p", (name,), valid_from=T0) for name in "abc"])
    assert names(kb.salient("p", [X])) == [("p", "a"), ("p", "b"), ("p", "c")]


def test_accesses_in_transactions_do_not_count(node, kb, clock):
    tell(kb, "p", "a")
    clock.advance(HOUR)
    id = node.begin()
    for _ in range(3):
        with node.in_transaction("default", "default", id, writes=False) as inside:
            assert inside.tuples(Atom("p", (X,))) == [("a",)]
            with pytest.raises(InvalidInput):
                inside.decay()
    with node.in_transaction("default", "default", id) as inside:
        inside.roll_back()
    assert kb.salient("p", [X])[0]["salience"] == pytest.approx(formula(HOUR))


class Longest:
    """A scorer of its own: the more accesses, the better; what is denied does not matter."""

    weights = None

    def score(self, fact, now_ms):
        return 0.0 if not fact.positive else min(1.0, fact.accesses / 10)


class LongestPlugin:
    @hookimpl
    def kb_salience_scorers(self, config):
        return {"longest": Longest()}


def test_a_plugin_scorer_ranks_and_decays(clock):
    from kbcore.config import Config
    from kbcore.node.opening import open_runtime

    config = Config(storage_backend="memory", salience_scorer="longest")
    with open_runtime(config, plugins=[LongestPlugin()], clock=clock) as node:
        kb = node.knowledge_base()
        for name, times in (("a", 1), ("b", 3), ("c", 2)):
            for _ in range(times):
                tell(kb, "p", name)
        tell(kb, "p", "d", positive=False)
        assert [(row["args"], row["salience"]) for row in kb.salient("p", [X], limit=2)] == [
            (["b"], 0.3),
            (["c"], 0.2),
        ]
        assert [row["why"]["salience"] for row in kb.decay(0.15, dry_run=True).atoms] == [0.1, 0.0]
        assert names(kb.decay(0.15).atoms) == [("p", "a"), ("p", "d")]
        assert names(kb.salient("p", [X], minimum=0.4)) == [("p", "b")]


def test_an_unknown_scorer_is_refused_at_the_start(clock):
    with pytest.raises(ConfigError, match="default"):
        runtime(clock=clock, salience_scorer="none")


# -- priority --------------------------------------------------------------------------------------


def test_priorities_need_stored_facts(kb, clock):
    tell(kb, "p", "a")
    tell(kb, "p", "a", positive=False)
    tell(kb, "flag")
    tell(kb, "p", "soon", valid_from=T0 + 10)
    tell(kb, "p", "gone", ttl=5)
    clock.advance(5)
    for predicate, args in (("p", ["b"]), ("p", ["gone"]), ("q", ["a"]), ("p", ["a", "a"])):
        with pytest.raises(NotFound):
            kb.prioritize(predicate, args, 0.9)
    kb.prioritize("p", ["a"], 0.9, positive=False)
    kb.prioritize("flag", [], 0.0)
    kb.prioritize("p", ["soon"], 1.0)
    clock.advance(5)
    found = {(row["negated"], *row["args"]): row["salience"] for row in kb.salient()}
    assert found[True, "a"] - found[False, "a"] == pytest.approx(0.08)
    assert found[False, "a"] - found[(False,)] == pytest.approx(0.1)
    assert found[False, "soon"] > found[False, "a"]
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput):
            kb.prioritize("p", ["a"], bad)
    with pytest.raises(InvalidInput):
        kb.prioritize("p", ["a"], 0.5, scope="*")


def test_a_fact_asserted_after_expiry_has_no_priority(node, kb, clock):
    for name in "ab":
        tell(kb, "p", name, ttl=5)
        kb.prioritize("p", [name], 1.0)
    clock.advance(5)
    tell(kb, "p", "a")
    assert node.sweeper.sweep() == 1
    tell(kb, "p", "b")
    first, second = kb.salient("p", [X])
    assert first["salience"] == second["salience"] == pytest.approx(formula(0))


# -- recall ----------------------------------------------------------------------------------------


def test_recall_returns_facts_valid_at_that_time(kb, clock):
    tell(kb, "at", "ann", "home", valid_until=T0 + 100)
    clock.advance(100)
    tell(kb, "at", "ann", "work")
    tell(kb, "at", "bob", "work", scope="s")
    assert names(kb.recall("at", ["ann", X], T0 + 50)) == [("at", "ann", "home")]
    assert names(kb.recall("at", ["ann", X], T0 + 100)) == [("at", "ann", "work")]
    assert names(kb.recall("at", [ANONYMOUS, X], T0 + 100, scope="*")) == [
        ("at", "ann", "work"),
        ("at", "bob", "work"),
    ]
    assert kb.recall("at", ["ann", X], T0 - 1) == []
