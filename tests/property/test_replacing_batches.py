"""Facts of one request that replace stored ones: decided about together, and each by itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.content import tenant_content
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import Conflict
from kbcore.operations import conflicts
from kbcore.operations.conflicts import ConflictResolver
from kbcore.state import apply, eviction
from kbcore.state.changes import AssertFacts
from kbcore.state.facts import Fact, FactRows
from kbcore.state.partition import RowKey
from kbcore.state.tenant import Tenant
from kbplanner.syntax.parser import parse_goal

T0 = 1_700_000_000_000
DECLARED = """
@levels trust: web < user.
@key city(?who, _).
@key seat(?who, _, _).
@key seat(_, ?row, ?place).
located(?who) :- city(?who, ?where), not away(?who).
"""

NAMES = st.sampled_from("abcd")
VALUES = st.sampled_from(["x", "y", "z", "1", "1.0"])
SCOPES = st.sampled_from([None, None, None, "s"])
STRATEGIES = st.sampled_from(["NEWEST_WINS"] * 4 + ["CONFIDENCE"])
LABELS = st.sampled_from([None, None, None, None, None, {"trust": "web"}])
ROWS = st.lists(st.tuples(NAMES, VALUES, VALUES), min_size=1, max_size=5)
NAMED = st.sampled_from([("city", 2), ("city", 2), ("city", 2), ("seat", 3), ("code", 2)])
PLAIN = st.builds(
    Fact,
    st.just("city"),
    st.tuples(NAMES, VALUES),
    st.sampled_from([True, True, True, False]),
    SCOPES,
    confidence=st.sampled_from([None, None, 0.5]),
    metadata=st.sampled_from([{}, {}, {"source": "x"}]),
)
TIMED = st.builds(
    Fact,
    st.just("city"),
    st.tuples(NAMES, VALUES),
    st.sampled_from([True, True, True, False]),
    SCOPES,
    ttl=st.sampled_from([None, None, 3]),
    valid_from=st.sampled_from([None, T0, T0 + 2, T0 + 4, T0 + 6]),
    valid_until=st.sampled_from([None, T0 + 100]),
)


def _only_without_ttl(fact: Fact) -> bool:
    return fact.ttl is None or fact.valid_from is None


STEPS = st.one_of(
    st.tuples(st.just("rows"), st.tuples(NAMED, ROWS, st.booleans(), SCOPES, STRATEGIES, LABELS)),
    st.tuples(st.just("rows"), st.tuples(NAMED, ROWS, st.just(True), SCOPES, STRATEGIES, LABELS)),
    st.tuples(st.just("facts"), st.tuples(st.lists(PLAIN, min_size=1, max_size=5), STRATEGIES)),
    st.tuples(
        st.just("facts"),
        st.tuples(
            st.lists(st.one_of(PLAIN, TIMED.filter(_only_without_ttl)), min_size=1, max_size=4),
            STRATEGIES,
        ),
    ),
    st.tuples(st.just("transaction"), st.lists(st.tuples(NAMED, ROWS), min_size=1, max_size=3)),
    st.tuples(st.just("retract"), st.tuples(NAMES, VALUES)),
    st.tuples(st.just("wait"), st.integers(1, 5)),
    st.tuples(st.sampled_from(["undo", "restart"]), st.none()),
)


class _Base:
    """A knowledge base, and what its listeners have heard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(T0)
        self.heard: list[Any] = []
        self.outcomes: list[Any] = []
        self.open()
        self.node.open("t").teach(DECLARED)
        self.declared = self.node.read_tenant("default", "t").seq

    def open(self) -> None:
        self.node = runtime(self.folder, clock=self.clock, sweep_interval_ms=0)
        kb = self.node.open("t")
        kb.subscribe(lambda event: self.heard.append({**event, "eventId": None}), scope="*")
        self.goals = [
            kb.kb.subscribe_goal(parse_goal(goal).body)
            for goal in ("located(?who)", "city(?who, ?where)")
        ]

    def run(self, verb: str, details: Any) -> None:
        kb = self.node.knowledge_base(tenant="t")
        if verb == "rows":
            (name, arity), rows, positive, scope, conflict, labels = details
            if labels is not None:
                kb = self.node.open("t").viewed(labels=labels).kb
            args = [value for row in rows for value in row[:arity]]
            group = FactRows(name, arity, args, positive, scope)
            self.outcomes.append(kb.assert_rows([group], conflict=conflict))
        elif verb == "facts":
            facts, conflict = details
            self.outcomes.append(kb.assert_facts(facts, conflict=conflict))
        elif verb == "transaction":
            id = self.node.begin(tenant="t")
            with self.node.in_transaction("default", "t", id) as transaction:
                for (name, arity), rows in details:
                    args = [value for row in rows for value in row[:arity]]
                    transaction.assert_rows([FactRows(name, arity, args)], conflict="NEWEST_WINS")
                transaction.commit()
        elif verb == "retract":
            kb.retract_fact("city", details)
        elif verb == "wait":
            self.clock.advance(details)
        elif verb == "undo":
            last = self.node.read_tenant("default", "t").seq
            try:
                if last > self.declared:
                    self.outcomes.append(kb.undo(seq=last).change)
            except Conflict as error:
                self.outcomes.append(str(error))
        else:
            self.node.close()
            self.open()

    def content(self) -> Any:
        tenant = self.node.read_tenant("default", "t")
        with tenant.lock.read():
            details = sorted(
                (
                    partition.name or "",
                    repr(stored.schema),
                    sorted((texts(tenant, row), repr(own)) for row, own in stored.metadata.items()),
                    *(
                        sorted(texts(tenant, row) for row in rows)
                        for rows in (stored.limited, stored.expired, stored.lapsed)
                    ),
                )
                for partition, stored in tenant.stored()
            )
            everything = tenant_content(tenant)
        kb = self.node.open("t")
        seen = kb.viewed({"trust": "user"}).query("city", ["?who", "?where"]).rows()
        goals = [
            [
                (each.appeared, each.disappeared)
                for each in kb.kb.goal_changes(goal.goal.id, goal.event_id) or ()
            ]
            for goal in self.goals
        ]
        history = [kb.query("city", ["?who", "?x"], as_of=T0 + ms).rows() for ms in range(8)]
        return everything, details, seen, goals, history


def texts(tenant: Tenant, row: RowKey) -> tuple[str, ...]:
    return tuple(map(tenant.engine.text, row))


def by_itself(self: ConflictResolver, assertion: Any, now: int) -> Any:
    together = conflicts._Together()
    count = len(assertion.facts if isinstance(assertion, AssertFacts) else assertion.rows) * 100
    together.left.update(range(count))
    return together


def none_together(*_: Any) -> set[int]:
    return set()


@examples(150)
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_many_facts_replace_what_each_of_them_replaces(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        together, single = _Base(Path(folder, "together")), _Base(Path(folder, "single"))
        try:
            for verb, details in steps:
                together.run(verb, details)
                with patch.context() as slow:
                    slow.setattr(ConflictResolver, "_settled_together", by_itself)
                    slow.setattr(eviction, "_end_together", none_together)
                    slow.setattr(apply, "_describe_together", none_together)
                    single.run(verb, details)
                assert together.content() == single.content()
                assert together.outcomes == single.outcomes
                assert together.heard == single.heard
        finally:
            together.node.close()
            single.node.close()
