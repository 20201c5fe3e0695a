"""Eviction of a list of facts that was decided while other requests read and write.

Just before the write, each fact on the list is checked again: a fact that was asserted again or
accessed since is taken off the list. In that case nothing is written and the shorter list is tried
again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbcore.state.changes import Change, Delta, EvictFacts, EvictReason, Outdated
from kbcore.state.facts import FactRows
from kbcore.state.partition import Partition, StoredRelation, located
from kbcore.state.tenant import Tenant

RECORD_BYTES = 48 << 20
"""Maximum JSON size of the arguments in one log record, in bytes.

A log record holds up to 64 MiB.
"""

Recheck = Callable[[Tenant, StoredRelation, "array[int]", "array[int]"], "Sequence[bool]"]
"""Function that returns for each row whether it must still be evicted.

The caller holds the read lock.
"""


@dataclass(frozen=True, slots=True)
class UpkeepTarget:
    """Tenant under upkeep: `commit` writes changes unless their check raises.

    `find` returns the tenant with expiry applied up to now.
    """

    commit: Callable[[tuple[Change, ...], Callable[[], None]], Delta]
    find: Callable[[], Tenant]


@dataclass(slots=True)
class Eviction:
    """Facts of one stored relation to evict: flat rows of symbols, and their number."""

    stored: StoredRelation
    rows: array[int]
    count: int


def total(evictions: Iterable[Eviction]) -> int:
    """Return the total number of facts."""
    return sum(part.count for part in evictions)


def expired(
    partitions: Iterable[Partition], limit: int | None = None, *, lapsed: bool = False
) -> list[Eviction]:
    """Return the expired facts, at most `limit`; with `lapsed` those whose `ttl` has passed.

    A value that ended stays for `asOf` until a decay. The caller holds the read lock and has
    applied expiry up to now.
    """
    result: list[Eviction] = []
    left = limit
    for partition in partitions:
        for stored in partition.relations():
            ended = stored.lapsed if lapsed else stored.expired
            if ended and left != 0:
                keys = list(ended)[:left]
                left = None if left is None else left - len(keys)
                result.append(
                    Eviction(
                        stored, array("I", [symbol for key in keys for symbol in key]), len(keys)
                    )
                )
    return result


def still_expired(
    tenant: Tenant, stored: StoredRelation, rows: array[int], ids: array[int]
) -> Sequence[bool]:
    """Return for each fact whether it has expired."""
    arity = stored.schema.arity
    return [tuple(rows[i * arity : (i + 1) * arity]) in stored.expired for i in range(len(ids))]


def evict(
    target: UpkeepTarget,
    tenant: Tenant,
    evictions: Sequence[Eviction],
    reason: EvictReason,
    recheck: Recheck,
) -> tuple[list[Eviction], int]:
    """Evict the facts of `tenant` for which `recheck` still agrees at the time of the write.

    Returns the evicted facts and the logged time (0 if there are none). A list too long for one log
    record is split into several; after a crash between two of them, part of the facts is evicted,
    which is a consistent state.
    """
    evicted: list[Eviction] = []
    at = 0
    for parts in _records(tenant, evictions):
        while parts:
            change = EvictFacts(tuple(_rows(tenant, part) for part in parts), reason)
            try:
                delta = target.commit((change,), _check(target, tenant, parts, recheck))
            except Outdated:
                parts = [part for part in parts if part.count]
                continue
            evicted.extend(parts)
            at = delta.at
            break
    return evicted, at


def _check(
    target: UpkeepTarget, tenant: Tenant, parts: list[Eviction], recheck: Recheck
) -> Callable[[], None]:
    def check() -> None:
        present = target.find()
        before = total(parts)
        with present.lock.read():
            for part in parts:
                _apply_recheck(present, part, recheck, present is tenant)
        if total(parts) != before:
            raise Outdated("some of these facts have changed")

    return check


def _apply_recheck(tenant: Tenant, part: Eviction, recheck: Recheck, same: bool) -> None:
    """Reduce a list to the facts that must still be evicted: none if the tenant or scope was
    dropped.
    """
    stored = part.stored
    if not same or stored.gone:
        part.rows, part.count = array("I"), 0
        return
    arity = stored.schema.arity
    rows, ids = located(stored.relation, part.rows, part.count)
    verdicts = recheck(tenant, stored, rows, ids)
    if not all(verdicts):
        remaining = [i for i, verdict in enumerate(verdicts) if verdict]
        rows = array(
            "I", [symbol for i in remaining for symbol in rows[i * arity : (i + 1) * arity]]
        )
        part.rows, part.count = rows, len(remaining)
    else:
        part.rows, part.count = rows, len(ids)


def _rows(tenant: Tenant, part: Eviction) -> FactRows:
    schema = part.stored.schema
    texts = tenant.engine.texts(part.rows)
    return FactRows(schema.predicate, schema.arity, texts, schema.positive, part.stored.scope)


def _records(tenant: Tenant, evictions: Sequence[Eviction]) -> Iterator[list[Eviction]]:
    """Yield the list in parts that each fit into a log record; nearly always one."""
    parts: list[Eviction] = []
    size = 0
    for part in evictions:
        arity = part.stored.schema.arity
        # A character takes at most six bytes (\u0000), an argument two quotes and a comma.
        sizes = [6 * len(text) + 3 for text in tenant.engine.texts(part.rows)]
        if size + sum(sizes) <= RECORD_BYTES:
            parts.append(part)
            size += sum(sizes)
            continue
        start = 0
        for index in range(part.count):
            row = sum(sizes[index * arity : (index + 1) * arity])
            if size and size + row > RECORD_BYTES:
                if index > start:
                    parts.append(
                        Eviction(
                            part.stored, part.rows[start * arity : index * arity], index - start
                        )
                    )
                yield parts
                parts, size, start = [], 0, index
            size += row
        parts.append(Eviction(part.stored, part.rows[start * arity :], part.count - start))
    if parts:
        yield parts
