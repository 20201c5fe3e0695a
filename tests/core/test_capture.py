"""Snapshots are consistent while writes continue."""

from __future__ import annotations

import gc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbcore.durable.capture import capture
from kbcore.durable.snapshot import FIRST_ROWS, Restorer, encode, paced
from kbcore.errors import BudgetExceeded, EngineFault, SnapshotFailed
from kbcore.state.apply import apply
from kbcore.state.catalog import Catalog
from kbcore.state.changes import (
    AssertFacts,
    AssertRules,
    CatalogAction,
    ChangeCatalog,
    ChangeSet,
    DropScope,
    EvictFacts,
    EvictReason,
    ForkScope,
    RetractFact,
    RetractPattern,
    SetPriority,
)
from kbcore.state.facts import Fact, FactRows
from kbcore.state.rulebook import stored_rule
from kbplanner.engine.engine import Engine
from kbplanner.ir.terms import Variable
from kbplanner.syntax.parser import parse_rule

MANY = 3 * FIRST_ROWS
"""Facts of a relation that takes several chunks."""


def write(catalog, tenant, *changes, at=1000, seq=1):
    """As recovery and commits do."""
    made = ChangeSet("default", tenant, changes)
    placed = catalog.place(made, at, seq)
    if placed is not None:
        with placed.lock.write():
            apply(placed, made, at, seq)


def facts(number, scope=None, count=MANY):
    """Facts with and without metadata, confidence and windows; told again with another number they
    carry something else.
    """
    return AssertFacts(
        tuple(
            Fact(
                f"p{i % 2}",
                (f"a{i}", f"b{number % 2 + i}"),
                scope=scope,
                confidence=(number % 10) / 10 if i % 3 == 0 else None,
                valid_until=5000 + number if i % 5 == 0 else None,
                metadata={"number": number, "i": i} if i % 4 == 0 else {},
            )
            for i in range(count)
        )
    )


def changed(what, number):
    """A change of some kind."""
    if what == "facts":
        return facts(number)
    if what == "scoped":
        return facts(number, "s", 10)
    if what == "retract":
        return RetractFact("p0", (f"a{number * 4 % MANY}", f"b{number * 4 % MANY}"), True, None)
    if what == "pattern":
        return RetractPattern("p0", (Variable("X"), Variable("Y")), True, None)
    if what == "rule":
        return AssertRules((stored_rule(parse_rule(f"q{number}(X) :- p0(X, Y).")),))
    if what == "fork":
        return ForkScope(None, "s", True)
    if what == "drop":
        return DropScope("s")
    if what == "evict":
        return EvictFacts((FactRows("p1", 2, ["a1", "b1", "a3", "b3"]),), EvictReason.EXPIRED)
    return SetPriority("p0", ("a0", "b0"), 0.9, True, None)


KINDS = [
    "facts",
    "scoped",
    "retract",
    "pattern",
    "rule",
    "fork",
    "drop",
    "evict",
    "priority",
    "nuke",
    "time",
    "new",
    "step",
]


@pytest.mark.parametrize("engine", [Engine, ReferenceEngine])
@examples(40)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(["a", "b"]), st.integers(0, 20)),
        max_size=15,
    )
)
def test_a_snapshot_is_consistent_under_concurrent_writes(engine, steps):
    catalog = Catalog(engine)
    for tenant in "ab":
        write(catalog, tenant, facts(1), facts(3, "s", 10), changed("rule", 0))
    expected = list(encode(capture(catalog)))
    found, chunks = [], encode(capture(catalog))
    for seq, (what, tenant, number) in enumerate(steps, 2):
        if what == "step":
            found += [chunk for _, chunk in zip(range(number % 4), chunks, strict=False)]
        elif what == "nuke":
            write(catalog, tenant, ChangeCatalog(CatalogAction.NUKE_TENANT), at=1000 + seq, seq=seq)
        elif what == "time":
            known = catalog.need_tenant("default", tenant, 0)
            with known.lock.write():
                known.advance(5000 + number)
        elif what == "new":
            write(catalog, f"new{number}", facts(number), seq=seq)
        elif what not in ("drop", "fork") or catalog.need_tenant("default", tenant, 0).partition(
            "s"
        ):
            write(catalog, tenant, changed(what, number), at=1000 + seq, seq=seq)
    found += chunks
    assert found == expected
    catalog.close()


def test_a_restored_state_gives_the_same_snapshot():
    catalog, other = Catalog(Engine), Catalog(Engine)
    write(catalog, "a", facts(1), facts(2, "s"), changed("rule", 0))
    chunks = list(encode(capture(catalog)))
    restorer = Restorer(other)
    for chunk in chunks:
        restorer.feed(chunk)
    assert list(encode(capture(other))) == chunks


def test_nothing_is_captured_without_a_snapshot():
    catalog = Catalog(Engine)
    write(catalog, "a", facts(1))
    tenant = catalog.need_tenant("default", "a", 0)
    write(catalog, "a", facts(2))
    list(encode(capture(catalog)))
    held = tenant.engine.bytes
    never = paced(capture(catalog), lambda: None)
    del never
    begun = encode(capture(catalog))
    for _ in range(3):
        next(begun)
    assert tenant.engine.bytes > held
    del begun
    gc.collect()
    assert tenant.lock.before == []
    assert tenant.engine.bytes == held


def test_running_out_of_memory_fails_the_snapshot_and_not_the_write():
    catalog = Catalog(Engine)
    write(catalog, "a", facts(1))
    tenant = catalog.need_tenant("default", "a", 0)
    chunks = encode(capture(catalog))
    next(chunks)
    tenant.engine.fail_after(1)
    with tenant.lock.write():
        pass  # what a writer would have done first has failed
    tenant.engine.fail_after(0)
    write(catalog, "a", facts(2))
    with pytest.raises(BudgetExceeded):
        list(chunks)
    assert tenant.failed is None
    assert len(list(encode(capture(catalog)))) > 2


def test_an_abandoned_capture_is_released(monkeypatch):
    catalog = Catalog(Engine)
    write(catalog, "a", facts(1))
    tenant = catalog.need_tenant("default", "a", 0)
    list(encode(capture(catalog)))
    held = tenant.engine.bytes
    (one,) = capture(catalog).tenants
    settle = tenant.accesses.settle
    monkeypatch.setattr(tenant.accesses, "settle", lambda: (one.drop(), settle()))
    with tenant.lock.write():
        pass
    assert tenant.lock.before == []
    assert tenant.engine.bytes == held
    with pytest.raises(SnapshotFailed):
        one.state()


def test_an_interrupted_writer_fails_the_snapshot_and_keeps_nothing(monkeypatch):
    catalog = Catalog(Engine)
    write(catalog, "a", facts(1))
    tenant = catalog.need_tenant("default", "a", 0)
    chunks = encode(capture(catalog))

    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tenant.accesses, "settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(catalog, "a", facts(2))
    write(catalog, "a", facts(2))
    with pytest.raises(SnapshotFailed):
        list(chunks)
    assert tenant.lock.before == []


def test_a_tenant_that_lacks_a_durable_change_is_in_no_snapshot():
    """The log must stay: it alone has the change."""
    catalog = Catalog(Engine)
    write(catalog, "a", facts(1))
    write(catalog, "b", facts(1))
    catalog.need_tenant("default", "b", 0).failed = EngineFault(
        "a durable change could not be applied"
    )
    with pytest.raises(SnapshotFailed, match="default/b"):
        capture(catalog)
    assert catalog.need_tenant("default", "a", 0).lock.before == []


def test_large_facts_make_small_chunks():
    catalog = Catalog(Engine)
    note = "x" * 20_000
    write(
        catalog,
        "a",
        AssertFacts(tuple(Fact("p", (str(i),), metadata={"note": note}) for i in range(400))),
    )
    sizes = [len(chunk) for chunk in encode(capture(catalog))]
    assert max(sizes[3:]) < 400_000
    assert array("Q", sizes[-1:])[0] > 20_000


def test_other_work_runs_between_and_within_chunks():
    catalog = Catalog(Engine)
    rules = tuple(parse_rule(f"q{i}(X) :- p(X, Y).") for i in range(300))
    write(
        catalog,
        "a",
        AssertRules(tuple(map(stored_rule, rules))),
        AssertFacts(tuple(Fact("p", (str(i), "x")) for i in range(40_000))),
    )
    turns = []
    chunks = list(paced(capture(catalog), lambda: turns.append(None)))
    assert len(chunks) > 40
    assert len(turns) >= len(b"".join(chunks)) // 100_000 + 300 // 64 + 40_000 // 16_384
