"""Evictions: decided while others read and write, and exactly what was decided is removed.

What is decided is a list of facts. Just before it is written each of them is looked at again: one that was told again, or
used, is no longer to go. Then nothing is written and the rest is tried once more; the list only gets shorter.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbcore.errors import Conflict
from kbcore.state.changes import ChangeSet, Delta, EvictFacts, EvictReason
from kbcore.state.facts import FactRows
from kbcore.state.partition import Partition, StoredRelation, located
from kbcore.state.tenant import Tenant

RECORD_BYTES = 48 << 20
"""Bytes of arguments, as JSON at most, that one log record takes; a log takes records of up to 64 MiB."""

Judge = Callable[[Tenant, StoredRelation, "array[int]", "array[int]"], "Sequence[bool]"]
"""Which of some rows, given with their ids, are still to go; the caller holds the read lock."""


class _Moved(Conflict):
    """Some of what was to go is not to go any more."""


@dataclass(slots=True)
class Doomed:
    """Facts of one stored relation that are to go: their symbols, row after row, and how many."""

    stored: StoredRelation
    rows: array[int]
    count: int


def total(doomed: Iterable[Doomed]) -> int:
    """How many facts these are."""
    return sum(one.count for one in doomed)


def expired(partitions: Iterable[Partition], most: int | None = None) -> list[Doomed]:
    """The facts whose time is over, or the first `most` of them; the caller holds the read lock, at the present."""
    found: list[Doomed] = []
    left = most
    for partition in partitions:
        for stored in partition.relations():
            if stored.expired and left != 0:
                keys = list(stored.expired)[:left]
                left = None if left is None else left - len(keys)
                found.append(Doomed(stored, array("I", [symbol for key in keys for symbol in key]), len(keys)))
    return found


def still_expired(tenant: Tenant, stored: StoredRelation, rows: array[int], ids: array[int]) -> Sequence[bool]:
    """Which of some facts have expired."""
    arity = stored.schema.arity
    return [tuple(rows[i * arity : (i + 1) * arity]) in stored.expired for i in range(len(ids))]


def evict(
    commit: Callable[[ChangeSet], Delta],
    find: Callable[[], Tenant],
    tenant: Tenant,
    doomed: Sequence[Doomed],
    reason: EvictReason,
    judge: Judge,
) -> tuple[list[Doomed], int]:
    """Remove facts of `tenant` that are still to go when they are written; those that went, and when (0: none did).

    `find` gives the tenant as it is at that moment, brought to now. A list too long for one log record is split: each record
    is whole by itself, and after a crash between two of them a part has gone, which is as true as all of it.
    """
    gone: list[Doomed] = []
    at = 0
    for parts in _records(tenant, doomed):
        while parts:
            change = EvictFacts(tuple(_rows(tenant, part) for part in parts), reason)
            checked = _check(find, tenant, parts, judge)
            try:
                delta = commit(ChangeSet(tenant.database, tenant.name, (change,), checked))
            except _Moved:
                parts = [part for part in parts if part.count]
                continue
            gone.extend(parts)
            at = delta.at
            break
    return gone, at


def _check(find: Callable[[], Tenant], tenant: Tenant, parts: list[Doomed], judge: Judge) -> Callable[[], None]:
    def check() -> None:
        present = find()
        before = total(parts)
        with present.lock.read():
            for part in parts:
                _keep(present, part, judge, present is tenant)
        if total(parts) != before:
            raise _Moved("some of these facts have changed")

    return check


def _keep(tenant: Tenant, part: Doomed, judge: Judge, same: bool) -> None:
    """Leave of a list what is still to go: nothing where its tenant or scope was let go of."""
    stored = part.stored
    if not same or stored.gone:
        part.rows, part.count = array("I"), 0
        return
    arity = stored.schema.arity
    rows, ids = located(stored.relation, part.rows, part.count)
    verdicts = judge(tenant, stored, rows, ids)
    if not all(verdicts):
        kept = [i for i, verdict in enumerate(verdicts) if verdict]
        rows = array("I", [symbol for i in kept for symbol in rows[i * arity : (i + 1) * arity]])
        part.rows, part.count = rows, len(kept)
    else:
        part.rows, part.count = rows, len(ids)


def _rows(tenant: Tenant, part: Doomed) -> FactRows:
    schema = part.stored.schema
    texts = tenant.engine.texts(part.rows)
    return FactRows(schema.predicate, schema.arity, texts, schema.positive, part.stored.scope)


def _records(tenant: Tenant, doomed: Sequence[Doomed]) -> Iterator[list[Doomed]]:
    """The list in parts that fit into a log record each; nearly always one."""
    parts: list[Doomed] = []
    size = 0
    for one in doomed:
        arity = one.stored.schema.arity
        # A character takes at most six bytes (\u0000), an argument two quotes and a comma.
        sizes = [6 * len(text) + 3 for text in tenant.engine.texts(one.rows)]
        if size + sum(sizes) <= RECORD_BYTES:
            parts.append(one)
            size += sum(sizes)
            continue
        start = 0
        for place in range(one.count):
            row = sum(sizes[place * arity : (place + 1) * arity])
            if size and size + row > RECORD_BYTES:
                if place > start:
                    parts.append(Doomed(one.stored, one.rows[start * arity : place * arity], place - start))
                yield parts
                parts, size, start = [], 0, place
            size += row
        parts.append(Doomed(one.stored, one.rows[start * arity :], one.count - start))
    if parts:
        yield parts
