"""The history of facts: for random writes it has exactly the differences between the states before
and after each.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.content import tenant_content
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from kbcore.node.runtime import Runtime
from kbcore.operations.history.fact_history import MAX_EVENTS, FactPattern, HistoryPage
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.facts import Fact, FactKey, Row
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.ir.terms import ANONYMOUS, Atom, Variable
from kbtypes.episodes import FactEvent

T0 = 1_700_000_000_000
CAUSES = {
    "assert": {"assert"},
    "retract": {"retract"},
    "pattern": {"retract"},
    "transaction": {"assert", "retract"},
    "fork": {"fork"},
    "merge": {"merge"},
    "drop": {"drop_scope"},
    "correct": {"correct"},
    "sweep": {"expired"},
    "decay": {"faded"},
    # The log has what an undo did: if it only removed something, it is a removal like any other.
    "undo": {"undo", "retract", "drop_scope"},
}

name = st.sampled_from("abc")
scope = st.sampled_from([None, None, "s", "t"])
sign = st.sampled_from([None, True, False])
args = st.tuples(name, name)
term = st.sampled_from(["a", "b", Variable("x"), Variable("y"), ANONYMOUS])
terms = st.tuples(term, term)
fact = st.builds(
    Fact,
    st.just("p"),
    args,
    st.booleans(),
    scope,
    ttl=st.sampled_from([None, None, 2, 7]),
    valid_from=st.sampled_from([None, T0 - 5, T0 + 4]),
    valid_until=st.sampled_from([None, T0 + 6, T0 + 10**10]),
    confidence=st.sampled_from([None, 0.01, 0.25]),
    metadata=st.sampled_from([{}, {"k": 1}]),
)
facts = st.lists(fact, min_size=1, max_size=4)
writes = st.one_of(
    st.tuples(st.just("assert"), facts),
    st.tuples(st.just("assert"), facts),
    st.tuples(st.just("retract"), args, sign, scope),
    st.tuples(st.just("pattern"), terms, sign, scope),
    st.tuples(st.just("transaction"), terms, facts),
    st.tuples(st.just("fork"), scope, st.sampled_from(["s", "t"])),
    st.tuples(
        st.just("merge"), scope, scope, st.sampled_from(["SOURCE_WINS", "TARGET_WINS", "KEEP_BOTH"])
    ),
    st.tuples(st.just("drop"), st.sampled_from(["s", "t"])),
    st.tuples(st.just("correct"), args, fact),
    st.tuples(st.just("undo"), st.integers(0, 3)),
    st.tuples(st.just("decay"), scope),
    st.tuples(st.sampled_from(["sweep", "wait", "snapshot", "crash", "other"])),
)
patterns = st.builds(
    FactPattern, st.just("p"), st.one_of(st.none(), terms), sign, st.one_of(scope, st.just("*"))
)


def act(node: Runtime, kb: TenantKB, kind: str, *given: Any) -> None:
    if kind == "assert":
        kb.assert_facts(given[0])
    elif kind == "retract":
        kb.retract_fact("p", given[0], positive=given[1], scope=given[2])
    elif kind == "pattern":
        kb.retract_pattern("p", given[0], positive=given[1], scope=given[2])
    elif kind == "transaction":
        with kb._transaction() as transaction:
            transaction.retract_pattern("p", given[0])
            transaction.assert_facts(given[1])
    elif kind == "fork":
        kb.fork_scope(*given, overwrite=True)
    elif kind == "merge":
        kb.merge_scope(given[0], given[1], strategy=given[2])
    elif kind == "drop":
        kb.drop_scope(given[0])
    elif kind == "correct":
        kb.correct(Atom("p", given[0]), given[1], reason="wrong")
    elif kind == "undo":
        kb.undo(seq=node.log_head() - given[0])
    elif kind == "decay":
        kb.decay(scope=given[0])
    elif kind == "sweep":
        node.sweeper.sweep()
    elif kind == "other":
        node.knowledge_base("default", "u").assert_facts([Fact("p", ("a", "a"))])


@dataclass
class Model:
    """What each write changed, as the states before and after it show."""

    state: dict[FactKey, Row] = field(default_factory=dict)
    events: dict[FactKey, list[tuple[int, int, str, str, Row | None, Row | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def see(self, node: Runtime, kind: str, seq: int, at: int) -> None:
        """Note the differences between the state of the tenant and the one seen last."""
        seen = stored(node)
        for name in self.state.keys() | seen.keys():
            before, after = self.state.get(name), seen.get(name)
            if before == after:
                continue
            if before is not None and after is not None and ended(before, at):
                before = None
            event = "asserted" if before is None else "retracted" if after is None else "replaced"
            self.events[name].append((seq, at, event, kind, before, after))
        self.state = seen

    def selected(self, pattern: FactPattern, after: int) -> dict[FactKey, list[Any]]:
        """Return the events of the facts that match, of changes after a number."""
        found = {
            name: [event for event in events if event[0] > after]
            for name, events in self.events.items()
            if matches(pattern, name)
        }
        return {name: events for name, events in found.items() if events}


def stored(node: Runtime) -> dict[FactKey, Row]:
    tenant = node.find_tenant("default", "t")
    found = {}
    for _, row, *_ in () if tenant is None else tenant_content(tenant)["facts"]:
        found[key_of(row)] = row
    return found


def key_of(row: Row) -> FactKey:
    return row["scope"], row["predicate"], tuple(row["args"]), not row["negated"]


def ended(row: Row, at: int) -> bool:
    return row["validUntil"] is not None and row["validUntil"] <= at


def matches(pattern: FactPattern, name: FactKey) -> bool:
    scope, _, args, positive = name
    if pattern.scope not in (ALL_SCOPES, scope) or pattern.positive not in (None, positive):
        return False
    if pattern.args is None:
        return True
    values: dict[Any, set[str]] = defaultdict(set)
    for term, arg in zip(pattern.args, args, strict=True):
        if term != ANONYMOUS:
            values[term].add(arg)
    return all(
        len(seen) == 1 if isinstance(term, Variable) else seen == {term}
        for term, seen in values.items()
    )


def check(kb: TenantKB, model: Model, pattern: FactPattern, size: int) -> None:
    outcome = kb.fact_history(pattern, limit=MAX_EVENTS, oldest_first=True)
    by_fact: dict[FactKey, list[FactEvent]] = defaultdict(list)
    for event in outcome.events:
        row = event.before if event.after is None else event.after
        assert row is not None
        by_fact[key_of(row)].append(event)
    expected = model.selected(pattern, outcome.start.seq)
    assert {
        name: [(e.seq, e.at, e.event, e.before, e.after) for e in events]
        for name, events in by_fact.items()
    } == {
        name: [(seq, at, event, before, after) for seq, at, event, _, before, after in events]
        for name, events in expected.items()
    }
    for name, events in expected.items():
        for event, (*_, kind, _, _) in zip(by_fact[name], events, strict=True):
            assert event.cause in CAUSES[kind]
    numbers = [event.seq for event in outcome.events]
    assert numbers == sorted(numbers)
    assert outcome.total == len(outcome.events)
    for oldest_first in (True, False):
        pages: list[FactEvent] = []
        while True:
            page: HistoryPage = kb.fact_history(
                pattern, limit=size, offset=len(pages), oldest_first=oldest_first
            )
            assert page.total == outcome.total
            if not page.events:
                break
            pages += page.events
        assert pages == (outcome.events if oldest_first else outcome.events[::-1])


@pytest.mark.parametrize("storage", ["wal", "sqlite"])
@examples(100)
@given(st.lists(writes, min_size=1, max_size=12), patterns, st.integers(1, 4))
def test_events_are_the_differences_between_states(
    storage: str, history: list[Any], pattern: FactPattern, size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(T0)

        def start() -> Runtime:
            settings = {"storage_backend": storage, "sweep_interval_ms": 0}
            return runtime(Path(folder), clock=clock, **settings)

        node, model = start(), Model()
        try:
            for kind, *given_ in history:
                clock.advance(1)
                if kind == "decay":  # which would remove expired facts in a change of its own
                    with suppress(NotFound):
                        node.knowledge_base("default", "t").decay(0.0, scope=given_[0])
                    model.see(node, "sweep", node.log_head(), clock.now_ms())
                head = node.log_head()
                if kind == "crash":
                    node.system.snapshots._at_bytes = node.system.committer.bytes
                    node.close()
                    node = start()
                elif kind == "snapshot":
                    node.snapshot()
                elif kind == "wait":
                    clock.advance(3)
                else:
                    # A write that is refused changes nothing and has no event.
                    with suppress(NotFound, AlreadyExists, Conflict, InvalidInput):
                        act(node, node.knowledge_base("default", "t"), kind, *given_)
                seq = node.log_head()
                assert seq <= head + 1
                model.see(node, kind, seq, clock.now_ms())
            kb = node.knowledge_base("default", "t")
            check(kb, model, FactPattern("p", scope=ALL_SCOPES), size)
            check(kb, model, pattern, size)
        finally:
            node.close()
