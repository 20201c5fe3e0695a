"""Overview of a knowledge base: counts, predicates, expiring facts, contradictions, salient facts.

The engine counts the facts. Python reads only facts with their own validity, and the text of each
distinct argument once.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kbcore.context.proofs.violations import Violation
from kbcore.reason.budget import Budget
from kbcore.state.overlay import Overlay
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW, Attribute
from kbplanner.syntax.printer import print_constant, print_row
from kbtypes.windows import Entry

SOON_MS = 3_600_000
"""Facts that expire within this time count as expiring soon."""

TOP_PREDICATES = 10
TOP_FACTS = 5


@dataclass(frozen=True, slots=True)
class ScopeSummary:
    """The current stored facts of a partition.

    `predicates` are the most frequent names with their facts, of both signs and every arity;
    `salient` the most salient facts, best first; `chars` the characters of all facts in the rule
    language; `contradictions` the number of atoms stored with both signs; `violations` the
    violations of declared constraints; `generated_at` the time in epoch milliseconds.
    """

    facts: int
    predicate_count: int
    predicates: tuple[tuple[str, int], ...]
    with_ttl: int
    expiring: int
    contradictions: int
    violations: tuple[Violation, ...]
    salient: tuple[Entry, ...]
    chars: int
    generation: int
    generated_at: int


def summarize(
    tenant: Tenant,
    partitions: Sequence[Partition],
    salient: Sequence[Entry],
    violations: Sequence[Violation],
    now: int,
    budget: Budget,
) -> ScopeSummary:
    """Summarize some partitions of a tenant.

    `salient` are their most salient facts, `violations` those of their constraints.

    This does not count as an access. `now` is in epoch milliseconds. The caller holds the read
    lock. Raises BudgetExceeded.
    """
    at = tenant.at(now)
    counts: Counter[str] = Counter()
    ttl = expiring = clashes = chars = 0
    lengths = Lengths.of(tenant)
    for partition in partitions:
        for stored in partition.relations():
            visible = stored.relation.counts().visible
            if not visible:
                continue
            budget.yield_now()
            counts[stored.schema.predicate] += visible
            lived, going = _passing(stored, at, budget)
            ttl, expiring = ttl + lived, expiring + going
            chars += _chars(tenant, stored, lengths, budget)
            if stored.schema.positive:
                clashes += _clashes(partition, stored, at, budget)
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP_PREDICATES]
    return ScopeSummary(
        sum(counts.values()),
        len(counts),
        tuple(most),
        ttl,
        expiring,
        clashes,
        tuple(violations),
        tuple(salient),
        chars,
        tenant.generation,
        now,
    )


def _passing(stored: StoredRelation, now: int, budget: Budget) -> tuple[int, int]:
    """Return the number of currently valid facts with a ttl, and of those that expire soon."""
    ttl = soon = 0
    for part in budget.slices(len(keys := list(stored.limited))):
        ids = _located(stored, keys[part.start : part.stop])
        lives = stored.relation.attributes(Attribute.TTL, ids)
        for (start, end), life in zip(stored.windows(ids), lives, strict=True):
            if start <= now < end:
                ttl += bool(life)
                soon += end - now <= SOON_MS
    return ttl, soon


def _located(stored: StoredRelation, keys: Sequence[tuple[int, ...]]) -> array[int]:
    return stored.relation.locate(array("I", [symbol for key in keys for symbol in key]), len(keys))


def _clashes(partition: Partition, stored: StoredRelation, now: int, budget: Budget) -> int:
    """Return the number of atoms valid now with both signs.

    Rows of the smaller relation are looked up in the larger one.
    """
    opposite = partition.get(stored.schema.opposite)
    if opposite is None or not opposite.relation.counts().visible:
        return 0
    few, many = sorted((stored, opposite), key=lambda relation: relation.relation.counts().visible)
    count = 0
    for rows, ids in few.relation.pieces([0] * few.schema.arity):
        budget.yield_now()
        row_ids = many.relation.locate(rows, len(ids))
        count += len(row_ids) - row_ids.count(NO_ROW)
        if many.limited:  # a row that is not valid now is located too
            there = array("I", [row_id for row_id in row_ids if row_id != NO_ROW])
            count -= sum(not start <= now < end for start, end in many.windows(there))
    return count


class Lengths:
    """Lengths in characters of a tenant's symbols in the rule language, each computed once.

    Symbols never change.
    """

    def __init__(self) -> None:
        self._known = array("I")
        self._mutex = threading.Lock()

    @classmethod
    def of(cls, tenant: Tenant) -> Lengths:
        """Return the lengths of a tenant; a transaction uses those of its underlying tenant."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        return home.attached.need(cls, cls)

    def close(self) -> None:
        """Remove all lengths."""
        self._known = array("I")

    def total(self, tenant: Tenant, rows: array[int], budget: Budget) -> int:
        """Return the total number of characters of some symbols."""
        known = self._room(max(rows, default=0))
        lengths = list(map(known.__getitem__, rows))
        if 0 in lengths:
            new = array(
                "I", {symbol for symbol, length in zip(rows, lengths, strict=True) if not length}
            )
            for part in budget.slices(len(new)):
                chunk = new[part.start : part.stop]
                for symbol, text in zip(chunk, tenant.engine.texts(chunk), strict=True):
                    known[symbol] = len(print_constant(text))
            lengths = list(map(known.__getitem__, rows))
        return sum(lengths)

    def _room(self, symbol: int) -> array[int]:
        """Return the lengths, extended to include a symbol; 0 means not computed yet.

        Every constant has at least one character.
        """
        with self._mutex:
            if symbol >= len(self._known):
                self._known = self._known + array(
                    "I", bytes(4 * (symbol + 1 + symbol // 8 - len(self._known)))
                )
            return self._known


def _chars(tenant: Tenant, stored: StoredRelation, lengths: Lengths, budget: Budget) -> int:
    """Return the characters of the facts that are valid now, in the rule language."""
    arity = stored.schema.arity
    frame = (
        len(print_row(stored.schema.predicate, ["x"] * arity, not stored.schema.positive)) - arity
    )
    total = 0
    for rows, ids in stored.relation.pieces([0] * arity):
        budget.yield_now()
        total += frame * len(ids) + lengths.total(tenant, rows, budget)
    return total
