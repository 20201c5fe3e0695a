"""A knowledge base at a glance: how much it holds, of what, what goes soon, what contradicts itself, what matters most.

Counting is the engine's; of single facts Python looks only at those with a validity of their own, and at the text of each
distinct argument once.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from kbcore.context.window import Entry
from kbcore.reason.budget import Budget
from kbcore.state.overlay import Overlay
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW, Attribute
from kbplanner.syntax.printer import print_constant, print_row

SOON_MS = 3_600_000
"""Facts that expire within this time count as expiring soon."""

TOP_PREDICATES = 10
TOP_FACTS = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """What a partition holds now; stored facts only.

    `predicates` are the most frequent names with their facts, of both signs and every arity; `salient` the facts that matter
    most, best first; `chars` the characters of all facts in the language; `contradictions` the atoms stored with both signs;
    `generated_at` in epoch milliseconds.
    """

    facts: int
    predicate_count: int
    predicates: tuple[tuple[str, int], ...]
    with_ttl: int
    expiring: int
    contradictions: int
    salient: tuple[Entry, ...]
    chars: int
    generation: int
    generated_at: int


def summarize(
    tenant: Tenant,
    partitions: Sequence[Partition],
    salient: Sequence[Entry],
    now: int,
    budget: Budget,
) -> Summary:
    """Look over some partitions of a tenant, of which `salient` are the facts that matter most; looking is no access.

    The caller holds the read lock. `now` in epoch milliseconds. Raises BudgetExceeded.
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
            budget.rest()
            counts[stored.schema.predicate] += visible
            lived, going = _passing(stored, at, budget)
            ttl, expiring = ttl + lived, expiring + going
            chars += _chars(tenant, stored, lengths, budget)
            if stored.schema.positive:
                clashes += _clashes(partition, stored, at, budget)
    most = sorted(counts.items(), key=lambda found: (-found[1], found[0]))[:TOP_PREDICATES]
    return Summary(
        sum(counts.values()),
        len(counts),
        tuple(most),
        ttl,
        expiring,
        clashes,
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
    """Atoms that hold now with both signs: rows of the smaller relation looked up in the other."""
    opposite = partition.get(stored.schema.opposite)
    if opposite is None or not opposite.relation.counts().visible:
        return 0
    few, many = sorted((stored, opposite), key=lambda one: one.relation.counts().visible)
    found = 0
    for rows, ids in few.relation.pieces([0] * few.schema.arity):
        budget.rest()
        places = many.relation.locate(rows, len(ids))
        found += len(places) - places.count(NO_ROW)
        if many.limited:  # a row that is not valid now is located too
            there = array("I", [place for place in places if place != NO_ROW])
            found -= sum(not start <= now < end for start, end in many.windows(there))
    return found


class Lengths:
    """Characters of each symbol of a tenant as an author writes it, worked out once: symbols never change."""

    def __init__(self) -> None:
        self._known = array("I")
        self._mutex = threading.Lock()

    @classmethod
    def of(cls, tenant: Tenant) -> Lengths:
        """Those of a tenant, none at first; a transaction has those of the tenant below."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        return cast(Lengths, home.attached.setdefault("lengths", cls()))

    def close(self) -> None:
        """Forget all of them."""
        self._known = array("I")

    def total(self, tenant: Tenant, rows: array[int], budget: Budget) -> int:
        """The characters of some symbols together."""
        known = self._room(max(rows, default=0))
        lengths = list(map(known.__getitem__, rows))
        if 0 in lengths:
            new = array(
                "I", {symbol for symbol, length in zip(rows, lengths, strict=True) if not length}
            )
            for part in budget.slices(len(new)):
                some = new[part.start : part.stop]
                for symbol, text in zip(some, tenant.engine.texts(some), strict=True):
                    known[symbol] = len(print_constant(text))
            lengths = list(map(known.__getitem__, rows))
        return sum(lengths)

    def _room(self, symbol: int) -> array[int]:
        """The lengths, with a place for a symbol; 0 where it is not known, for a constant has a character at least."""
        with self._mutex:
            if symbol >= len(self._known):
                self._known = self._known + array(
                    "I", bytes(4 * (symbol + 1 + symbol // 8 - len(self._known)))
                )
            return self._known


def _chars(tenant: Tenant, stored: StoredRelation, lengths: Lengths, budget: Budget) -> int:
    """Characters of the facts that hold now, in the language."""
    arity = stored.schema.arity
    frame = (
        len(print_row(stored.schema.predicate, ["x"] * arity, not stored.schema.positive)) - arity
    )
    total = 0
    for rows, ids in stored.relation.pieces([0] * arity):
        budget.rest()
        total += frame * len(ids) + lengths.total(tenant, rows, budget)
    return total
