"""Consolidation: one summary fact for each group of similar facts.

A group is the set of positive, currently valid facts with the same scope, predicate, arity and
first argument. A large enough group has one summary, `<predicate>_consolidated(<first argument>,
<count>)`. Groups of two arities with the same count share one summary. A run counts the facts at
the time it reads them; the next run corrects summaries of groups that changed since.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbcore.context.summaries import is_summary
from kbcore.context.window import SUMMARY_SUFFIX
from kbcore.reason.budget import Budget
from kbcore.state.changes import AssertFacts, Change, EvictFacts, EvictReason, Outdated, UseLabels
from kbcore.state.episodes.evidence import without_evidence
from kbcore.state.facts import Fact, FactRows, Row, derived_row
from kbcore.state.labelling import details_of
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.partition import Partition, RowKey, StoredRelation, located
from kbcore.state.tenant import Tenant
from kbcore.upkeep.evict import RECORD_BYTES, UpkeepTarget
from kbplanner.engine.backend import Attribute
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom
from kbtypes.results import ConsolidateOutcome

_FACT_BYTES = 512
"""Maximum size of a summary in a log record without its first argument and predicate, in bytes."""


@dataclass(slots=True)
class SummaryGroup:
    """A group of facts: their number, and the times of the first and the last assertion."""

    predicate: str
    first: str
    count: int
    start: int
    end: int
    labels: Labels = NO_LABELS

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the summary."""
        return {"consolidated": True, "sources": self.count, "from": self.start, "to": self.end}


_SummaryName = tuple[str, str, str, Labels]
"""The key of a summary: summarised predicate, first argument, count, labels."""


@dataclass(slots=True)
class _Decisions:
    """Groups with a new or changed summary, and summaries to remove."""

    partition: Partition | None
    groups: list[SummaryGroup] = field(default_factory=list)
    replaced: list[_SummaryName] = field(default_factory=list)


class ConsolidationLock:
    """Lock of a tenant: concurrent consolidations would each write a summary of the same group."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def close(self) -> None:
        """Do nothing: the lock holds no resources."""


def consolidate(
    target: UpkeepTarget,
    scope: str | None,
    predicates: Sequence[str] | None,
    min_group_size: int,
    budget: Budget,
    now: int,
    dry_run: bool,
) -> ConsolidateOutcome:
    """Update the summaries of one partition, for the given predicates or (None) all.

    A group has at least `min_group_size` facts. Sources stay, and summaries are not consolidated
    again. Facts of one set of labels are a group, and their summary has these labels. Raises
    BudgetExceeded before any change.
    """
    while True:
        tenant = target.find()
        guard = tenant.attached.need(ConsolidationLock, ConsolidationLock)
        with guard.lock:
            with tenant.lock.read():
                decisions = _decide(
                    tenant, tenant.partition(scope), predicates, min_group_size, budget
                )
            timestamp = now
            budget.check_answers(len(decisions.groups))
            if not dry_run:
                try:
                    for changes in _records(decisions, scope):
                        check = _check(target, tenant, scope, decisions.partition)
                        timestamp = target.commit(changes, check).at
                except Outdated:
                    continue
            return ConsolidateOutcome(
                sum(group.count for group in decisions.groups),
                list(_rows(tenant, decisions, scope, budget, dry_run)),
                len(decisions.replaced),
                timestamp,
                dry_run,
            )


def _decide(
    tenant: Tenant,
    partition: Partition | None,
    predicates: Sequence[str] | None,
    min_group_size: int,
    budget: Budget,
) -> _Decisions:
    decisions = _Decisions(partition)
    if partition is None:
        return decisions
    summaries: dict[_SummaryName, SummaryGroup] = {}
    for stored in sorted(partition.relations(), key=lambda r: (r.schema.predicate, r.schema.arity)):
        schema = stored.schema
        chosen = predicates is None or schema.predicate in predicates
        if not (chosen and schema.positive and schema.arity > 1):
            continue
        if len(schema.predicate) + len(SUMMARY_SUFFIX) > DEFAULT_LIMITS.predicate_chars:
            continue  # the name of its summary would be too long
        for group in _groups(tenant, stored, min_group_size, budget):
            name = schema.predicate, group.first, str(group.count), group.labels
            same = summaries.setdefault(name, group)
            same.start, same.end = min(same.start, group.start), max(same.end, group.end)
        budget.check_time()
    for name, metadata in _existing_summaries(tenant, partition, predicates):
        summarized = summaries.get(name)
        if (
            summarized is not None
            and metadata is not None
            and is_summary(metadata)
            and without_evidence(metadata) != summarized.metadata
        ):
            continue  # the summary stays and gets new metadata
        if summarized is not None:
            del summaries[name]
        elif is_summary(metadata):
            decisions.replaced.append(name)
    decisions.groups = list(summaries.values())
    return decisions


def _groups(
    tenant: Tenant, stored: StoredRelation, min_group_size: int, budget: Budget
) -> Iterator[SummaryGroup]:
    if stored.has_labels:
        yield from _labelled_groups(tenant, stored, min_group_size, budget)
        return
    arity = stored.schema.arity
    rows, ids = stored.relation.match([0] * arity)
    firsts = rows[0::arity]
    if any(is_summary(metadata) for metadata in stored.metadata.values()):
        sources = [
            i
            for i in range(len(ids))
            if not is_summary(stored.metadata.get(tuple(rows[i * arity : (i + 1) * arity])))
        ]
        firsts, ids = (
            array("I", [firsts[i] for i in sources]),
            array("I", [ids[i] for i in sources]),
        )
    counts = {symbol: count for symbol, count in Counter(firsts).items() if count >= min_group_size}
    if not counts:
        return
    spans: dict[int, tuple[int, int]] = {}
    created = stored.relation.attributes(Attribute.CREATED_AT, ids)
    for part in budget.slices(len(ids)):
        budget.check_time()
        for index in part:
            symbol = firsts[index]
            if symbol in counts:
                at = int(created[index])
                start, end = spans.get(symbol, (at, at))
                spans[symbol] = (min(start, at), max(end, at))
    symbols = sorted(counts)
    for symbol, text in zip(symbols, tenant.engine.texts(array("I", symbols)), strict=True):
        yield SummaryGroup(stored.schema.predicate, text, counts[symbol], *spans[symbol])


def _labelled_groups(
    tenant: Tenant, stored: StoredRelation, min_group_size: int, budget: Budget
) -> Iterator[SummaryGroup]:
    """Yield the groups of facts with equal labels."""
    arity = stored.schema.arity
    rows, ids = stored.relation.match([0] * arity, hidden=True)
    groups: dict[tuple[int, Labels], SummaryGroup] = {}
    for part in budget.slices(len(ids)):
        budget.check_time()
        for index in part:
            row = tuple(rows[index * arity : (index + 1) * arity])
            for labels, layer in details_of(tenant, stored, row):
                if is_summary(layer.metadata.get(row)):
                    continue
                at = layer.relation.locate(array("I", row), 1)
                created = int(layer.relation.attributes(Attribute.CREATED_AT, at)[0])
                group = groups.get((row[0], labels))
                if group is None:
                    (text,) = tenant.engine.texts(array("I", row[:1]))
                    new = SummaryGroup(stored.schema.predicate, text, 0, created, created, labels)
                    group = groups[row[0], labels] = new
                group.count += 1
                group.start, group.end = min(group.start, created), max(group.end, created)
    yield from (group for group in groups.values() if group.count >= min_group_size)


def _existing_summaries(
    tenant: Tenant, partition: Partition, predicates: Sequence[str] | None
) -> Iterator[tuple[_SummaryName, Mapping[str, Any] | None]]:
    """Yield the existing summaries with their metadata."""
    for stored in partition.relations():
        name, schema = stored.schema.predicate, stored.schema
        if not (name.endswith(SUMMARY_SUFFIX) and schema.positive and schema.arity == 2):
            continue
        predicate = name.removesuffix(SUMMARY_SUFFIX)
        if predicates is not None and predicate not in predicates:
            continue
        rows, ids = stored.relation.match([0, 0])
        texts = tenant.engine.texts(rows)
        for i in range(len(ids)):
            key: RowKey = tuple(rows[2 * i : 2 * i + 2])
            for labels, layer in details_of(tenant, stored, key):
                yield (predicate, texts[2 * i], texts[2 * i + 1], labels), layer.metadata.get(key)


def _records(decisions: _Decisions, scope: str | None) -> Iterator[tuple[Change, ...]]:
    """Yield the changes per log record (nearly always one): removed summaries, then new ones.

    After a crash between two records, some groups have no summary until the next run.
    """
    old: dict[Labels, dict[str, list[str]]] = {}
    new: dict[Labels, list[Fact]] = {}
    size = 0

    def record() -> tuple[Change, ...]:
        changes: list[Change] = []
        for labels in sorted({*old, *new}):
            changes += [UseLabels(labels)] if labels else []
            if labels in old:
                rows = (
                    FactRows(predicate + SUMMARY_SUFFIX, 2, args, True, scope)
                    for predicate, args in old[labels].items()
                )
                changes.append(EvictFacts(tuple(rows), EvictReason.REPLACED))
            if labels in new:
                changes.append(AssertFacts(tuple(new[labels])))
        return tuple(changes)

    for predicate, first, count, labels in decisions.replaced:
        if size > RECORD_BYTES:
            yield record()
            old, size = {}, 0
        old.setdefault(labels, {}).setdefault(predicate, []).extend((first, count))
        size += 6 * len(first) + 64
    for group in decisions.groups:
        if size > RECORD_BYTES:
            yield record()
            old, new, size = {}, {}, 0
        args = group.first, str(group.count)
        new.setdefault(group.labels, []).append(
            Fact(group.predicate + SUMMARY_SUFFIX, args, scope=scope, metadata=group.metadata)
        )
        size += 6 * (len(group.first) + len(group.predicate)) + _FACT_BYTES
    if old or new:
        yield record()


def _check(
    target: UpkeepTarget, tenant: Tenant, scope: str | None, partition: Partition | None
) -> Callable[[], None]:
    def check() -> None:
        present = target.find()
        if present is not tenant or present.partition(scope) is not partition:
            raise Outdated("the scope was replaced")

    return check


def _rows(
    tenant: Tenant, decisions: _Decisions, scope: str | None, budget: Budget, dry_run: bool
) -> Iterator[Row]:
    for part in budget.slices(len(decisions.groups)):
        with tenant.lock.read():
            for group in decisions.groups[part.start : part.stop]:
                yield _row(tenant, decisions.partition, group, scope, dry_run)


def _row(
    tenant: Tenant,
    partition: Partition | None,
    group: SummaryGroup,
    scope: str | None,
    dry_run: bool,
) -> Row:
    schema = RelationSchema(group.predicate + SUMMARY_SUFFIX, 2)
    args = [group.first, str(group.count)]
    stored = partition.get(schema) if partition else None
    if stored is not None and not stored.gone and not dry_run:
        rows = stored.rows(
            tenant.engine, *located(stored.relation, tenant.engine.intern_many(args), 1)
        )
        if rows:
            return rows[0]
    return {
        **derived_row(Atom(schema.predicate, tuple(args)), args, scope),
        "metadata": group.metadata,
    }
