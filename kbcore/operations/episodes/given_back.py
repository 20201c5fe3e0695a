"""The time that facts had taken from others, which these get back when a purge removes the facts.

A place is then as if the removed facts had never been stored: a value that ended when a removed one
began holds again, up to the next newer value that stays.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

from kbcore.branching.places import ScopePlace, keys_of, places_of
from kbcore.context.proofs.violations import SCHEMA
from kbcore.reason.budget import Budget
from kbcore.state.changes import RestoredFact
from kbcore.state.episodes.evidence import evidence_of, with_evidence
from kbcore.state.facts import Fact, FactRows
from kbcore.state.intervals import Interval, earlier_of, with_earlier, with_restated, within
from kbcore.state.merging.sides import ConflictingFact
from kbcore.state.partition import Partition, RowKey, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import ANONYMOUS, Rule, Term

FACTS_PER_YIELD = 20
"""Facts whose rivals are looked up between two calls of `yield_now`: about a millisecond."""


PLACES_KEPT = 1000
"""Places whose values are remembered while facts are looked at that mostly share them."""


@dataclass(frozen=True, slots=True)
class _Staying:
    """The values of a place that stay: those that end at a time, and all beginnings in order."""

    by_end: dict[int, list[tuple[StoredRelation, RowKey]]]
    starts: list[int]

    def next_start(self, at: int) -> int:
        """Return when the first value begins at a time or after it, FOREVER if none does."""
        index = bisect_left(self.starts, at)
        return self.starts[index] if index < len(self.starts) else FOREVER


@dataclass(slots=True)
class _Shortened:
    """A stored fact that removed ones may have ended.

    `ends` are the beginnings of these, each with the time up to which the fact may hold again.
    """

    stored: StoredRelation
    row: RowKey
    ends: dict[int, int] = field(default_factory=dict)


def given_back(
    tenant: Tenant, removed: Sequence[FactRows], episodes: Container[str], budget: Budget
) -> tuple[RestoredFact, ...]:
    """Return facts with the time that facts to be removed had taken from them.

    The caller holds the tenant's read lock. `episodes` are removed too. Facts with labels, and
    those of predicates that require some, stay as they are. Raises BudgetExceeded.
    """
    takeovers = _Takeovers(tenant, removed, budget)
    restored = (takeovers.restored(each, episodes) for each in takeovers.shortened())
    return tuple(each for each in restored if each is not None)


class _Takeovers:
    """The places of facts to be removed, and the values that stay in them."""

    def __init__(self, tenant: Tenant, removed: Sequence[FactRows], budget: Budget) -> None:
        self._tenant = tenant
        self._budget = budget
        self._removed: dict[int, tuple[Partition, StoredRelation, set[RowKey]]] = {}
        self._keys = cache(lambda scope: keys_of(self._rules(scope)))
        self._staying = lru_cache(PLACES_KEPT)(self._find_staying)
        for group in budget.paced(removed):
            partition = tenant.partition(group.scope)
            stored = None if partition is None else partition.get(group.schema)
            if partition is None or stored is None or not self._may_have_ended(partition, group):
                continue
            rows = self._removed.setdefault(id(stored), (partition, stored, set()))[2]
            for part in group.in_parts(budget.yield_now, FACTS_PER_YIELD):
                symbols = [tenant.find(arg) for arg in part.args]
                arity = group.arity
                rows.update(
                    tuple(symbols[at : at + arity]) for at in range(0, len(part) * arity, arity)
                )

    def shortened(self) -> list[_Shortened]:
        """Return the facts that removed ones may have ended."""
        shortened: dict[tuple[int, RowKey], _Shortened] = {}
        for partition, stored, rows in self._removed.values():
            # Those of one place mostly follow each other.
            for row in self._budget.paced(sorted(rows), FACTS_PER_YIELD):
                windows = self._windows(stored, row)
                fact = self._fact(stored, row)
                for claim, others in self._places(partition, stored, fact):
                    for each in windows:
                        for begin in (each.start, *each.restated):
                            for rival, other in others.by_end.get(begin, ()):
                                if claim is not None and not claim.are_rivals(
                                    fact, self._args(other), rival.schema.positive
                                ):
                                    continue
                                new = _Shortened(rival, other)
                                known = shortened.setdefault((id(rival), other), new)
                                until = others.next_start(each.end)
                                until = FOREVER if until > each.end else until
                                known.ends[begin] = min(known.ends.get(begin, FOREVER), until)
        return list(shortened.values())

    def restored(self, each: _Shortened, episodes: Container[str]) -> RestoredFact | None:
        """Return a fact with its time, None if another value that stays began at the same time."""
        stored, row = each.stored, each.row
        partition = self._tenant.need_partition(stored.scope)
        fact = self._fact(stored, row)
        declared = [
            others for claim, others in self._places(partition, stored, fact) if claim is not None
        ]
        before = self._windows(stored, row)
        after: list[Interval] = []
        for interval in before:
            if after and after[-1].end >= interval.start:  # it holds on
                times = [*after[-1].restated, interval.start, *interval.restated]
                start = after.pop().start
                interval = interval._replace(
                    start=start, restated=within(times, start, interval.end)
                )
            if interval.end in each.ends:
                end = interval.end
                later = (other.start for other in before if other.start >= end)
                starts = (others.next_start(end) for others in declared)
                interval = interval._replace(end=min(each.ends[end], *later, *starts, FOREVER))
            after.append(interval)
        if [each[:2] for each in after] == [each[:2] for each in before]:
            return None
        *earlier, newest = after
        metadata = stored.metadata.get(row, {})
        spans = [span for span in evidence_of(metadata) if span["episode"] not in episodes]
        described = with_restated(with_earlier(metadata, earlier), newest.restated)
        ids = stored.relation.locate(array("I", row), 1)
        ttl = int(stored.relation.attributes(Attribute.TTL, ids)[0])
        standing = ConflictingFact(
            stored.schema.positive,
            newest.created_at,
            newest.start,
            None if newest.end == FOREVER else newest.end,
            newest.confidence,
            with_evidence(described, spans),
        )
        return RestoredFact(stored.scope, fact.predicate, fact.args, standing, ttl or None)

    def _rules(self, scope: str | None) -> Sequence[Rule]:
        visible = self._tenant.rules.visible(scope)
        return visible.rules if SCHEMA in visible.derived else ()

    def _may_have_ended(self, partition: Partition, group: FactRows) -> bool:
        """Return True if a fact beside those of a group may have ended because of them."""
        if (group.predicate, group.arity) in self._tenant.rules.required:
            return False
        pair = [
            stored
            for schema in (group.schema, group.schema.opposite)
            if (stored := partition.get(schema)) is not None
        ]
        return any(each.limited for each in pair) and not any(each.has_labels for each in pair)

    def _args(self, row: RowKey) -> tuple[str, ...]:
        return tuple(self._tenant.engine.texts(array("I", row)))

    def _fact(self, stored: StoredRelation, row: RowKey) -> Fact:
        return Fact(stored.schema.predicate, self._args(row), stored.schema.positive, stored.scope)

    def _windows(self, stored: StoredRelation, row: RowKey) -> list[Interval]:
        """Return the intervals of a stored fact, the newest last; none if it is not stored."""
        ids = stored.relation.locate(array("I", row), 1)
        if ids[0] == NO_ROW:
            return []
        _, end = next(stored.windows(ids))
        return [*earlier_of(stored.metadata.get(row, {})), stored.newest_interval(row, ids, end)]

    def _places(
        self, partition: Partition, stored: StoredRelation, fact: Fact
    ) -> Iterator[tuple[ScopePlace | None, _Staying]]:
        """Yield the places of a fact with the values that stay: that of its opposite, those of
        declared keys, and (None) what differs in the last argument, as a fact does that another
        one replaced.
        """
        schema = stored.schema
        for claim in places_of(fact, self._keys(stored.scope)):
            sign = schema if claim.differing is not None else schema.opposite
            yield claim, self._staying(partition, sign, claim.pattern)
        if schema.arity > 1:
            yield None, self._staying(partition, schema, (*fact.args[:-1], ANONYMOUS))

    def _find_staying(
        self, partition: Partition, schema: RelationSchema, args: tuple[Term, ...]
    ) -> _Staying:
        """Return the stored facts that match and are not removed, whether they are valid or not."""
        staying = _Staying({}, [])
        stored = partition.get(schema)
        pattern = goal_pattern(args, self._tenant.find)
        if stored is None or pattern is None:
            return staying
        removed = self._removed.get(id(stored))
        yield_now = self._budget.yield_now
        rows, ids = stored.relation.match(pattern, hidden=True, yield_now=yield_now)
        for index in self._budget.paced(range(len(ids)), FACTS_PER_YIELD):
            row = tuple(rows[index * schema.arity : (index + 1) * schema.arity])
            if removed is None or row not in removed[2]:
                for each in self._windows(stored, row):
                    staying.by_end.setdefault(each.end, []).append((stored, row))
                    staying.starts.append(each.start)
        staying.starts.sort()
        return staying
