"""A question with `knownAt` has the answer that it had at that instant, for every state of a random
history.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.context.request import WindowRequest
from kbcore.errors import InvalidInput
from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.options import AnswerOptions, FactOptions
from kbcore.search.neighbours import NeighbourOptions
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    ChangeSet,
    DropScope,
    EvictFacts,
    EvictReason,
    ForkScope,
    MergeScope,
    RetractFact,
    RetractPattern,
    RetractRule,
    SetPriority,
)
from kbcore.state.facts import Fact, FactRows
from kbcore.state.merging.sides import Keep
from kbcore.state.rulebook import stored_rule
from kbplanner.ir.terms import Atom, Literal, Variable
from kbplanner.syntax.parser import parse_rule

T0 = 1_700_000_000_000
RULES = [
    parse_rule("r(?x, ?z) :- p(?x, ?y), p(?y, ?z)."),
    parse_rule("r(?x, ?z) :- p(?x, ?y), r(?y, ?z)."),
    parse_rule("alone(?x) :- p(?x, ?y), not r(?x, ?y)."),
]
X, Y = Variable("x"), Variable("y")

name, scope = st.sampled_from("abc"), st.sampled_from([None, "s", "t"])
args = st.tuples(name, name)
fact = st.builds(
    Fact,
    st.just("p"),
    args,
    st.booleans(),
    scope,
    ttl=st.sampled_from([None, 2, 7]),
    valid_from=st.sampled_from([None, T0 - 5, T0 + 4]),
    valid_until=st.sampled_from([None, T0 + 6, T0 + 10**10]),
    confidence=st.sampled_from([None, 0.25]),
    metadata=st.sampled_from([{}, {"k": 1}]),
)
sign = st.sampled_from([None, True, False])
term = st.sampled_from(["a", "b", X, Y])
change = st.one_of(
    st.builds(lambda facts: AssertFacts(tuple(facts)), st.lists(fact, min_size=1, max_size=4)),
    st.builds(lambda pair, at: AssertRows((FactRows("p", 2, list(pair), True, at),)), args, scope),
    st.builds(RetractFact, st.just("p"), args, sign, scope),
    st.builds(RetractPattern, st.just("p"), st.tuples(term, term), sign, scope),
    st.builds(
        lambda pair, at: EvictFacts((FactRows("p", 2, list(pair), True, at),), EvictReason.FADED),
        args,
        scope,
    ),
    st.builds(SetPriority, st.just("p"), args, st.sampled_from([0.1, 0.9]), sign, scope),
    st.builds(lambda rule: AssertRules((stored_rule(rule),)), st.sampled_from(RULES)),
    st.builds(lambda rule: RetractRule(stored_rule(rule).id), st.sampled_from(RULES)),
    st.builds(ForkScope, st.sampled_from([None, "s"]), st.just("t"), st.just(True)),
    st.builds(lambda keep: MergeScope("s", None, T0, keep), st.sampled_from(list(Keep)[:3])),
    st.just(DropScope("t")),
)
sets = st.lists(change, min_size=1, max_size=3)
events = st.lists(
    st.one_of(
        sets,
        sets,
        sets,
        st.sampled_from(["snapshot", "crash", "wait", "back", "other", "transaction"]),
    ),
    min_size=1,
    max_size=10,
)


def answers(kb: TenantKB, *, windows: bool = True) -> Any:
    """What clients can ask, without what depends on accesses of facts."""
    goals = [Literal(Atom("r", (X, Y))), Literal(Atom("alone", (X,))), Literal(Atom("p", ("a", X)))]
    window = kb.context(WindowRequest(max_facts=100, scope="*", goals=(goals[0],)))
    return [
        [kb.infer(goal, AnswerOptions(scope="*")) for goal in goals],
        [kb.infer(goal, AnswerOptions(as_of=at)) for goal in goals for at in (T0 + 3, T0 + 8)],
        kb.prove(goals[0], AnswerOptions(scope="*")),
        kb.why_not((Literal(Atom("r", ("a", "d"))),)).text,
        kb.query_page(Atom("p", (X, Y)), FactOptions(scope="*")),
        kb.query_page(Atom("p", (X, Y)), FactOptions(scope="*", as_of=T0 + 5)),
        kb.aggregate(AggregateQuery("p", "COUNT"), scope="*").matched,
        kb.neighbours("a", NeighbourOptions(scope="*")),
        kb.predicates("*"),
        [(rule.id, rule.scope) for rule in kb.rules()],
        kb.scopes(),
        sorted((each.predicate, each.args, str(each.scope)) for each in window.entries),
    ]


def happen(node: Runtime, clock: ManualClock, event: Any) -> None:
    kb = node.knowledge_base("default", "t")
    if event == "snapshot":
        node.snapshot()
    elif event == "wait":
        clock.advance(3)
    elif event == "back":
        clock.step(-2)
    elif event == "other":
        node.commit(ChangeSet("default", "u", (AssertFacts((Fact("p", ("z", "z")),)),)))
    elif event == "transaction":
        with kb._transaction() as transaction:
            transaction.retract_pattern("p", ("a", X))
            transaction.assert_facts([Fact("p", ("a", "c"))])
    elif event:
        node.commit(ChangeSet("default", "t", tuple(event)))


@pytest.mark.parametrize("storage", ["wal", "sqlite"])
@examples(60)
@given(events)
def test_questions_are_answered_as_they_were(
    storage: str, history: list[list[Change] | str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(T0)

        def start() -> Runtime:
            settings = {"storage_backend": storage, "sweep_interval_ms": 0}
            return runtime(Path(folder), clock=clock, **settings)

        node = start()
        try:
            then: dict[int, Any] = {}
            for event in history:
                clock.advance(1)
                if event == "crash":
                    node.system.snapshots._at_bytes = node.system.committer.bytes
                    node.close()
                    node = start()
                else:
                    happen(node, clock, event)
                then[node.clock.now_ms()] = answers(node.knowledge_base("default", "t"))
            kb = node.knowledge_base("default", "t")
            try:
                oldest = kb.history_start().at
            except InvalidInput:
                return
            generation = node.read_tenant("default", "t").generation
            for instant, expected in [*then.items(), *reversed(then.items())]:
                if instant >= oldest:
                    assert answers(kb.known_at(instant)) == expected
                else:
                    with pytest.raises(InvalidInput) as refused:
                        kb.known_at(instant)
                    assert (refused.value.details or {})["oldest"] == oldest
            assert node.read_tenant("default", "t").generation == generation
        finally:
            node.close()
