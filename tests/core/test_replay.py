"""Replay at a start gives the same state as applying the records one by one."""

from __future__ import annotations

import gc
from array import array

from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples

from kbcore.durable.capture import capture
from kbcore.durable.records import (
    CHANGES,
    VERSION,
    chained_digest,
    decode_changes,
    encode_changes,
    stamp,
)
from kbcore.durable.recovery import recover
from kbcore.durable.replay import MAX_ROWS
from kbcore.durable.snapshot import encode
from kbcore.plug.ports import LogRecord
from kbcore.state.apply import apply
from kbcore.state.catalog import Catalog
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    CatalogAction,
    ChangeCatalog,
    ChangeSet,
    DropScope,
    ForkScope,
    RetractFact,
    SetPriority,
)
from kbcore.state.facts import Fact, FactRows
from kbcore.state.idempotency import RequestKey
from kbplanner.engine.engine import Engine


class Log:
    """A log of records without a snapshot."""

    def __init__(self, changes):
        self._records = [
            LogRecord(seq, CHANGES, VERSION, stamp(encode_changes(made), at))
            for seq, (at, made) in enumerate(changes, 1)
        ]

    def load_snapshot(self):
        return None

    def read(self, after):
        return iter(self._records[after:])


def one_by_one(log):
    catalog = Catalog(Engine)
    for record in log.read(0):
        at, changes = decode_changes(record.type, record.version, record.payload)
        tenant = catalog.place(changes, at, record.seq)
        if tenant is not None:
            with tenant.lock.write():
                digest = chained_digest(record.type, record.version, record.payload)
                apply(tenant, changes, at, record.seq, chained=digest)
    return catalog


def state(catalog, at):
    """What can be seen of a catalog, now and at later times; symbols and the order of relations are
    internal.
    """
    found = []
    for now in (at, at + 7, at + 1000):
        for tenant in catalog.tenants():
            with tenant.lock.write():
                tenant.advance(now)
            found.append(
                (
                    tenant.name,
                    tenant.created_at,
                    tenant.generation,
                    tenant.version - tenant.generation >= 0,
                    tenant.seq,
                    tenant.chain.state(),
                )
            )
            for partition, stored in tenant.stored():
                rows, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
                shown = list(stored.relation.match([0] * stored.schema.arity)[1])
                order = [str(row) for row in stored.rows(tenant.engine, rows, ids)]
                marks = [(len(stored.limited), len(stored.expired))]
                cells = [str(list(stored.relation.attributes(a, ids))) for a in range(8)]
                found.append((partition.name, str(stored.schema), order, shown, marks, cells))
    return sorted(map(str, found))


NAMES = st.sampled_from("abc")
PLAIN = st.builds(
    Fact,
    st.sampled_from(["p", "q"]),
    st.tuples(NAMES) | st.tuples(NAMES, NAMES),
    st.booleans(),
    st.sampled_from([None, "s"]),
)
ANY = st.builds(
    Fact,
    st.sampled_from(["p", "q"]),
    st.tuples(NAMES) | st.tuples(NAMES, NAMES),
    scope=st.sampled_from([None, "s"]),
    ttl=st.none() | st.integers(1, 9),
    valid_from=st.none() | st.integers(95, 120),
    valid_until=st.none() | st.integers(95, 125),
    confidence=st.none() | st.sampled_from([0.0, 0.5]),
    metadata=st.sampled_from([{}, {"k": 1}, {"k": [2]}]),
)
ROWS = st.builds(
    lambda p, args, s: FactRows(p, 2, args[: len(args) // 2 * 2], True, s),
    NAMES,
    st.lists(NAMES, min_size=2),
    st.none(),
)
CHANGE = st.one_of(
    st.builds(AssertFacts, st.lists(PLAIN, min_size=1, max_size=4).map(tuple)),
    st.builds(AssertFacts, st.lists(PLAIN, min_size=1, max_size=1).map(tuple)),
    st.builds(AssertFacts, st.lists(ANY, min_size=1, max_size=5).map(tuple)),
    st.builds(AssertRows, st.lists(ROWS, min_size=1, max_size=2).map(tuple)),
    st.builds(RetractFact, st.just("p"), st.tuples(NAMES), st.just(True), st.none()),
    st.builds(SetPriority, st.just("p"), st.tuples(NAMES), st.just(0.75), st.just(True), st.none()),
    st.just(ForkScope(None, "s", True)),
    st.just(DropScope("s")),
)
SETS = st.builds(
    lambda tenant, changes, tx, key: ChangeSet(
        "default", tenant, tuple(changes), transaction=tx, request=key
    ),
    st.sampled_from(["one", "two"]),
    st.lists(CHANGE, min_size=1, max_size=3),
    st.sampled_from([None, None, None, "tx-1"]),
    st.sampled_from([None, None, None, RequestKey("k", "d")]),
)
RECORDS = st.lists(st.tuples(st.integers(0, 4), SETS), max_size=25)


def _said(*signs: bool) -> tuple[int, ChangeSet]:
    facts = tuple(Fact("p", ("a",), positive) for positive in signs)
    return 0, ChangeSet("default", "one", (AssertFacts(facts),))


@example([_said(False), _said(False), _said(True)])
@example(
    [_said(False), _said(False), (0, ChangeSet("default", "one", (DropScope("s"),))), _said(True)]
)
@example([_said(False, True), _said(False), _said(True, False)])
@examples(200)
@given(RECORDS)
def test_replay_in_batches_gives_the_same_state_as_one_by_one(records):
    at, changes = 100, []
    there = set()
    for later, made in records:
        at += later
        kept = tuple(
            c for c in made.changes if not isinstance(c, DropScope) or made.tenant in there
        )
        if kept:
            changes.append(
                (
                    at,
                    ChangeSet(
                        "default",
                        made.tenant,
                        kept,
                        transaction=made.transaction,
                        request=made.request,
                    ),
                )
            )
            there.add(made.tenant)
    log = Log(changes)
    catalog = Catalog(Engine)
    found = recover(log, catalog)
    assert (found.records, found.last_time) == (len(changes), changes[-1][0] if changes else 0)
    assert state(catalog, at) == state(one_by_one(log), at)


def test_many_small_records_keep_order_content_and_times():
    def told(n):
        tenant = f"t{n % 3}"
        return 1000 + n, ChangeSet(
            "default", tenant, (AssertFacts((Fact(f"p{n % 2}", (f"x{n % 700}", f"y{n % 7}")),)),)
        )

    changes = [told(n) for n in range(2000)]
    changes.insert(
        1500, (2499, ChangeSet("default", "t1", (ChangeCatalog(CatalogAction.NUKE_TENANT),)))
    )
    log, catalog = Log(changes), Catalog(Engine)
    recover(log, catalog)
    assert list(encode(capture(catalog))) == list(encode(capture(one_by_one(log))))


def test_the_size_of_a_replay_batch_is_limited():
    args = [f"n{i}" for i in range(MAX_ROWS // 2)]
    rows = FactRows("p", 1, args)
    changes = [(n, ChangeSet("default", f"t{n % 2}", (AssertRows((rows,)),))) for n in range(5)]
    log, catalog = Log(changes), Catalog(Engine)
    recover(log, catalog)
    (one, two) = catalog.tenants()
    assert (one.generation, two.generation) == (3, 2)
    for tenant, times in ((one, 3), (two, 2)):
        (relation,) = (stored.relation for _, stored in tenant.stored())
        assert relation.counts().live == len(args)
        assert list(relation.attributes(5, array("I", [0, len(args) - 1]))) == [times] * 2


def test_an_empty_record_and_a_backward_clock_give_the_same_state():
    def told(name, **more):
        return ChangeSet("default", "t", (AssertFacts((Fact("p", (name,), **more),)),))

    log = Log(
        [
            (100, told("a", ttl=20)),
            (200, told("b")),
            (110, told("c")),
            (110, ChangeSet("default", "t", ())),
            (110, ChangeSet("default", "t", (AssertFacts(()),))),
            (110, told("d")),
        ]
    )
    catalog, other = Catalog(Engine), one_by_one(log)
    recover(log, catalog)
    assert (
        catalog.need_tenant("default", "t", 0).at(0)
        == other.need_tenant("default", "t", 0).at(0)
        == 200
    )
    assert state(catalog, 0) == state(other, 0)


def test_the_garbage_collector_state_is_restored():
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            recover(Log([]), Catalog(Engine))
            assert gc.isenabled() is enabled
        finally:
            gc.enable()
