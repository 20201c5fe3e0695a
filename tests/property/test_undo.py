"""Undoing the last change gives the state before it, for every kind of change, also after snapshots
and crashes; undoing any change is right against a plain account of who changed what.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
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
from kbcore.state.merging.sides import Keep
from kbcore.state.rulebook import stored_rule
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
    st.builds(lambda rule: AssertRules((stored_rule(rule),)), st.sampled_from(RULES)),
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
    """Facts and rules; a scope that is empty counts as none."""
    if state is None:
        return [], [], []
    _, rules, facts, episodes = state
    rows = [(at, str(row), visible) for at, row, visible in facts]
    return sorted(rules, key=repr), sorted(rows, key=repr), episodes


# -- any change of a random history ----------------------------------------------------------------

Known = dict[tuple[str, bool], tuple[int, float | None, int | None]]
"""What is stored: creation time, confidence and ttl of each fact, by argument and sign."""

TTL = 10**9
told = st.tuples(
    st.just("tell"),
    st.sampled_from("xy"),
    st.booleans(),
    st.sampled_from([None, 0.25, 0.75]),
    st.sampled_from([None, TTL]),
)
forgotten = st.tuples(st.just("forget"), st.sampled_from("xy"), st.booleans())
undoing = st.tuples(st.just("undo"), st.integers(0, 30))
steps = st.lists(st.one_of(told, told, forgotten, undoing, undoing), min_size=1, max_size=14)


class Account:
    """The changes so far: what each replaced, and which change it undid."""

    def __init__(self) -> None:
        self.known: Known = {}
        self.changes: list[tuple[Known, Known, int | None]] = []

    def change(self, after: Known, undoes: int | None = None) -> None:
        self.changes.append((self.known, after, undoes))
        self.known = after

    def undone(self, number: int) -> Known | str:
        """The facts after undoing a change, or why it cannot be undone."""
        before, after, _ = self.changes[number]
        changed = {key for key in {**before, **after} if before.get(key) != after.get(key)}
        if not changed:
            return "nothing"
        in_force = dict(enumerate(self.changes[number + 1 :], number + 1))
        for later in sorted(in_force, reverse=True):
            undoes = in_force[later][2] if later in in_force else None
            if undoes is not None and undoes > number:
                del in_force[later], in_force[undoes]
        if any(undoes == number for _, _, undoes in in_force.values()):
            return "undone"
        for earlier, later_state, _ in in_force.values():
            if any(earlier.get(key) != later_state.get(key) for key in changed):
                return "changed_later"
        result = {key: fact for key, fact in self.known.items() if key not in changed}
        return {**result, **{key: before[key] for key in changed if key in before}}


@settings(max_examples=150, deadline=None)
@given(steps)
def test_undoing_any_change_is_right_against_a_plain_account(history: list[Any]) -> None:
    account = Account()
    clock = ManualClock(T0)
    with (
        tempfile.TemporaryDirectory() as folder,
        runtime(Path(folder), clock=clock, sweep_interval_ms=0) as node,
    ):
        kb = node.knowledge_base("default", "t")
        for step in history:
            clock.advance(1)
            now, known = clock.now_ms(), account.known
            if step[0] == "tell":
                _, arg, sign, confidence, ttl = step
                kb.assert_facts([Fact("p", (arg,), sign, confidence=confidence, ttl=ttl)])
                created = known.get((arg, sign), (now,))[0]
                end = None if ttl is None else now + ttl
                account.change({**known, (arg, sign): (created, confidence, end)})
            elif not account.changes:
                continue
            elif step[0] == "forget":
                kb.retract_fact("p", [step[1]], positive=step[2])
                account.change({key: each for key, each in known.items() if key != step[1:]})
            else:
                number = step[1] % len(account.changes)
                expected = account.undone(number)
                if isinstance(expected, str):
                    with pytest.raises(Conflict) as refused:
                        kb.undo(seq=number + 1)
                    assert (refused.value.details or {})["reason"] == expected
                else:
                    kb.undo(seq=number + 1)
                    account.change(expected, number)
            rows = [
                row
                for sign in (True, False)
                for row in kb.query_rows("p", [Variable("x")], positive=sign)
            ]
            assert {
                (row["args"][0], not row["negated"]): (
                    row["createdAt"],
                    row["confidence"],
                    row["validUntil"],
                )
                for row in rows
            } == account.known
            assert {row["ttl"] for row in rows if row["validUntil"]} <= {TTL}
