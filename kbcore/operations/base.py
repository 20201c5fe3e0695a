"""Base class of tenant handles: read locks, partitions, request budgets and the rows of a goal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from kbcore.clock import Clock
from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.operations.slow_log import MIN_LISTED_MS, PLAN_MS, SlowGoals, SlowRun, log_slow_goal
from kbcore.plug.ports import Evaluation
from kbcore.reason.admission import Admission, Caller
from kbcore.reason.budget import NO_LIMITS, Budget, Deadline, Notes, RequestLimits
from kbcore.reason.external.rows import RowsNeeded
from kbcore.reason.options import AnswerOptions, FactOptions, GoalOptions
from kbcore.reason.predicates import MissingPredicate, Signature, unknown_predicates
from kbcore.reason.stored_facts import StoredPattern
from kbcore.state.changes import Change, ChangeSet, Delta, Depends
from kbcore.state.facts import Row
from kbcore.state.names import check_name, is_name
from kbcore.state.partition import Partition
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.engine.backend import RunLimits
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.pacing import YieldNow, begin_yielding, end_yielding, go_on

if TYPE_CHECKING:
    from kbcore.operations.services import Services
    from kbcore.plug.manager import Plugins
    from kbcore.reason.external.predicates import TextSearcher


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Actor:
    """The API key that a request was made with; administrators may change what others own."""

    name: str
    is_admin: bool


class TenantHandle:
    """Handle on one tenant of a runtime: what all parts of a knowledge base share.

    `caller` is the client that waits for the result, or None if it cannot disconnect. `actor` is
    the key of the request, None for programs in this process and servers without keys. `instant`
    is the one whose knowledge is read, in epoch milliseconds; None is the present.
    """

    actor: Actor | None = None
    instant: int | None = None

    def __init__(
        self, services: Services, database: str, tenant: str, caller: Caller | None = None
    ) -> None:
        self._services = services
        self._caller = caller
        self.database = database
        self.tenant = tenant

    def plugins(self) -> Plugins:
        """Return the loaded plugins."""
        return self._services.plugins

    def _answers(
        self,
        tenant: Tenant,
        literal: Literal,
        options: AnswerOptions,
        budget: Budget,
    ) -> list[tuple[Partition, list[Row]]]:
        """Return the rows of each partition; `limit` and `offset` apply across partitions."""
        limit, offset, min_confidence = options.limit, options.offset, options.min_confidence
        first = None if limit is None or min_confidence is not None else limit + offset
        goal = GoalOptions(options.as_of, first, options.include_undefined, first is None)
        reasoner = self._services.reasoner(tenant)
        answers = []
        for partition in self._partitions(tenant, options.scope):
            rows = reasoner.rows(partition, literal, budget, goal)
            if min_confidence is not None:
                rows = [
                    row
                    for row in rows
                    if row["confidence"] is None or row["confidence"] >= min_confidence
                ]
            if offset or limit is not None:
                skipped = min(offset, len(rows))
                rows = rows[skipped : None if limit is None else skipped + limit]
                offset, limit = offset - skipped, None if limit is None else limit - len(rows)
            answers.append((partition, rows))
        return answers

    def _stored_rows(
        self,
        tenant: Tenant,
        pattern: StoredPattern,
        options: FactOptions,
        budget: Budget,
        notes: Notes | None = None,
    ) -> list[Row]:
        """Return the stored facts that match a pattern, partition by partition.

        With `notes`, all facts that match are counted.
        """
        search = self._services.reasoner(tenant).fact_search(pattern, options)
        arity = len(pattern.args)
        result: list[Row] = []
        partitions = self._partitions(tenant, options.scope)
        for _, stored, facts in search.pages(partitions, budget, notes):
            for part in budget.slices(facts.row_count):
                rows = facts.symbols[part.start * arity : part.stop * arity]
                ids = stored.relation.locate(rows, len(part))
                result.extend(stored.rows(tenant.engine, rows, ids, options.as_of))
        return result

    @property
    def clock(self) -> Clock:
        """The clock of the node."""
        return self._services.clock

    def unknown_predicates(
        self, signatures: Iterable[Signature], scope: str | None = None
    ) -> list[MissingPredicate]:
        """Return the given predicates that have no facts and no rules.

        A predicate is a name and an arity; None as the arity stands for any arity.
        """
        tenant = self._read_tenant()
        with tenant.lock.read():
            external = self._services.predicates
            provided = () if external is None else external.signatures
            return unknown_predicates(tenant, signatures, scope, provided)

    def _commit(
        self,
        changes: tuple[Change, ...],
        check: Callable[[], None] | None = None,
        depends: Depends | None = None,
        undoes: int | None = None,
        yield_now: YieldNow = go_on,
    ) -> Delta:
        """Make changes durable and apply them, unless `check` raises on the state at the write.

        `depends` lists the inputs of the check (None: everything). `undoes` is the number of the
        change that these changes undo. `yield_now` is called about once a millisecond until the
        changes wait for the log; what it raises refuses them.
        """
        return self._services.commit(
            ChangeSet(
                self.database,
                self.tenant,
                changes,
                check,
                depends,
                undoes=undoes,
                yield_now=yield_now,
            )
        )

    def require_present(self) -> None:
        """Raise InvalidInput if this handle reads an earlier state."""
        if self.instant is not None:
            raise InvalidInput.at(
                "knownAt", "is not available here: this reads the present state only"
            )

    def _check_writable(self, scope: str | None) -> None:
        """Raise InvalidInput if nothing can be written to a scope."""
        if scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "'*' can be read, not written")
        self._check_scope(scope)

    def _check_scope(self, scope: str | None, tenant: Tenant | None = None) -> None:
        """Raise InvalidInput if a scope (None: the base partition) has no valid name.

        Scopes that an earlier version stored under such a name can still be used. A caller that
        holds the read lock of the `tenant` passes it.
        """
        if scope in (None, ALL_SCOPES) or (isinstance(scope, str) and is_name(scope)):
            return
        if scope not in (tenant or self._read_tenant()).scopes():
            check_name("scope", scope)

    def _read_tenant(self) -> Tenant:
        return self._services.read_tenant(self.database, self.tenant)

    def _partitions(self, tenant: Tenant, scope: str | None) -> list[Partition]:
        """Return the partitions that a read covers.

        If nothing is stored yet, return an empty partition, because rules may still derive rows.
        """
        partitions = tenant.partitions(scope)
        if not partitions:
            self._check_scope(scope, tenant)
            partitions = [tenant.new_partition(scope)]
        return partitions

    def _reads(
        self,
        request_limits: RequestLimits | None,
        notes: Notes | None = None,
        kind: str = "other",
        goal: Sequence[BodyItem] | None = None,
    ) -> Reading:
        """Return a context manager for a read, whose budget starts now.

        The duration is counted as a read of this kind. If `goal` is given, plugins are notified.
        """
        return Reading(self, kind, goal, self._new_budget(request_limits, notes))

    def _evaluated(
        self,
        evaluate: Callable[[Tenant, Budget], T],
        request_limits: RequestLimits | None,
        notes: Notes | None = None,
        kind: str = "other",
        goal: Sequence[BodyItem] | None = None,
    ) -> T:
        """Return the result of `evaluate` under the tenant's read lock, as `_reads` provides it.

        Where it needs rows of external predicates, they are fetched without the lock, and it is
        called again: it must not have effects before it returns.
        """
        reading = Reading(self, kind, goal, self._new_budget(request_limits, notes))
        with reading as (tenant, budget):
            while True:
                try:
                    return evaluate(tenant, budget)
                except RowsNeeded as needed:
                    rows = needed
                tenant = reading.fetch(rows)

    def _ended(
        self, tenant: Tenant, kind: str, goal: Sequence[BodyItem] | None, budget: Budget
    ) -> None:
        """Release what a read holds, and report the read."""
        budget.release()
        meters, seconds = self._services.meters, budget.clock.monotonic() - budget.begun
        meters.reads[kind](seconds)
        if budget.rows_made:
            meters.fired(budget.rows_made)
        if goal is not None:
            if self._services.reports_goals:
                self._notify_plugins(goal, seconds, budget)
            if seconds * 1000 >= MIN_LISTED_MS:
                self._list_slow_goal(SlowRun(kind, goal, seconds, budget))
            slow_ms = self._services.config.slow_query_ms
            if slow_ms and seconds * 1000 >= slow_ms:
                self._log_slow_goal(tenant, SlowRun(kind, goal, seconds, budget))

    def _list_slow_goal(self, slow: SlowRun) -> None:
        """Add a goal to the list of the stored tenant; a tenant that does not exist has no list."""
        tenant = self._services.find_tenant(self.database, self.tenant)
        if tenant is not None:
            goals = self._slow_goals(tenant)
            goals.add(slow, sys.exc_info()[1], self._services.clock.now_ms())

    def _slow_goals(self, tenant: Tenant) -> SlowGoals:
        return tenant.attached.need(SlowGoals, SlowGoals)

    def _log_slow_goal(self, tenant: Tenant, slow: SlowRun) -> None:
        error = sys.exc_info()[1]
        reasoner = self._services.reasoner(tenant)
        with self._budget(RequestLimits(timeout_ms=PLAN_MS)) as plan_budget, tenant.lock.read():
            log_slow_goal(reasoner, slow, plan_budget, error)

    def _notify_plugins(self, goal: Sequence[BodyItem], seconds: float, budget: Budget) -> None:
        error = sys.exc_info()[0]
        stats = Evaluation(seconds, budget.rows_made, None if error is None else error.__name__)
        self._services.plugins.tell(
            "kb_goal_answered",
            database=self.database,
            tenant=self.tenant,
            goal=tuple(goal),
            stats=stats,
        )

    @contextmanager
    def _budget(self, request_limits: RequestLimits | None = None) -> Iterator[Budget]:
        """Yield a budget that starts now; a slot taken with it is released at the end."""
        budget = self._new_budget(request_limits)
        try:
            yield budget
        finally:
            budget.release()

    def _deadline(self, request_limits: RequestLimits | None = None) -> Deadline:
        """Return what long work before an evaluation calls: it ends with the time of the
        request.
        """
        services = self._services
        own = None if request_limits is None else request_limits.timeout_ms
        timeout_ms = _lower(own, services.config.query_timeout_ms)
        return Deadline(services.clock, timeout_ms, services.yield_now)

    def _new_budget(
        self, request_limits: RequestLimits | None, notes: Notes | None = None
    ) -> Budget:
        """Return a budget with the limits of the settings, lowered as requested.

        The caller must call `budget.release()` at the end.
        """
        services = self._services
        config, clock, limits = services.config, services.clock, services.limits
        timeout_ms, max_answers = config.query_timeout_ms, config.query_max_answers
        if request_limits is not None and request_limits is not NO_LIMITS:
            limits = RunLimits(
                _lower(request_limits.rows, limits.rows),
                _lower(request_limits.bytes, limits.bytes),
                _lower(request_limits.steps, limits.steps),
            )
            timeout_ms = _lower(request_limits.timeout_ms, timeout_ms)
            max_answers = _lower(request_limits.answers, max_answers)
        return Budget(
            limits,
            timeout_ms,
            clock.monotonic() + timeout_ms / 1000,
            max_answers,
            clock,
            Admission(services.slots, (self.database, self.tenant), self._caller),
            services.offload,
            services.yield_now,
            notes=notes or Notes(),
            max_proof_nodes=config.query_max_proof_nodes,
            now=clock.now_ms(),
        )


class Reading:
    """Context manager of a read: yields the tenant under its read lock, and the request's
    budget.
    """

    __slots__ = ("_budget", "_goal", "_handle", "_kind", "_lock", "_tenant", "_token")

    _lock: AbstractContextManager[None] | None

    def __init__(
        self, handle: TenantHandle, kind: str, goal: Sequence[BodyItem] | None, budget: Budget
    ) -> None:
        self._handle = handle
        self._kind = kind
        self._goal = goal
        self._budget = budget

    def __enter__(self) -> tuple[Tenant, Budget]:
        handle = self._handle
        self._tenant = tenant = handle._read_tenant()
        self._lock = tenant.lock.read()
        try:
            self._lock.__enter__()
        except BaseException:  # such as KeyboardInterrupt: `__exit__` is not called
            handle._ended(tenant, self._kind, None, self._budget)
            raise
        self._token = begin_yielding(self._budget.yield_compiling)
        if tenant.failed is not None:  # by the writer that this read waited for
            self.__exit__(None, None, None)
            raise tenant.failed
        # Facts are shown as of the last advance, which may be later if the lock was waited for.
        self._budget.now = tenant.at(self._budget.now or 0)
        return tenant, self._budget

    def fetch(self, needed: RowsNeeded) -> Tenant:
        """Fetch rows of external predicates without the lock; return the tenant as it is then."""
        budget, lock = self._budget, self._lock
        budget.external = needed.rows
        budget.notes.warnings = budget.proof_nodes = 0  # of the evaluation that did not end
        self._lock = None
        if lock is not None:
            lock.__exit__(None, None, None)
        needed.fetch(budget, cast("TextSearcher", self._handle))
        self._tenant = tenant = self._handle._read_tenant()
        lock = tenant.lock.read()
        lock.__enter__()
        self._lock = lock
        return tenant

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end_yielding(self._token)
        if self._lock is not None:
            self._lock.__exit__(kind, error, trace)
        handle = self._handle
        if isinstance(error, BudgetExceeded):
            handle._services.meters.exceeded(error)
        handle._ended(self._tenant, self._kind, self._goal, self._budget)


def _lower(requested: int | None, maximum: int) -> int:
    return maximum if requested is None else min(requested, maximum)
