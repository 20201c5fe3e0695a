"""Scopes forked, compared, merged and dropped."""

from __future__ import annotations

import threading

import pytest
from support.content import content, digest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.durable.records import CHANGES, VERSION, decode_changes, encode_changes, stamp
from kbcore.embed import open_kb
from kbcore.errors import AlreadyExists, BudgetExceeded, Conflict, InvalidInput, NotFound, PluginFailed
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Keep, MergeConflict, Resolution, Standing
from kbcore.state.changes import ChangeSet, Decision, DropScope, ForkScope, MergeScope
from kbcore.state.facts import Fact
from kbplanner.parser import parse_rule
from kbplanner.terms import ANONYMOUS, Atom, Rule, Variable

RULE = parse_rule("q(?x) :- p(?x).")
START = 1_700_000_000_000


def scoped(text, scope):
    rule = parse_rule(text)
    return Rule(rule.head, rule.body, scope=scope)


def told(kb, scope=None, **more):
    kb.assert_facts([Fact("p", (name,), scope=scope, **more) for name in "ab"])


def names(rows):
    return [row["args"] for row in rows]


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture(params=["c", "python"])
def kb(request, clock):
    with runtime(clock=clock, engine=request.param) as node:
        yield node.knowledge_base()


def test_a_fork_has_everything_and_goes_its_own_way(kb, clock):
    kb.assert_facts(
        [
            Fact("p", ("a",), confidence=0.5, metadata={"k": [1]}),
            Fact("p", ("b",), positive=False),
            Fact("p", ("soon",), valid_from=START + 10),
            Fact("p", ("brief",), ttl=5),
            Fact("on", ()),
        ]
    )
    kb.assert_rules([RULE])
    clock.advance(2)
    assert kb.fork_scope(None, "s").copied == 5
    assert kb.scopes() == ["s"]
    both = [[{**row, "scope": None} for row in kb.query_rows("p", [ANONYMOUS], scope=scope)] for scope in (None, "s")]
    assert both[0] == both[1]
    assert kb.tuples(Atom("q", (Variable("x"),)), scope="s") == [("a",), ("brief",)]
    clock.advance(8)
    assert kb.tuples(Atom("q", (Variable("x"),)), scope="s") == [("a",), ("soon",)]
    kb.assert_facts([Fact("p", ("mine",), scope="s"), Fact("p", ("a",), scope="s", metadata={"k": 2})])
    kb.retract_fact("p", ("soon",), scope="s")
    assert kb.tuples(Atom("q", (Variable("x"),))) == [("a",), ("soon",)]
    assert kb.tuples(Atom("q", (Variable("x"),)), scope="s") == [("a",), ("mine",)]
    assert kb.query_rows("p", ["a"])[0]["metadata"] == {"k": [1]}


def test_rules_of_a_scope_go_with_it(kb):
    told(kb, "s")
    kb.assert_rules([RULE, scoped("only(?x) :- p(?x).", "s")])
    goal = Atom("only", (Variable("x"),))
    kb.fork_scope("s", "t")
    assert kb.tuples(goal, scope="t") == [("a",), ("b",)]
    assert kb.tuples(goal) == []
    kb.drop_scope("s")
    assert [(rule.text, rule.scope) for rule in kb.rules()] == [
        ("q(?x) :- p(?x).", None),
        ("only(?x) :- p(?x).", "t"),
    ]
    assert kb.tuples(goal, scope="t") == [("a",), ("b",)]
    assert kb.scopes() == ["t"]


def test_a_scope_with_rules_only_is_a_scope(kb):
    kb.assert_rules([scoped("r(?x) :- p(?x).", "s")])
    assert kb.scopes() == ["s"]
    with pytest.raises(AlreadyExists):
        kb.fork_scope(None, "s")
    assert kb.fork_scope("s", "t").copied == 0
    assert kb.drop_scope("s") == 0
    assert kb.scopes() == ["t"]


def test_what_cannot_be_forked(kb):
    for source, target in (("s", "s"), ("*", "s"), (None, "*")):
        with pytest.raises(InvalidInput):
            kb.fork_scope(source, target)
    with pytest.raises(NotFound, match="'nowhere'"):
        kb.fork_scope("nowhere", "s")
    assert kb.fork_scope(None, "s").copied == 0  # the base is there, even if it is empty
    told(kb, "s")
    with pytest.raises(AlreadyExists):
        kb.fork_scope(None, "s")
    assert len(kb.query_rows("p", [ANONYMOUS], scope="s")) == 2
    assert kb.fork_scope(None, "s", overwrite=True).copied == 0
    assert kb.query_rows("p", [ANONYMOUS], scope="s") == []
    with pytest.raises(NotFound):
        kb.drop_scope("nowhere")


def test_nothing_answers_from_a_scope_that_is_gone(kb):
    kb.assert_rules([RULE, parse_rule("r(?x, ?y) :- p(?x), p(?y).")])
    goals = [(Atom("q", (Variable("x"),)), 2), (Atom("r", (Variable("x"), Variable("y"))), 4)]
    for turn in range(3):
        for goal, _ in goals:
            assert kb.tuples(goal, scope="s") == []
        told(kb, "s")
        for goal, count in goals:
            assert len(kb.tuples(goal, scope="s")) == count
            assert len(kb.infer_json(goal_literal(goal), bytes, scope="s")) > 0
        if turn == 1:
            kb.fork_scope(None, "s", overwrite=True)
            for goal, _ in goals:
                assert kb.tuples(goal, scope="s") == []
        kb.drop_scope("s")


def goal_literal(atom):
    from kbplanner.terms import Literal

    return Literal(atom)


def test_a_scope_asked_before_it_is_written_answers_afterwards(kb):
    kb.assert_rules([RULE, parse_rule("w(?x) :- q(?x), not v(?x)."), parse_rule("v(?x) :- q(?x), not w(?x).")])
    goals = [Atom(name, (Variable("x"),)) for name in ("q", "w")]
    for _ in range(2):
        assert [kb.tuples(goal, scope="new") for goal in goals] == [[], []]
    told(kb, "new")
    assert kb.tuples(goals[0], scope="new") == [("a",), ("b",)]


def test_reading_scopes_that_are_not_there_takes_no_memory():
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([RULE])
        told(kb)
        engine = node.read_tenant("default", "default").engine
        goal = Atom("q", (Variable("x"),))
        for n in range(20):
            kb.tuples(goal, scope=f"warm{n}")
        before = engine.bytes
        for n in range(300):
            assert kb.tuples(goal, scope=f"none{n}") == []
        assert engine.bytes - before < 20_000


def test_a_dropped_scope_gives_its_memory_back():
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([RULE])
        told(kb)
        tenant = node.read_tenant("default", "default")
        before = tenant.engine.bytes
        sizes = []
        for _ in range(3):
            kb.assert_facts([Fact("p", (f"n{i}",), scope="s", ttl=1000) for i in range(5000)])
            kb.tuples(Atom("q", (Variable("x"),)), scope="s")
            kb.fork_scope("s", "t")
            kb.drop_scope("s")
            kb.drop_scope("t")
            sizes.append(tenant.engine.bytes)
        assert sizes[-1] == sizes[0]
        assert sizes[0] - before < 500_000  # the symbols stay
        assert tenant._moments == []


def test_a_diff_tells_every_kind_of_difference(kb, clock):
    kb.assert_facts(
        [
            Fact("p", ("same",), confidence=0.5, metadata={"k": 1}),
            Fact("p", ("removed",)),
            Fact("p", ("sign",)),
            Fact("p", ("both",)),
            Fact("p", ("sure",), confidence=0.5),
            Fact("p", ("noted",), metadata={"k": 1}),
            Fact("p", ("until",)),
            Fact("p", ("later",)),
            Fact("p", ("lives",), ttl=100),
            Fact("on", ()),
            Fact("off", ()),
        ]
    )
    kb.fork_scope(None, "s")
    empty = kb.diff_scopes(None, "s")
    assert (empty.added, empty.removed, empty.modified, empty.unchanged) == ([], [], [], 11)
    clock.advance(1)
    kb.retract_fact("p", ("removed",), scope="s")
    kb.retract_fact("p", ("sign",), scope="s")
    kb.retract_fact("off", (), scope="s")
    kb.assert_facts(
        [
            Fact("p", ("added",), scope="s"),
            Fact("p", ("same",), scope="s", confidence=0.5, metadata={"k": 1}),  # told again: nothing new
            Fact("p", ("sign",), scope="s", positive=False),
            Fact("p", ("both",), scope="s", positive=False),
            Fact("p", ("sure",), scope="s", confidence=0.6),
            Fact("p", ("noted",), scope="s", metadata={"k": 2}),
            Fact("p", ("until",), scope="s", valid_until=START + 500),
            Fact("p", ("later",), scope="s", valid_from=START + 500),  # not valid now: it is not there
            Fact("p", ("lives",), scope="s", ttl=50),
            Fact("off", (), scope="s", positive=False),
            Fact("new", ("x", "y"), scope="s"),
        ]
    )
    found = kb.diff_scopes(None, "s")
    assert names(found.added) == [["x", "y"], ["added"], ["both"]]
    assert names(found.removed) == [["later"], ["removed"]]
    pairs = {tuple(pair.before["args"]): pair for pair in found.modified}
    assert set(pairs) == {("sign",), ("sure",), ("noted",), ("until",), ("lives",), ()}
    assert all((pair.before["scope"], pair.after["scope"]) == (None, "s") for pair in found.modified)
    assert (pairs["sign",].before["negated"], pairs["sign",].after["negated"]) == (False, True)
    assert found.unchanged == 3
    back = kb.diff_scopes("s", None)
    assert (names(back.added), names(back.removed)) == (names(found.removed), names(found.added))
    assert [(p.after, p.before) for p in back.modified if p.before["args"] != ["sign"] and p.before["args"]] == [
        (p.before, p.after) for p in found.modified if p.before["args"] != ["sign"] and p.before["args"]
    ]


def test_a_fact_told_with_a_ttl_at_another_time_ends_at_another_time(kb, clock):
    told(kb, ttl=100)
    clock.advance(1)
    told(kb, "s", ttl=100)
    assert len(kb.diff_scopes(None, "s").modified) == 2


def test_a_diff_too_long_to_be_given_whole_is_refused():
    with runtime(query_max_answers=10) as node:
        kb = node.knowledge_base()
        kb.fork_scope(None, "s")
        kb.assert_facts([Fact("p", (str(n),), scope="s") for n in range(11)])
        with pytest.raises(BudgetExceeded) as caught:
            kb.diff_scopes(None, "s")
        assert (caught.value.details or {})["limit"] == "answers"
        kb.retract_fact("p", ("0",), scope="s")
        assert len(kb.diff_scopes(None, "s").added) == 10


def test_unknown_scopes_are_not_compared(kb):
    for call in (kb.diff_scopes, kb.merge_scope):
        with pytest.raises(NotFound):
            call("nowhere", None)
        with pytest.raises(NotFound):
            call(None, "nowhere")
        with pytest.raises(InvalidInput):
            call("*", None)
    with pytest.raises(InvalidInput, match="KEEP_BOTH, REJECT, SOURCE_WINS, TARGET_WINS"):
        kb.merge_scope("s", None, strategy="MINE")


def contested(kb):
    """A base and a scope that differ in every way, and what is only in one."""
    kb.assert_facts(
        [
            Fact("p", ("sure",), confidence=0.9, metadata={"who": "base", "b": 1}),
            Fact("p", ("sign",)),
            Fact("p", ("mine",)),
            Fact("p", ("sure",), scope="s", confidence=0.4, metadata={"who": "s", "s": 1}),
            Fact("p", ("sign",), scope="s", positive=False),
            Fact("p", ("yours",), scope="s", confidence=0.1, ttl=50),
        ]
    )


def stored(kb, scope=None):
    return {(*row["args"], row["negated"]): row for row in kb.query_rows("p", [ANONYMOUS], scope=scope)}


@pytest.mark.parametrize(
    ("strategy", "facts", "confidence", "who"),
    [
        ("SOURCE_WINS", {("sure", False), ("sign", True), ("mine", False), ("yours", False)}, 0.4, "s"),
        ("TARGET_WINS", {("sure", False), ("sign", False), ("mine", False), ("yours", False)}, 0.9, "base"),
        (
            "KEEP_BOTH",
            {("sure", False), ("sign", False), ("sign", True), ("mine", False), ("yours", False)},
            0.9,
            "s",
        ),
    ],
)
def test_strategies(kb, strategy, facts, confidence, who):
    contested(kb)
    before = stored(kb, "s")
    outcome = kb.merge_scope("s", strategy=strategy)
    assert (outcome.conflicts, outcome.strategy) == (2, strategy)
    found = stored(kb)
    assert set(found) == facts
    assert (found["sure", False]["confidence"], found["sure", False]["metadata"]["who"]) == (confidence, who)
    assert found["yours", False] == {**before["yours", False], "scope": None}
    assert stored(kb, "s") == before
    if strategy == "KEEP_BOTH":
        assert found["sure", False]["metadata"] == {"who": "s", "s": 1, "b": 1}
    if strategy != "TARGET_WINS":
        again = kb.merge_scope("s", strategy=strategy)
        assert (again.conflicts, again.merged) == ((0, 0) if strategy == "SOURCE_WINS" else (1, 1))


def test_reject_lists_the_conflicts_and_changes_nothing(kb):
    contested(kb)
    before = stored(kb)
    with pytest.raises(Conflict) as caught:
        kb.merge_scope("s", strategy="REJECT")
    details = caught.value.details or {}
    assert details["count"] == 2
    assert [(pair["before"]["args"], pair["after"]["args"]) for pair in details["conflicts"]] == [
        (["sure"], ["sure"]),
        (["sign"], ["sign"]),
    ]
    assert stored(kb) == before
    kb.retract_pattern("p", [ANONYMOUS])
    assert kb.merge_scope("s", strategy="REJECT").merged == 3


def test_both_of_one_sign_have_the_hull_of_their_windows(kb, clock):
    kb.assert_facts([Fact("p", ("a",), valid_from=START - 50, valid_until=START + 10, confidence=0.2)])
    kb.assert_facts([Fact("p", ("a",), scope="s", valid_until=START + 40)])
    clock.advance(5)
    kb.merge_scope("s", strategy="KEEP_BOTH")
    row = stored(kb)["a", False]
    assert (row["validFrom"], row["validUntil"], row["confidence"]) == (START - 50, START + 40, None)
    clock.advance(10)
    assert list(stored(kb)) == [("a", False)]
    clock.advance(25)
    assert stored(kb) == {}


def test_expired_facts_neither_conflict_nor_come_along_but_those_of_the_future_do(kb, clock):
    kb.assert_facts([Fact("p", ("a",), ttl=5), Fact("p", ("b",), scope="s", ttl=5)])
    kb.assert_facts([Fact("p", ("a",), positive=False, scope="s"), Fact("p", ("c",), scope="s", valid_from=START + 50)])
    clock.advance(10)
    assert kb.merge_scope("s", strategy="REJECT").merged == 2
    assert list(stored(kb)) == [("a", True)]
    clock.advance(50)
    assert set(stored(kb)) == {("a", True), ("c", False)}


class Ours:
    """A guest: the surer fact stands, with a note of the contest."""

    always = None

    def resolve(self, conflict):
        best = max((*conflict.source, *conflict.target), key=lambda fact: fact.confidence or 0.0)
        noted = Standing(best.positive, best.created_at, best.valid_from, None, best.confidence, {"contested": True})
        return Resolution(Keep.FACTS, (noted,))


class Answer:
    """Whatever a test wants it to say."""

    always = None

    def __init__(self, answer):
        self.answer = answer

    def resolve(self, conflict):
        return self.answer(conflict)


class Guest:
    def __init__(self, **strategies):
        self.strategies = strategies

    @hookimpl
    def kb_merge_strategies(self):
        return self.strategies


def test_a_guest_decides(tmp_path):
    guest = Guest(SUREST=Ours())
    with open_kb(path=tmp_path, plugins=[guest]) as kb:
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
        kb._runtime._store.close(clean=False)
    with open_kb(path=tmp_path) as kb:  # the decisions are in the log: nobody has to decide again
        assert digest(kb._runtime) == before


def test_a_guest_sees_both_sides():
    seen = []

    def answer(conflict):
        seen.append(conflict)
        return Resolution(Keep.TARGET if conflict.args == ("sign",) else Keep.SOURCE)

    with open_kb(plugins=[Guest(ASK=Answer(answer))]) as kb:
        contested(kb.kb)
        kb.tell("p", ["gone"], ttl=1_000_000)
        kb.merge("s", strategy="ASK")
        by_args = {conflict.args[0]: conflict for conflict in seen}
        assert set(by_args) == {"sure", "sign"}
        assert isinstance(by_args["sure"], MergeConflict)
        assert [fact.confidence for fact in by_args["sure"].source] == [0.4]
        assert by_args["sure"].target[0].metadata == {"who": "base", "b": 1}
        assert [fact.positive for fact in by_args["sign"].source + by_args["sign"].target] == [False, True]
        found = stored(kb.kb)
        assert (found["sure", False]["confidence"], ("sign", True) in found) == (0.4, False)


def raises(conflict):
    raise ValueError("no idea")


ODD = Standing(True, START, START, None, 2.0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (raises, "ASK failed at p.*ValueError: no idea"),
        (lambda c: None, "NoneType, not a Resolution"),
        (lambda c: Resolution("source"), "not a Resolution"),  # type: ignore[arg-type]
        (lambda c: Resolution(Keep.FACTS, c.source + c.source), "two facts of one sign"),
        (lambda c: Resolution(Keep.FACTS, [c.source]), "not a tuple"),  # type: ignore[arg-type]
        (lambda c: Resolution(Keep.FACTS, (ODD,)), "confidence outside 0 to 1"),
        (lambda c: Resolution(Keep.FACTS, (Standing(True, -1, START),)), "a time that is none"),
        (lambda c: Resolution(Keep.FACTS, (Standing(True, START, START, metadata={"x": object()}),)), "not JSON"),
    ],
)
def test_a_guest_that_fails_changes_nothing(answer, said):
    with open_kb(plugins=[Guest(ASK=Answer(answer))]) as kb:
        contested(kb.kb)
        before = content(kb._runtime)
        with pytest.raises(PluginFailed, match=said):
            kb.merge("s", strategy="ASK")
        assert content(kb._runtime) == before


def test_a_guest_that_refuses_one_conflict_refuses_all():
    answer = Answer(lambda c: Resolution(Keep.REFUSE if c.args == ("sign",) else Keep.BOTH))
    with open_kb(plugins=[Guest(ASK=answer)]) as kb:
        contested(kb.kb)
        before = content(kb._runtime)
        with pytest.raises(Conflict):
            kb.merge("s", strategy="ASK")
        assert content(kb._runtime) == before


def test_a_guest_must_say_whether_it_always_decides_alike():
    class Silent:
        def resolve(self, conflict):
            return Resolution(Keep.SOURCE)

    with open_kb(plugins=[Guest(ASK=Silent())]) as kb:
        contested(kb.kb)
        with pytest.raises(PluginFailed, match="always"):
            kb.merge("s", strategy="ASK")


def test_what_changes_while_a_guest_decides_is_decided_anew():
    turns = []

    def answer(conflict):
        turns.append(conflict.source[0].confidence)
        if len(turns) == 1:  # a write that comes between the decision and the merge
            writer = threading.Thread(target=lambda: kb.tell("p", ["x"], scope="s", confidence=0.7))
            writers.append(writer)
            writer.start()
        return Resolution(Keep.SOURCE)

    writers: list[threading.Thread] = []
    with open_kb(plugins=[Guest(ASK=Answer(answer))]) as kb:
        kb.tell("p", ["x"], confidence=0.1)
        kb.tell("p", ["x"], scope="s", confidence=0.5)
        kb.merge("s", strategy="ASK")
        writers[0].join(20)
        # Either the write came before the merge, which was then decided anew, or after it.
        assert stored(kb.kb)["x", False]["confidence"] == turns[-1]


def test_changes_of_scopes_come_back_from_the_log():
    facts = (Standing(False, 1, 2, None, 0.5, {"k": [1]}), Standing(True, 3, 3, 4))
    others = (("p", ("a", "b"), Decision(Keep.FACTS, facts)), ("on", (), Decision(Keep.TARGET)))
    changes = (
        ForkScope(None, "s", True),
        ForkScope("s", "t"),
        DropScope("s"),
        MergeScope("s", None, 7, Keep.BOTH, others),
        MergeScope(None, "s", 7),
    )
    sent = ChangeSet("d", "t", changes)
    assert decode_changes(CHANGES, VERSION, stamp(encode_changes(sent), 9)) == (9, sent)


def everything(kb, clock):
    told(kb)
    contested(kb)
    kb.assert_rules([RULE, scoped("only(?x) :- p(?x), not q(?x).", "s")])
    kb.fork_scope("s", "gone")
    kb.fork_scope(None, "what.if")
    kb.assert_facts([Fact("p", ("later",), scope="what.if", valid_from=START + 500, metadata={"x": 1})])
    clock.advance(20)
    kb.fork_scope("what.if", "copy")
    kb.merge_scope("s", "copy", strategy="KEEP_BOTH")
    kb.merge_scope("s", "what.if", strategy="TARGET_WINS")
    kb.merge_scope("what.if")
    kb.drop_scope("gone")
    kb.fork_scope("copy", "s", overwrite=True)
    kb.fork_scope(None, "empty")
    kb.retract_pattern("p", [ANONYMOUS], scope="empty")


def test_log_and_snapshot_lead_to_the_same(tmp_path, clock):
    with runtime(tmp_path, clock=clock) as node:
        everything(node.knowledge_base(), clock)
        before = content(node)
        node._store.close(clean=False)
        node._committer._closed = None
    with runtime(tmp_path, clock=clock) as node:
        assert node.recovered.snapshot == 0
        assert node.recovered.records > 10
        assert content(node) == before
    with runtime(tmp_path, clock=clock) as node:
        assert node.recovered.records == 0 or node.snapshot()
        assert content(node) == before
    with runtime(tmp_path, clock=clock) as node:
        assert node.knowledge_base().scopes() == ["copy", "empty", "s", "what.if"]
        clock.advance(1000)
        assert ("later", False) in stored(node.knowledge_base(), "copy")


def test_the_embedded_way():
    with open_kb(config=Config()) as kb:
        kb.tell("p", ["a"])
        assert kb.fork("try").copied == 1
        kb.tell("p", ["b"], scope="try")
        assert kb.scopes() == ["try"]
        assert names(kb.diff(None, "try").added) == [["b"]]
        assert kb.merge("try").merged == 1
        assert kb.drop_scope("try") == 2
        assert kb.query("p", ["?x"]) == [("a",), ("b",)]
