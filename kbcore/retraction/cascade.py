"""Cascades of retractions: conclusions that no longer hold after a retraction, and new conclusions.

The method follows Backward/Forward maintenance (Motik et al. 2015), component by component of the
rules (`changes.py`): candidates are derived from what has changed below a component and in it,
and compared with the state after the retraction, and where it is necessary with the state before.
Only what has really changed is followed further.

If a change reaches an aggregate, or a removed fact recursion through negation, all conclusions are
compared (`full_diff`), and also if the work exceeds its budget. If that exceeds its own budget, the
counts are incomplete and marked `truncated`.

Where such comparisons have taken long enough, the conclusions of the scope are kept (`kept.py`):
what falls is then what changes in them. `prepare` brings them up to date before a retraction.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kbcore.errors import BudgetExceeded, EngineFault
from kbcore.reason.budget import Budget
from kbcore.reason.external.predicates import ExternalPredicates
from kbcore.reason.tables import GoalTables
from kbcore.reason.view import viewed
from kbcore.retraction.affected import kept_rows
from kbcore.retraction.changes import ComponentChanges, Unfollowed, removed_rows
from kbcore.retraction.full_diff import compared
from kbcore.retraction.kept import MAX_SHARE, KeptConclusions, ScopeState, kept_conclusions
from kbcore.retraction.programs import Programs, is_conclusion
from kbcore.retraction.rows import Difference, RowSet
from kbcore.state.changes import RemovedFacts
from kbcore.state.facts import Row, conclusion
from kbcore.state.partition import RowKey
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import Engine, RunLimits
from kbplanner.engine.columns import dicts_of
from kbplanner.evaluate.follow import Unmaintained
from kbplanner.evaluate.maintained import Changed, FlatRows
from kbplanner.ir.schema import RelationSchema
from kbplanner.lru import LruCache

MAX_ROWS = 1_000_000
MAX_STEPS = 10_000_000
"""Limits of each run that derives or tests candidates."""

MAX_FULL_ROWS = 1_000_000
MAX_FULL_STEPS = 10_000_000
"""Limits of a comparison of all conclusions."""

MAX_SHOWN = 1000

MIN_SPENT_SECONDS = 0.05
"""Time of comparisons of all conclusions of a scope after which these are kept: following the
changes of single facts takes less than that, but no less than `changes.py` takes without them.
"""

SPENT_FOR_KEPT, SPENT_FOR_NONE = 2, 8
"""And after the last time: so often the time that it took then, if it had a result or none."""

MAX_SCOPES = 256
"""Scopes of which the time of counts is known, and of which conclusions are kept."""


@dataclass(slots=True)
class Consequences:
    """The number of fallen conclusions, the first of them as rows, and the number of new
    conclusions.

    `truncated` is True if there may be more.
    """

    count: int = 0
    appeared: int = 0
    rows: list[Row] = field(default_factory=list)
    truncated: bool = False


class Cascades:
    """Finder of conclusions that fall with retractions in one tenant, with kept ones if there is
    memory for them in `tables`.

    With `verify` they are kept from the first count on, and each later count is compared with one
    without them.
    """

    def __init__(
        self,
        tenant: Tenant,
        external: ExternalPredicates | None = None,
        tables: GoalTables | None = None,
        verify: bool = False,
    ) -> None:
        self._tenant = tenant
        self._external = external
        self._tables = tables
        self._verify = verify
        self._programs = Programs.of(tenant)
        self._kept: OrderedDict[str | None, KeptConclusions] = OrderedDict()
        self._in_use: set[str | None] = set()
        self._mutex = threading.Lock()
        self._spent: LruCache[str | None, _Spent] = LruCache(MAX_SCOPES)
        self._is_closed = False

    def close(self) -> None:
        """Drop the kept conclusions."""
        with self._mutex:
            self._is_closed = True
            conclusions = list(self._kept.values())
            self._kept.clear()
        for each in conclusions:
            each.close()

    def maintained_bytes(self) -> tuple[int, int]:
        """Return the memory of the kept conclusions, and that of their rows alone."""
        with self._mutex:
            sizes = [each.sizes for each in self._kept.values()]
        return sum(all for all, _ in sizes), sum(rows for _, rows in sizes)

    def are_behind(self, scopes: Iterable[str | None]) -> bool:
        """Return True if there is anything to `prepare` in these scopes."""
        with self._mutex:
            return any(self._kept[scope].is_behind for scope in self._known(scopes))

    def prepare(self, scopes: Iterable[str | None], budget: Budget) -> None:
        """Bring the kept conclusions of scopes up to date, so that a retraction can be counted from
        them.

        The caller holds the read lock of the state before the retraction. Raises BudgetExceeded.
        """
        with self._mutex:
            known = self._known(scopes)
        for scope in known:
            partition = self._tenant.partition(scope)
            if partition is None:
                continue
            rules = self._rules(scope)
            facts = ScopeState(self._tenant, partition, rules, partition.denied(rules.deniable))
            conclusions = self._take(facts)
            if conclusions is not None:
                try:
                    conclusions.catch_up(budget)
                except BaseException as error:
                    self._end(scope, conclusions)
                    if not isinstance(error, Unmaintained):
                        raise
                else:
                    self._give_back(scope, conclusions)

    def count(self, removed: Iterable[RemovedFacts], budget: Budget, result: Consequences) -> None:
        """Add the conclusions that fell with removed facts to `result`.

        Conclusions that depend on external predicates are not counted: nothing lists all of them.
        The caller holds the read lock of the state after the retraction.
        """
        stage_budget = _limited(budget, MAX_ROWS, MAX_STEPS)
        full_budget = _limited(budget, MAX_FULL_ROWS, MAX_FULL_STEPS)
        by_scope: dict[str | None, list[RemovedFacts]] = {}
        for change in removed:
            by_scope.setdefault(change.scope, []).append(change)
        for scope, changes in by_scope.items():
            partition = self._tenant.partition(scope)
            rules = self._rules(scope)
            removed_schemas = frozenset(change.schema for change in changes)
            if partition is None or (rules.reads | rules.deniable).isdisjoint(removed_schemas):
                continue
            denied = partition.denied(rules.deniable) | (rules.deniable & removed_schemas)
            facts = ScopeState(self._tenant, partition, rules, denied)
            part = _Scope(facts, changes, removed_rows(changes, budget))
            try:
                difference = self._found_in_kept(part, full_budget)
                if difference is not None:
                    self._check(part, difference, stage_budget, full_budget)
                    result.appeared += difference.appeared
                    for schema in sorted(difference.fallen, key=str):
                        self._note(part, schema, difference.fallen[schema], result)
                    continue
                begun = budget.clock.monotonic()
                compares = self._count_from_scratch(part, stage_budget, full_budget, result)
                if compares or self._verify:
                    self._keep_if_worth(facts, budget.clock.monotonic() - begun, budget)
            except BudgetExceeded:
                result.truncated = True

    def _rules(self, scope: str | None) -> RuleSet:
        rules = self._tenant.rules.visible(scope)
        return rules if self._external is None else self._external.independent(rules)

    # -- kept conclusions --------------------------------------------------------------------------

    def _known(self, scopes: Iterable[str | None]) -> list[str | None]:
        """Return those of some scopes whose conclusions are kept; the caller holds the mutex."""
        chosen = set(scopes)
        return [scope for scope in self._kept if scope in chosen or ALL_SCOPES in chosen]

    def _take(self, facts: ScopeState) -> KeptConclusions | None:
        """Return the kept conclusions of a scope if there are any, for the only use by the
        caller.
        """
        scope = facts.partition.name
        with self._mutex:
            conclusions = self._kept.pop(scope, None)
            if conclusions is None:
                return None
            self._in_use.add(scope)
        if not conclusions.serves(facts):
            self._end(scope, conclusions)
            return None
        return conclusions

    def _give_back(self, scope: str | None, conclusions: KeptConclusions) -> None:
        with self._mutex:
            self._in_use.discard(scope)
            if not self._is_closed:
                self._kept[scope] = conclusions
                return
        conclusions.close()

    def _end(self, scope: str | None, conclusions: KeptConclusions) -> None:
        with self._mutex:
            self._in_use.discard(scope)
        conclusions.close()

    def _found_in_kept(self, part: _Scope, budget: Budget) -> _CountedChanges | None:
        """Return the changes of conclusions, found in those that are kept; None if they cannot be
        found there.

        Raises BudgetExceeded.
        """
        scope, conclusions = part.facts.partition.name, self._take(part.facts)
        if conclusions is None:
            return None
        try:
            changed = conclusions.removal(part.keys, budget)
            difference = (
                None if changed is None else self._found(part, conclusions, changed, budget)
            )
        except BaseException as error:
            self._end(scope, conclusions)
            if isinstance(error, Unmaintained):
                return None
            raise
        self._give_back(scope, conclusions)
        return difference

    def _found(
        self,
        part: _Scope,
        conclusions: KeptConclusions,
        changed: Mapping[RelationSchema, Changed],
        budget: Budget,
    ) -> _CountedChanges | None:
        engine = self._tenant.engine
        difference = _CountedChanges()
        for schema, (came, gone) in changed.items():
            stored = conclusions.stored.get(schema)
            if stored is not None:
                difference.appeared += came.number
                rows = _without(engine, _rows(gone, schema.arity), part.removed.get(stored))
                engine.sort(rows.symbols, schema.arity, budget.offload, in_place=True)
                difference.fallen[stored] = rows
        rest = conclusions.rest
        below = {
            kept_rows(schema): Difference(*(_rows(rows, schema.arity) for rows in each))
            for schema, each in changed.items()
        }
        read = {
            schema: each
            for schema, each in (*part.removed.items(), *below.items())
            if schema in conclusions.read
        }
        if rest is None or not read:
            return difference
        changes = ComponentChanges(self._tenant, self._programs, rest.rules, rest, read, budget)
        try:
            if not self._followed(changes, budget):
                raise Unmaintained  # nor could it be the next time
            for schema in filter(is_conclusion, changes.changes):
                difference.appeared += changes.changes[schema].added
                difference.fallen[schema.stored] = changes.counted(schema)
        finally:
            changes.close()
        return difference

    def _check(
        self, part: _Scope, difference: _CountedChanges, stage_budget: Budget, full_budget: Budget
    ) -> None:
        """Compare what was found in kept conclusions with what is found without them, if that is
        asked for.
        """
        if self._verify:
            other = Consequences()
            self._count_from_scratch(part, stage_budget, full_budget, other)
            number = sum(rows.count for rows in difference.fallen.values())
            if (number, difference.appeared) != (other.count, other.appeared):
                raise EngineFault("kept conclusions differ from an evaluation")

    def _keep_if_worth(self, facts: ScopeState, seconds: float, budget: Budget) -> None:
        """Keep the conclusions of a scope if comparisons of all of them have taken long enough."""
        tables, scope = self._tables, facts.partition.name
        if tables is None:
            return
        spent = self._spent.get(scope) or _Spent(MIN_SPENT_SECONDS)
        spent = replace(spent, seconds=spent.seconds + seconds)
        self._spent.put(scope, spent)
        if spent.seconds < spent.needed and not self._verify:
            return
        with self._mutex:
            if self._is_closed or scope in self._kept or scope in self._in_use:
                return
            self._in_use.add(scope)
        self._make_room(tables)
        begun, conclusions = budget.clock.monotonic(), None
        try:
            with suppress(BudgetExceeded):  # the counts are there
                conclusions = kept_conclusions(facts, tables, budget)
        finally:
            needed = budget.clock.monotonic() - begun
            needed *= SPENT_FOR_NONE if conclusions is None else SPENT_FOR_KEPT
            self._spent.put(scope, _Spent(max(needed, MIN_SPENT_SECONDS)))
            if conclusions is None:
                with self._mutex:
                    self._in_use.discard(scope)
            else:
                self._give_back(scope, conclusions)

    def _make_room(self, tables: GoalTables) -> None:
        """Drop the kept conclusions of the scopes that were used least recently, while all take
        more than half of the memory for them.
        """
        while self.maintained_bytes()[0] > tables.max_bytes // MAX_SHARE // 2:
            with self._mutex:
                if not self._kept:
                    return
                _, oldest = self._kept.popitem(last=False)
            oldest.close()

    # -- without kept conclusions ------------------------------------------------------------------

    def _count_from_scratch(
        self, part: _Scope, budget: Budget, full_budget: Budget, result: Consequences
    ) -> bool:
        """Add the fallen and the new conclusions of one partition to `result`.

        If they cannot be followed within `budget`, all conclusions are compared within
        `full_budget`, and the result is True. Raises BudgetExceeded.
        """
        facts = part.facts
        with viewed(
            self._tenant, facts.partition, facts.rules, None, budget, None, facts.denied
        ) as view:
            changes = ComponentChanges(
                self._tenant, self._programs, facts.rules, view, part.removed, budget
            )
            try:
                if changes.is_incomplete or not self._followed(changes, budget):
                    self._compare(part, changes, full_budget, result)
                    return True
                self._add(part, changes, result)
                return False
            finally:
                changes.close()

    @staticmethod
    def _followed(changes: ComponentChanges, budget: Budget) -> bool:
        """Find the changes of all components; return False if only a comparison can find them.

        Raises BudgetExceeded if no time is left.
        """
        try:
            changes.follow()
        except Unfollowed:
            return False
        except BudgetExceeded:
            budget.check_time()
            return False
        return True

    def _compare(
        self, part: _Scope, changes: ComponentChanges, budget: Budget, result: Consequences
    ) -> None:
        """Add the differences of all conclusions before and after the removal.

        Over budget, raises BudgetExceeded after the changes that can be followed are added.
        """
        facts = part.facts
        try:
            fallen, appeared = compared(
                self._tenant, facts.partition, facts.rules, part.changes, budget
            )
        except BudgetExceeded:
            if changes.is_incomplete:
                with suppress(Unfollowed, BudgetExceeded):
                    changes.follow()
            self._add(part, changes, result)
            raise
        result.appeared += appeared
        for schema, rows in fallen.items():
            self._note(part, schema, rows, result)

    def _add(self, part: _Scope, changes: ComponentChanges, result: Consequences) -> None:
        """Add the changes of conclusions."""
        for schema in sorted(filter(is_conclusion, changes.changes), key=str):
            result.appeared += changes.changes[schema].added
            self._note(part, schema.stored, changes.counted(schema), result)

    def _note(
        self, part: _Scope, schema: RelationSchema, fallen: RowSet, result: Consequences
    ) -> None:
        """Count fallen conclusions and add the first of them as rows."""
        result.count += fallen.count
        arity, listed = schema.arity, min(fallen.count, MAX_SHOWN - len(result.rows))
        if not listed:
            return
        texts = self._tenant.engine.texts(fallen.symbols[: listed * arity])
        template = conclusion(schema.predicate, schema.positive, [], part.facts.partition.name)
        cells: dict[str, list[Any]] = {
            "args": [texts[at * arity : (at + 1) * arity] for at in range(listed)],
            "metadata": [{} for _ in range(listed)],
        }
        result.rows += dicts_of(template, listed, cells)


@dataclass(frozen=True, slots=True)
class _Spent:
    """The time of comparisons in a scope since its conclusions were last kept, and how much of it
    is needed until they are kept again.
    """

    needed: float
    seconds: float = 0.0


@dataclass(slots=True)
class _CountedChanges:
    """Fallen conclusions by their stored schema, in answer order and without removed facts, and the
    number of new conclusions.
    """

    appeared: int = 0
    fallen: dict[RelationSchema, RowSet] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Scope:
    """The facts and rules of a scope, and the facts that were removed from it."""

    facts: ScopeState
    changes: Sequence[RemovedFacts]
    removed: Mapping[RelationSchema, Difference]

    @cached_property
    def keys(self) -> dict[RelationSchema, set[RowKey]]:
        """The removed facts by relation."""
        keys: dict[RelationSchema, set[RowKey]] = {}
        for change in self.changes:
            keys.setdefault(change.schema, set()).update(change.keys)
        return keys


def _rows(rows: FlatRows, arity: int) -> RowSet:
    return RowSet(rows.symbols, rows.number, arity)


def _without(engine: Engine, rows: RowSet, removed: Difference | None) -> RowSet:
    """Return the rows that are not removed facts."""
    if removed is None or not rows.count:
        return rows
    others = removed.disappeared
    relation = engine.relation(rows.arity)
    try:
        relation.insert(others.symbols, others.count)
        return RowSet(*relation.missing(rows.symbols, rows.count), rows.arity)
    finally:
        relation.drop()


def _limited(budget: Budget, rows: int, steps: int) -> Budget:
    """Return a budget with lower limits of derived rows and of steps."""
    now = budget.limits
    return replace(budget, limits=RunLimits(min(rows, now.rows), now.bytes, min(steps, now.steps)))
