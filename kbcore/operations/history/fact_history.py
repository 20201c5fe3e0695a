"""The history of facts: what asserted, replaced and removed them, from the log.

The log says what each change did, not what was there before it. So the oldest state that can be
rebuilt is taken, and the changes after it are applied one by one; the rows of the facts that a
change concerns are compared before and after it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kbcore.durable.earlier_states import EarlierStates, LoggedChange
from kbcore.durable.known_states import HistoryStart
from kbcore.operations.history.known_at import EarlierReads
from kbcore.operations.history.named_facts import is_wide, named_facts
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.state.changes import (
    AddEvidence,
    AssertFacts,
    AssertRows,
    Change,
    ChangeSet,
    DropScope,
    EndFacts,
    EvictFacts,
    ForkScope,
    MergeScope,
    PurgeMemory,
    RestoreFacts,
)
from kbcore.state.episodes.purges import PurgeRecord
from kbcore.state.facts import Fact, FactKey, FactRows, Row
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.engine.backend import NO_ROW
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import ANONYMOUS, Atom, Term, Variable
from kbplanner.syntax.printer import print_atom
from kbtypes.episodes import FactEvent

ASSERTED, REPLACED, RETRACTED, PURGED = "asserted", "replaced", "retracted", "purged"
EVENTS = ASSERTED, REPLACED, RETRACTED, PURGED

CAUSES = (
    "assert",
    "retract",
    "correct",
    "undo",
    "evidence",
    "supersede",
    "expired",
    "faded",
    "summarised",
    "fork",
    "merge",
    "drop_scope",
    "purge",
)

DEFAULT_EVENTS = 100
MAX_EVENTS = 1000
"""Number of events of one page: the default, and the most."""

CORRECTED, UNDONE, PURGE = "correct", "undo", "purge"
CORRECTS = "corrects"

_EVICTED = {"expired": "expired", "faded": "faded", "replaced": "summarised"}
_WIDE = {ForkScope: "fork", MergeScope: "merge", DropScope: "drop_scope"}


@dataclass(frozen=True, slots=True)
class FactPattern:
    """The facts whose history is asked for.

    Those of a predicate; with `args` those that match them, and with `positive` those of one sign.
    `scope` is as for reads.
    """

    predicate: str
    args: tuple[Term, ...] | None = None
    positive: bool | None = None
    scope: str | None = None

    def selects(self, name: FactKey) -> bool:
        """Return True if a fact is one of these."""
        scope, predicate, args, positive = name
        if predicate != self.predicate or self.scope not in (ALL_SCOPES, scope):
            return False
        if self.positive not in (None, positive):
            return False
        if self.args is None:
            return True
        if len(args) != len(self.args):
            return False
        bound: dict[str, str] = {}
        for term, arg in zip(self.args, args, strict=True):
            if not isinstance(term, Variable):
                if term != arg:
                    return False
            elif term != ANONYMOUS and bound.setdefault(term.name, arg) != arg:
                return False
        return True

    def stored(self, tenant: Tenant, budget: Budget) -> Iterator[FactKey]:
        """Yield the stored facts, including those that are not valid now."""
        for partition in tenant.partitions(self.scope):
            for stored in partition.relations():
                schema = stored.schema
                if schema.predicate != self.predicate or self.positive not in (
                    None,
                    schema.positive,
                ):
                    continue
                args = (ANONYMOUS,) * schema.arity if self.args is None else self.args
                pattern = goal_pattern(args, tenant.engine.find)
                if len(args) != schema.arity or pattern is None:
                    continue
                rows, ids = stored.relation.match(pattern, hidden=True, yield_now=budget.yield_now)
                arity = schema.arity
                for part in budget.slices(len(ids)):
                    texts = tenant.engine.texts(rows[part.start * arity : part.stop * arity])
                    for at in range(0, len(part) * arity, arity) if arity else (0,):
                        arguments = tuple(texts[at : at + arity])
                        yield partition.name, schema.predicate, arguments, schema.positive


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of the history of facts, and the number of all events that the log still has.

    Facts that were stored before `start` have no event that says who asserted them.
    """

    events: list[FactEvent]
    total: int
    start: HistoryStart


class FactHistories(EarlierReads):
    """Histories of facts."""

    def fact_history(
        self,
        pattern: FactPattern,
        *,
        limit: int = DEFAULT_EVENTS,
        offset: int = 0,
        oldest_first: bool = False,
        request_limits: RequestLimits | None = None,
    ) -> HistoryPage:
        """Return what asserted, replaced and removed facts, the newest event first.

        Raises InvalidInput if the storage keeps no history, and BudgetExceeded.
        """
        self._check_history(pattern.scope)
        services, owner = self._whole_services(), (self.database, self.tenant)
        store, visible = services.log(*owner), services.log_head(*owner)
        events: deque[FactEvent] = deque(maxlen=None if oldest_first else offset + limit)
        total = 0
        tenant = self._read_tenant()  # of a view it has no purges: they count what others had
        with tenant.lock.read():
            purges = tenant.purges.all()
        with self._budget(request_limits) as budget:
            start = services.known_states.start(store, visible, owner, budget)
            states = EarlierStates(
                store, services.scratch(), owner, budget, services.known_states.max_bytes
            )
            states.restore(start.seq)
            purged = [each for each in purges if each.seq == start.seq]
            seen = _Seen(states, lambda whole: self._seen_in(whole, budget))
            for event in _events(states, seen, pattern, purged, visible, budget):
                total += 1
                if not oldest_first or total <= offset + limit:
                    events.append(event)
        ordered = list(events) if oldest_first else list(reversed(events))
        return HistoryPage(ordered[offset:], total, start)

    def _check_history(self, scope: str | None) -> None:
        """Raise InvalidInput if there is no history to read, as in a transaction."""
        self.require_present()
        self._check_scope(scope)


class _Seen:
    """The tenant as a reader sees it while its changes are applied again."""

    def __init__(
        self, states: EarlierStates, seen_in: Callable[[Tenant], Callable[[], Tenant]]
    ) -> None:
        self._states = states
        self._seen_in = seen_in
        self._whole: Tenant | None = None
        self._now: Callable[[], Tenant] | None = None

    def at(self, at: int) -> Tenant:
        """Return what is seen after the changes that were applied, at a time in epoch ms."""
        whole = self._states.tenant(at)
        if self._now is None or whole is not self._whole:  # it was emptied, and begins again
            self._whole, self._now = whole, self._seen_in(whole)
        return self._now()


def _events(
    states: EarlierStates,
    seen: _Seen,
    pattern: FactPattern,
    purges: list[PurgeRecord],
    upto: int,
    budget: Budget,
) -> Iterator[FactEvent]:
    for purge in purges:
        yield FactEvent(PURGED, PURGE, purge.at, purge.seq, count=purge.facts)
    for change in states.records(upto):
        yield from _of_change(states, seen, change, pattern, budget)


def _of_change(
    states: EarlierStates, seen: _Seen, change: LoggedChange, pattern: FactPattern, budget: Budget
) -> Iterator[FactEvent]:
    changes = change.changes()
    tenant = seen.at(change.at)
    tenant.advance(change.at)  # which facts had expired before the change
    names = [name for name in named_facts(tenant, changes.changes) if pattern.selects(name)]
    wide = is_wide(changes.changes)
    if wide:
        names += pattern.stored(tenant, budget)
    before = {name: _row(tenant, name) for name in dict.fromkeys(names)}
    states.apply(change)
    tenant = seen.at(change.at)
    if wide:
        for name in pattern.stored(tenant, budget):
            before.setdefault(name, (None, False))
    causes = _Causes(changes)
    for name in budget.paced(sorted(before, key=repr)):
        row, expired = before[name]
        after, _ = _row(tenant, name)
        if row == after:
            continue
        if after is not None and (row is None or expired):
            event, row = ASSERTED, None
        elif after is None:
            event = RETRACTED
        else:
            event = REPLACED
        cause, reason = causes.of(name, after)
        yield FactEvent(
            event,
            cause,
            change.at,
            change.seq,
            row,
            after,
            change.request,
            change.transaction,
            changes.key,
            reason=reason,
            undoes=changes.undoes,
        )


class _Causes:
    """The causes of the changes of facts in one change set, and the corrections in it."""

    def __init__(self, changes: ChangeSet) -> None:
        self._undone = changes.undoes is not None
        self._purges = False
        self._facts: dict[FactKey, tuple[int, str]] = {}
        self._scopes: dict[str | None, tuple[int, str]] = {}
        self._corrections: dict[tuple[str | None, str] | FactKey, str] = {}
        for index, change in enumerate(changes.changes):
            self._add(index, change)
        if len(changes.changes) > 1:  # a correction also retracts; metadata alone corrects nothing
            for change in changes.changes:
                for fact in change.facts if isinstance(change, AssertFacts) else ():
                    self._add_correction(fact)

    def of(self, name: FactKey, after: Row | None) -> tuple[str, str | None]:
        """Return the kind of change that concerned a fact last, and the reason of a correction."""
        if self._undone:
            return UNDONE, None
        scope, predicate, args, positive = name
        text = print_atom(Atom(predicate, args, positive))
        reason = self._corrections.get(name) or self._corrections.get((scope, text))
        if reason is not None:
            return CORRECTED, reason
        known = (self._facts.get(name), self._scopes.get(scope))
        last = max((each for each in known if each is not None), default=None)
        return ("retract" if after is None else "assert") if last is None else last[1], None

    def _add(self, index: int, change: Change) -> None:
        if isinstance(change, EvictFacts):
            self._add_facts(index, _EVICTED[change.reason.value], change.rows)
        elif isinstance(change, AssertRows):
            self._add_facts(index, "assert", change.rows)
        elif isinstance(change, AddEvidence | AssertFacts):
            cause = "assert" if isinstance(change, AssertFacts) else "evidence"
            self._facts.update((fact.key, (index, cause)) for fact in change.facts)
        elif isinstance(change, EndFacts):
            self._facts.update((fact.key, (index, "supersede")) for fact in change.facts)
        elif isinstance(change, ForkScope | MergeScope):
            self._scopes[change.target] = index, _WIDE[type(change)]
        elif isinstance(change, DropScope):
            self._scopes[change.scope] = index, _WIDE[DropScope]
        elif isinstance(change, PurgeMemory):
            self._purges = True
        elif isinstance(change, RestoreFacts):
            self._undone = not self._purges  # early records do not say what they undo
            self._facts.update((fact.key, (index, PURGE)) for fact in change.facts)

    def _add_facts(self, index: int, cause: str, rows: tuple[FactRows, ...]) -> None:
        self._facts.update((fact.key, (index, cause)) for part in rows for fact in part.facts())

    def _add_correction(self, fact: Fact) -> None:
        correction = fact.metadata.get(CORRECTS)
        if isinstance(correction, dict) and isinstance(reason := correction.get("reason"), str):
            self._corrections[fact.key] = reason
            if isinstance(old := correction.get("fact"), str):
                self._corrections[fact.scope, old] = reason


def _row(tenant: Tenant, name: FactKey) -> tuple[Row | None, bool]:
    """Return a stored fact, None if it does not exist, and True if it has expired."""
    scope, predicate, args, positive = name
    partition = tenant.partition(scope)
    stored = partition.get(RelationSchema(predicate, len(args), positive)) if partition else None
    symbols = array("I", [tenant.engine.find(arg) for arg in args])
    if stored is None or 0 in symbols:
        return None, False
    ids = stored.relation.locate(symbols, 1)
    if ids[0] == NO_ROW:
        return None, False
    return stored.rows(tenant.engine, symbols, ids)[0], tuple(symbols) in stored.expired
