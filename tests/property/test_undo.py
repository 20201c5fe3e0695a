"""Undoing the last change gives the state before it, for every kind of change, also after snapshots and crashes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.content import tenant_content
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import Conflict
from kbcore.node.runtime import Runtime
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
from kbcore.state.rulebook import stored_rule
from kbcore.state.standing import Keep
from kbplanner.ir.terms import Variable
from kbplanner.syntax.parser import parse_rule

T0 = 1_700_000_000_000
RULES = [parse_rule(f"r{n}(?x) :- p(?x, ?y), q(?y).") for n in range(3)]

name, scope = st.sampled_from("abc"), st.sampled_from([None, "s", "t"])
args = st.tuples(name, name)
fact = st.builds(
    Fact,
    st.just("p"),
    args,
    st.booleans(),
    scope,
    ttl=st.sampled_from([None, 10**9]),
    valid_from=st.sampled_from([None, T0 - 5, T0 + 10**9]),
    valid_until=st.sampled_from([None, T0 + 10**10]),
    confidence=st.sampled_from([None, 0.25, 1.0]),
    metadata=st.sampled_from([{}, {"k": 1}]),
)
sign = st.sampled_from([None, True, False])
term = st.sampled_from(["a", "b", Variable("x"), Variable("y")])
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
    st.builds(lambda rule: AssertRules((rule,)), st.sampled_from(RULES)),
    st.builds(lambda rule: RetractRule(stored_rule(rule).id), st.sampled_from(RULES)),
    st.builds(ForkScope, st.sampled_from([None, "s"]), st.just("t"), st.just(True)),
    st.builds(lambda keep: MergeScope("s", None, T0, keep), st.sampled_from(list(Keep)[:3])),
    st.just(DropScope("t")),
)
sets = st.lists(change, min_size=1, max_size=3)
events = st.lists(st.one_of(sets, sets, sets, st.sampled_from(["snapshot", "crash"])), max_size=8)


def shown(node: Runtime) -> Any:
    """Everything that clients see of a tenant, without access counts."""
    tenant = node.find_tenant("default", "t")
    if tenant is None:
        return None
    content = tenant_content(tenant)
    facts = [(at, row, visible) for at, row, _, visible in content["facts"]]
    return content["scopes"], content["rules"], facts, content["episodes"]


@contextmanager
def stopping(node: list[Runtime]) -> Iterator[None]:
    try:
        yield
    finally:
        node[0].close()


@settings(max_examples=100, deadline=None)
@given(events, sets, st.sampled_from(["", "snapshot", "crash"]))
def test_undoing_the_last_change_gives_the_state_before_it(
    history: list[Any], last: list[Change], then: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(T0)
        node = [runtime(Path(folder), clock=clock, sweep_interval_ms=0)]

        def happen(event: Any) -> None:
            if event == "snapshot":
                node[0].snapshot()
            elif event == "crash":
                node[0].system.snapshots._at_bytes = node[0].system.committer.bytes
                node[0].close()
                node[0] = runtime(Path(folder), clock=clock, sweep_interval_ms=0)
            elif event:
                node[0].commit(ChangeSet("default", "t", tuple(event)))
                clock.advance(1)

        with stopping(node):
            for event in history:
                happen(event)
            before, head = shown(node[0]), node[0].log_head()
            happen(last)
            seq = node[0].log_head()
            if seq == head:  # nothing to do in a tenant that does not exist
                return
            after = shown(node[0])
            happen(then)
            kb = node[0].knowledge_base("default", "t")
            reason = None
            try:
                kb.undo(seq=seq)
            except Conflict as error:
                reason = (error.details or {})["reason"]
            if reason == "nothing":
                assert rows_of(before) == rows_of(after)
            else:
                assert reason is None
                assert rows_of(shown(node[0])) == rows_of(before)


def rows_of(state: Any) -> Any:
    """Facts and rules; a scope that is empty counts as none, and a ttl as the end that it gives."""
    if state is None:
        return [], [], []
    _, rules, facts, episodes = state
    rows = [(at, str({**row, "ttl": None}), visible) for at, row, visible in facts]
    return sorted(rules, key=repr), sorted(rows, key=repr), episodes
