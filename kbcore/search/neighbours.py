"""The stored facts around a constant: a page of them, and how many there are of each predicate.

Each predicate and position is one lookup in the index of that column, so the time depends on the
facts that contain the constant and on the number of predicates, not on the number of all facts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbcore.errors import InvalidInput
from kbcore.reason.as_of import valid_rows
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.state.facts import Row
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant

DEFAULT_NEIGHBOURS = 100
MAX_NEIGHBOURS = 1000
"""Facts of one page at most."""

BOTH, OUT, IN = "both", "out", "in"
DIRECTIONS = (BOTH, OUT, IN)
"""OUT: the constant is the first argument of the fact; IN: a later one."""


@dataclass(frozen=True, slots=True)
class NeighbourOptions:
    """Options of a search for the facts around a constant.

    `predicates` selects predicates by name, of any arity; None selects all. `scope`, `limit`,
    `offset`, `as_of` and `request_limits` are as in `FactOptions`, but the limit is at most
    MAX_NEIGHBOURS. Raises InvalidInput for a limit, offset or direction out of range.
    """

    scope: str | None = None
    predicates: tuple[str, ...] | None = None
    direction: str = BOTH
    limit: int = DEFAULT_NEIGHBOURS
    offset: int = 0
    as_of: int | None = None
    request_limits: RequestLimits | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_NEIGHBOURS:
            raise InvalidInput.at("limit", f"must be from 1 to {MAX_NEIGHBOURS} facts")
        if self.offset < 0:
            raise InvalidInput.at("offset", "must be a whole number from 0 on")
        if self.direction not in DIRECTIONS:
            raise InvalidInput.at("direction", f"must be one of {', '.join(DIRECTIONS)}")


@dataclass(frozen=True, slots=True)
class AroundCount:
    """The number of facts of a predicate that contain the constant, of both signs."""

    predicate: str
    arity: int
    fact_count: int


@dataclass(frozen=True, slots=True)
class FactsAround:
    """A page of the facts around a constant, and the counts of all of them by predicate."""

    constant: str
    facts: list[Row]
    predicates: list[AroundCount]

    @property
    def total_facts(self) -> int:
        """The number of all facts, of which `facts` is a page."""
        return sum(each.fact_count for each in self.predicates)


@dataclass(frozen=True, slots=True)
class _PredicateGroup:
    """The facts of one relation with the constant in one position and in none of `earlier`."""

    stored: StoredRelation
    pattern: list[int]
    earlier: Sequence[int]
    repeated: int
    count: int


class NeighbourSearch:
    """A search for the facts around a constant; the caller holds the tenant's read lock."""

    def __init__(self, tenant: Tenant, options: NeighbourOptions, budget: Budget) -> None:
        self._tenant = tenant
        self._options = options
        self._budget = budget

    def find(self, partitions: Iterable[Partition], constant: str) -> FactsAround:
        """Return the page of the options and the counts. Raises BudgetExceeded.

        The facts of all predicates and positions are taken in turn, first the first of each, then
        the second, so that a page shows every predicate before it shows many facts of one.
        """
        groups = self._groups(partitions, constant)
        counts: dict[tuple[str, int], int] = {}
        for group in groups:
            schema = group.stored.schema
            key = schema.predicate, schema.arity
            counts[key] = counts.get(key, 0) + group.count
        sizes = [group.count for group in groups]
        starts = _taken(sizes, self._options.offset)
        stops = _taken(sizes, self._options.offset + self._options.limit)
        facts: list[Row] = []
        for group, start, stop in zip(groups, starts, stops, strict=True):
            if start < stop:
                rows, ids = self._read(group, start, stop)
                facts.extend(group.stored.rows(self._tenant.engine, rows, ids, self._options.as_of))
                self._budget.yield_now()
        predicates = [AroundCount(*key, count) for key, count in counts.items()]
        return FactsAround(constant, facts, predicates)

    def _groups(self, partitions: Iterable[Partition], constant: str) -> list[_PredicateGroup]:
        """Return the groups with facts, by predicate, arity, sign and position."""
        # The relations come first: a transaction records them as read even if there is no fact.
        relations = [each for partition in partitions for each in self._relations(partition)]
        symbol = self._tenant.find(constant)
        if not symbol:
            return []
        relations.sort(key=_order)
        return [
            group
            for stored in self._budget.paced(relations)
            for group in self._groups_of(stored, symbol)
        ]

    def _relations(self, partition: Partition) -> list[StoredRelation]:
        names = self._options.predicates
        if names is None:
            return partition.relations()
        return [stored for name in dict.fromkeys(names) for stored in partition.named(name)]

    def _groups_of(self, stored: StoredRelation, symbol: int) -> Iterator[_PredicateGroup]:
        arity = stored.schema.arity
        first = 1 if self._options.direction == IN else 0
        last = min(arity, 1) if self._options.direction == OUT else arity
        earlier: list[int] = []
        for position in range(first, last):
            pattern = [0] * arity
            pattern[position] = symbol
            count = self._count(stored, pattern)
            if count:
                repeated = self._repeated(stored, pattern, earlier, symbol)
                if count > repeated:
                    yield _PredicateGroup(
                        stored, pattern, tuple(earlier), repeated, count - repeated
                    )
                earlier.append(position)

    def _count(self, stored: StoredRelation, pattern: list[int]) -> int:
        if self._options.as_of is None:
            return stored.relation.total(pattern, None, self._budget.yield_now).matched
        return len(self._match(stored, pattern)[1])

    def _repeated(
        self, stored: StoredRelation, pattern: list[int], earlier: Sequence[int], symbol: int
    ) -> int:
        """Count the facts of a pattern that have the constant in an earlier position too."""
        ids: set[int] = set()
        for position in earlier:
            both = list(pattern)
            both[position] = symbol
            ids.update(self._match(stored, both)[1])
        return len(ids)

    def _match(
        self, stored: StoredRelation, pattern: list[int], limit: int = 0
    ) -> tuple[array[int], array[int]]:
        if self._options.as_of is not None:
            return valid_rows(stored, pattern, self._options.as_of, self._budget)
        return stored.relation.match(pattern, limit=limit, yield_now=self._budget.yield_now)

    def _read(self, group: _PredicateGroup, start: int, stop: int) -> tuple[array[int], array[int]]:
        """Return the rows of a group from `start` to `stop`, and their ids."""
        arity = group.stored.schema.arity
        rows, ids = self._match(group.stored, group.pattern, stop + group.repeated)
        if group.repeated:
            symbol = max(group.pattern)
            kept_rows, kept_ids = array("I"), array("I")
            for index, row in enumerate(self._budget.keys(rows, len(ids), arity)):
                if all(row[position] != symbol for position in group.earlier):
                    kept_rows.extend(row)
                    kept_ids.append(ids[index])
            rows, ids = kept_rows, kept_ids
        return rows[start * arity : stop * arity], ids[start:stop]


def _order(stored: StoredRelation) -> tuple[str, int, bool, str]:
    schema = stored.schema
    return schema.predicate, schema.arity, not schema.positive, stored.scope or ""


def _taken(sizes: Sequence[int], count: int) -> list[int]:
    """Return how many of each group are among the first `count`, when groups take turns."""
    rounds = bisect_right(
        range(max(sizes, default=0) + 1),
        count,
        key=lambda taken: sum(min(size, taken) for size in sizes),
    )
    full = max(rounds - 1, 0)
    taken = [min(size, full) for size in sizes]
    rest = count - sum(taken)
    for index, size in enumerate(sizes):
        if rest <= 0:
            break
        if size > full:
            taken[index] += 1
            rest -= 1
    return taken
