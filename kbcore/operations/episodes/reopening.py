"""Values that hold again when the sources of those that replaced them are purged."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kbcore.branching.places import Keys, ScopePlace, keys_of, places_of
from kbcore.context.proofs.violations import SCHEMA
from kbcore.operations.history.undo import (
    Details,
    StoredDetails,
    details_of,
    inverse_labelled,
    restored_fact,
)
from kbcore.reason.budget import Budget
from kbcore.state.changes import Change, RestoreFacts
from kbcore.state.facts import Fact, FactKey, Row
from kbcore.state.partition import Partition, RowKey, StoredRelation
from kbcore.state.tenant import Tenant
from kbcore.upkeep.purge import PurgePlan, Selected
from kbplanner.engine.backend import FOREVER
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow

_FACTS_PER_YIELD = 50
"""Purged facts looked at between two calls of `yield_now`: about a millisecond."""


@dataclass(slots=True)
class Reopened:
    """Facts that end when a purged one begins, and would hold up to its end without it.

    `before` has their details as they are stored, `after` those without the purged facts.
    """

    before: dict[FactKey, StoredDetails] = field(default_factory=dict)
    after: dict[FactKey, StoredDetails] = field(default_factory=dict)

    def rows(self, limit: int) -> list[Row]:
        """Return at most `limit` of the facts as they are after the purge."""
        rows = (each.row for details in self.after.values() for each in details)
        return [row for row, _ in zip(rows, range(limit), strict=False)]

    def changes(self) -> tuple[Change, ...]:
        """Return the changes that let the facts hold again."""
        labelled = [
            key for key, details in self.after.items() if any(each.labels for each in details)
        ]
        plain = [
            restored_fact(details[0].row)
            for key, details in self.after.items()
            if key not in set(labelled)
        ]
        restored = (RestoreFacts(tuple(plain)),) if plain else ()
        return (*restored, *inverse_labelled(labelled, self.after))

    def is_current(self, tenant: Tenant) -> bool:
        """Return True if the facts are stored as they were; the caller holds the read lock."""
        return all(tuple(details_of(tenant, key)) == known for key, known in self.before.items())


def reopened_by(tenant: Tenant, plan: PurgePlan, budget: Budget) -> Reopened:
    """Return the facts that purged ones replaced; the caller holds the read lock.

    A fact replaced another one where both take the same place, that of a declared `@key` or that of
    a fact and its denial, and the other one ends when it begins. Raises BudgetExceeded.
    """
    reopened = Reopened()
    episodes = {episode.id for episode in budget.paced(plan.episodes)}
    keys: dict[str | None, Keys] = {}
    purged: dict[int, set[RowKey]] = {}
    claims: list[tuple[Fact, ScopePlace, int]] = []
    ends: defaultdict[ScopePlace, dict[int, int]] = defaultdict(dict)
    for selected in budget.paced(plan.facts):
        stored = selected.stored
        if stored.scope not in keys:
            keys[stored.scope] = _keys(tenant, stored.scope)
        own = keys[stored.scope]
        if not _may_replace(tenant, stored, own):
            continue
        rows = purged[id(stored)] = set()
        for row, fact, (start, end) in _facts(tenant, selected, budget):
            rows.add(row)
            for place in places_of(fact, own):
                claims.append((fact, place, start))
                ends[place][start] = end
    for fact, place, start in budget.paced(claims, _FACTS_PER_YIELD):
        end = start
        while end in ends[place] and end < ends[place][end]:
            end = ends[place][end]
        for key in _replaced(tenant, fact, place, start, purged, budget.yield_now):
            before = tuple(details_of(tenant, key))
            after = tuple(_held_until(each, start, end, episodes) for each in before)
            if after != before:
                reopened.before[key], reopened.after[key] = before, after
    return reopened


def _keys(tenant: Tenant, scope: str | None) -> Keys:
    rules = tenant.rules.visible(scope)
    return keys_of(rules.rules if SCHEMA in rules.derived else ())


def _may_replace(tenant: Tenant, stored: StoredRelation, keys: Keys) -> bool:
    schema = stored.schema
    if schema.positive and (schema.predicate, schema.arity) in keys:
        return True
    partition = tenant.partition(stored.scope)
    return partition is not None and partition.get(schema.opposite) is not None


def _facts(
    tenant: Tenant, selected: Selected, budget: Budget
) -> Iterator[tuple[RowKey, Fact, tuple[int, int]]]:
    """Yield the facts to purge, with their symbols and when they are valid."""
    stored, arity = selected.stored, selected.stored.schema.arity
    for places in budget.slices(len(selected.reasons), _FACTS_PER_YIELD):
        symbols = selected.rows[places.start * arity : places.stop * arity]
        texts = tenant.engine.texts(symbols)
        windows = stored.windows(stored.relation.locate(symbols, len(places)))
        for index, window in enumerate(windows):
            part = slice(index * arity, (index + 1) * arity)
            name, sign = stored.schema.predicate, stored.schema.positive
            yield tuple(symbols[part]), Fact(name, tuple(texts[part]), sign, stored.scope), window


def _replaced(
    tenant: Tenant,
    fact: Fact,
    place: ScopePlace,
    start: int,
    purged: Mapping[int, set[RowKey]],
    yield_now: YieldNow,
) -> Iterator[FactKey]:
    """Yield the rivals of a fact at a place that may end when it begins, and stay."""
    partition: Partition | None = tenant.partition(fact.scope)
    sign = place.sign_of_rivals(fact)
    stored = partition and partition.get(RelationSchema(fact.predicate, len(fact.args), sign))
    if not stored:
        return
    pattern = [0 if arg is None else tenant.engine.find(arg) for arg in place.fixed]
    rows, ids = stored.relation.match(pattern, hidden=True, yield_now=yield_now)
    arity = stored.schema.arity
    for index, (_, end) in enumerate(stored.windows(ids)):
        row = tuple(rows[index * arity : (index + 1) * arity])
        if (end != start and not stored.has_labels) or row in purged.get(id(stored), ()):
            continue
        args: Sequence[str] = tenant.engine.texts(array("I", row))
        if place.are_rivals(fact, args, sign):
            yield fact.scope, fact.predicate, tuple(args), sign


def _held_until(details: Details, start: int, end: int, episodes: Container[str]) -> Details:
    """Return the details of a fact that ends at `start` if it went on up to `end`, without the
    evidence of some episodes.
    """
    row = details.row
    if row["validUntil"] != start or row["validFrom"] >= start:
        return details
    ends = [end] if row["ttl"] is None else [end, row["createdAt"] + row["ttl"]]
    until = max(start, min(ends))
    held = {**row, "validUntil": None if until >= FOREVER else until}
    if "evidence" in row:
        held["evidence"] = [span for span in row["evidence"] if span["episode"] not in episodes]
    return replace(details, row=held)
