"""Stored facts that match a pattern, in answer order, without rules: whole, or page by page.

Sorting a large relation takes much longer than reading one page of it, so the order of what a page
is cut from is cached until the relation changes.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain, compress
from operator import or_
from threading import Lock
from typing import NamedTuple
from weakref import ref

from kbcore.reason.as_of import valid_rows
from kbcore.reason.budget import Budget, Notes
from kbcore.reason.goal_spans import describe_stored
from kbcore.reason.options import FactOptions
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Engine, RelationCounts
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.terms import Term

MIN_CACHED_ROWS = 500
"""Number of rows from which an order is cached; fewer are sorted in less than a millisecond."""

MAX_CACHED_SYMBOLS = 1 << 22
"""Symbols, of 4 bytes each, in the cached orders of one tenant; a larger order is not cached."""

MAX_CACHED_ORDERS = 64


class StoredPattern(NamedTuple):
    """Pattern over the stored facts of a predicate: variables match anything.

    `positive` selects one sign; None selects both.
    """

    predicate: str
    args: Sequence[Term]
    positive: bool | None = None


def matching(
    tenant: Tenant,
    partition: Partition,
    pattern: StoredPattern,
    as_of: int | None,
    budget: Budget,
) -> Iterator[tuple[StoredRelation, array[int], array[int]]]:
    """Yield for each requested sign the stored relation, the rows that match now or at `as_of`, and
    their ids.
    """
    symbols = goal_pattern(pattern.args, tenant.find)
    if symbols is None:
        return
    for stored in partition.named(pattern.predicate, len(pattern.args), pattern.positive):
        if as_of is None:
            rows, ids = stored.relation.match(symbols, yield_now=budget.yield_now)
        else:
            rows, ids = valid_rows(stored, symbols, as_of, budget)
        yield stored, rows, ids


class OrderedFacts(NamedTuple):
    """Facts of one relation in answer order, as flat rows of symbols."""

    symbols: array[int]
    row_count: int


class _OrderKey(NamedTuple):
    """A relation, a pattern of symbols and the case-folded text that a fact contains."""

    stored: ref[StoredRelation]
    pattern: tuple[int, ...]
    contains: str


class FactOrders:
    """Cache of sorted facts of one tenant, least recently used first.

    An entry is valid while the engine's counts of its relation stay the same: an insertion raises
    the number of rows or of visible rows, and a deletion or hiding raises the epoch.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[_OrderKey, tuple[RelationCounts, OrderedFacts]] = OrderedDict()
        self._symbols = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _OrderKey, counts: RelationCounts) -> OrderedFacts | None:
        """Return the facts cached under a key, None if there are none or the relation changed."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry[0] != counts:
                return None
            self._entries.move_to_end(key)
            return entry[1]

    def put(self, key: _OrderKey, counts: RelationCounts, facts: OrderedFacts) -> None:
        """Cache facts, unless they are too many; entries of dropped relations are removed."""
        size = len(facts.symbols)
        if size > MAX_CACHED_SYMBOLS:
            return
        with self._lock:
            for known in list(self._entries):
                stored = known.stored()
                if known == key or stored is None or stored.gone:
                    self._remove(known)
            self._entries[key] = counts, facts
            self._symbols += size
            while len(self._entries) > MAX_CACHED_ORDERS or self._symbols > MAX_CACHED_SYMBOLS:
                self._remove(next(iter(self._entries)))

    def clear(self) -> None:
        """Remove every entry."""
        with self._lock:
            self._entries.clear()
            self._symbols = 0

    def _remove(self, key: _OrderKey) -> None:
        _, facts = self._entries.pop(key)
        self._symbols -= len(facts.symbols)


class FactSearch(NamedTuple):
    """A search for stored facts of a tenant; `orders` caches the sorted ones."""

    tenant: Tenant
    pattern: StoredPattern
    options: FactOptions
    orders: FactOrders

    def pages(
        self, partitions: Sequence[Partition], budget: Budget, notes: Notes | None = None
    ) -> Iterator[tuple[Partition, StoredRelation, OrderedFacts]]:
        """Yield the facts within the offset and limit, partition by partition, positive ones first.

        `notes.total` becomes the number of all facts that match. Without a limit, raises
        BudgetExceeded if more facts than allowed would be returned.
        """
        symbols = goal_pattern(self.pattern.args, self.tenant.find)
        predicate, arity = self.pattern.predicate, len(self.pattern.args)
        offset, limit = self.options.offset, self.options.limit
        total = returned = 0
        if budget.span is not None:
            describe_stored(budget.span, predicate, self.pattern.args, 0)
        for partition in partitions:
            if symbols is None:
                break
            for stored in partition.named(predicate, arity, self.pattern.positive):
                facts = self._ordered(stored, symbols, total, budget)
                # The page is the part from `offset` on of all facts, of which `total` came before.
                start = min(max(offset - total, 0), facts.row_count)
                stop = facts.row_count
                if limit is not None:
                    stop = min(max(offset + limit - total, start), facts.row_count)
                total += facts.row_count
                page = facts.symbols
                if stop - start < facts.row_count:
                    page = page[start * arity : stop * arity]
                if budget.span is not None:
                    returned += stop - start
                    describe_stored(budget.span, predicate, self.pattern.args, returned)
                yield partition, stored, OrderedFacts(page, stop - start)
                if notes is None and limit is not None and total >= offset + limit:
                    return
        if notes is not None:
            notes.total = total

    def _ordered(
        self, stored: StoredRelation, symbols: list[int], before: int, budget: Budget
    ) -> OrderedFacts:
        """Return the facts of a relation in answer order; `before` facts come before them."""
        options = self.options
        if options.as_of is not None:
            rows, ids = valid_rows(stored, symbols, options.as_of, budget)
            facts = self._filtered(OrderedFacts(rows, len(ids)), stored, budget)
            return self._sorted(facts, stored, before, budget)
        counts = stored.relation.counts()
        key = _OrderKey(ref(stored), tuple(symbols), options.folded)
        cached = self.orders.get(key, counts)
        if cached is not None:
            self._check(cached, before, budget)
            return cached
        plain_key = key._replace(contains="")
        whole = self.orders.get(plain_key, counts) if options.folded else None
        if whole is not None:
            facts = self._filtered(whole, stored, budget)
            self._check(facts, before, budget)
        else:
            rows, ids = stored.relation.match(symbols, yield_now=budget.yield_now)
            facts = OrderedFacts(rows, len(ids))
            if not options.is_page:
                return self._sorted(self._filtered(facts, stored, budget), stored, before, budget)
            # The next text of a search field filters the same facts again, so all are sorted.
            whole = self._sorted(facts, stored, before, budget)
            if whole.row_count >= MIN_CACHED_ROWS:
                self.orders.put(plain_key, counts, whole)
            facts = self._filtered(whole, stored, budget)
        if options.is_page and options.folded and whole.row_count >= MIN_CACHED_ROWS:
            self.orders.put(key, counts, facts)
        return facts

    def _filtered(
        self, facts: OrderedFacts, stored: StoredRelation, budget: Budget
    ) -> OrderedFacts:
        """Return the facts of which an argument contains the text of the options, in their
        order.
        """
        if not self.options.folded:
            return facts
        return containing(
            self.tenant.engine, facts, stored.schema.arity, self.options.folded, budget
        )

    def _sorted(
        self, facts: OrderedFacts, stored: StoredRelation, before: int, budget: Budget
    ) -> OrderedFacts:
        self._check(facts, before, budget)
        arity, engine = stored.schema.arity, self.tenant.engine
        return OrderedFacts(engine.sort(facts.symbols, arity, budget.offload), facts.row_count)

    def _check(self, facts: OrderedFacts, before: int, budget: Budget) -> None:
        if self.options.limit is None:
            budget.check_answers(max(before + facts.row_count - self.options.offset, 0))


def containing(
    engine: Engine, facts: OrderedFacts, arity: int, folded: str, budget: Budget
) -> OrderedFacts:
    """Return the facts with an argument that contains a case-folded text, in their order.

    Each distinct argument is compared once.
    """
    names = array("I", set(facts.symbols))
    matches: set[int] = set()
    for part in budget.slices(len(names)):
        symbols = names[part.start : part.stop]
        texts = engine.texts_once(symbols)
        matches.update(
            symbol for symbol, text in zip(symbols, texts, strict=True) if folded in text.casefold()
        )
    result = array("I")
    if not matches or not arity:
        return OrderedFacts(result, 0)
    for part in budget.slices(facts.row_count):
        cells = facts.symbols[part.start * arity : part.stop * arity]
        marks = list(map(matches.__contains__, cells))
        selected = reduce(
            lambda row_marks, column: list(map(or_, row_marks, marks[column::arity])),
            range(1, arity),
            marks[::arity],
        )
        rows = zip(*[iter(cells)] * arity, strict=True)
        result.extend(chain.from_iterable(compress(rows, selected)))
    return OrderedFacts(result, len(result) // arity)
