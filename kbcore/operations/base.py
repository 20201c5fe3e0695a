"""Base class of tenant handles: read locks, partitions, request budgets and the rows of a goal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from kbcore.clock import Clock
from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.operations.evaluated_goal import EvaluatedGoal, InForce, names_unknown
from kbcore.operations.slow_log import MIN_LISTED_MS, PLAN_MS, SlowGoals, log_slow_goal
from kbcore.plug.ports import Evaluation
from kbcore.reason.admission import Admission, Caller
from kbcore.reason.budget import NO_LIMITS, Budget, Deadline, Notes, RequestLimits
from kbcore.reason.external.rows import RowsNeeded
from kbcore.reason.goal_spans import begin_read, end_read
from kbcore.reason.options import AnswerOptions, FactOptions, GoalOptions
from kbcore.reason.predicates import MissingPredicate, Signature, unknown_predicates
from kbcore.reason.stored_facts import StoredPattern
from kbcore.state.argument_types import check_arguments
from kbcore.state.changes import (
    Change,
    ChangeSet,
    Declare,
    Delta,
    Depends,
    RetractRule,
    UseLabels,
    declares_inputs,
)
from kbcore.state.facts import Row
from kbcore.state.labelling import add_layers, check_labelled, concerns_dimensions, concerns_labels
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.names import check_name, is_name
from kbcore.state.partition import Partition
from kbcore.state.requirements import check_requirements, concerns_requirements
from kbcore.state.tenant import ALL_SCOPES, NO_INPUTS, Tenant
from kbcore.tracing import spans
from kbplanner.engine.backend import RunLimits
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.pacing import YieldNow, begin_yielding, end_yielding, go_on, paced

if TYPE_CHECKING:
    from kbcore.operations.decision_log import DecisionLog
    from kbcore.operations.services import Services
    from kbcore.plug.manager import Plugins
    from kbcore.reason.external.predicates import TextSearcher


T = TypeVar("T")
Handle = TypeVar("Handle", bound="TenantHandle")


@dataclass(frozen=True, slots=True)
class Actor:
    """The API key that a request was made with; administrators may change what others own."""

    name: str
    is_admin: bool


def not_here(field: str) -> InvalidInput:
    """Return the error of what is not available with a view or labels."""
    what = "through a view" if field == "view" else "with labels"
    return InvalidInput.at(field, f"this is not available {what}")


_NAMING_LABELS = (Declare, RetractRule, UseLabels)
"""Changes that name labels, or change what is declared of them."""


class TenantHandle:
    """Handle on one tenant of a runtime: what all parts of a knowledge base share.

    `caller` is the client that waits for the result, or None if it cannot disconnect. `actor` is
    the key of the request, None for programs in this process and servers without keys. `instant`
    is the one whose knowledge is read, in epoch milliseconds; None is the present. `present` are
    the services of now where `instant` is not None. `view` is the view that is read, `labels` are
    those of what is written.
    """

    actor: Actor | None = None
    instant: int | None = None
    present: Services | None = None
    view: Labels = NO_LABELS
    labels: Labels = NO_LABELS
    _snapshot: Snapshot | None = None

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

    def at_once(
        self: Handle,
        ask: Callable[[Handle], T],
        request_limits: RequestLimits | None = None,
    ) -> T:
        """Return the result of `ask`, called with a handle that answers goals from one state.

        The time, the derived rows, the steps, the answers and the nodes of proofs of all these
        goals together stay within the limits; the memory of each goal does. `ask` is called again
        where rows of external predicates had to be fetched: it must not have effects. Raises
        BudgetExceeded, and what `ask` raises.
        """
        snapshot: Snapshot | None = None

        def evaluate(tenant: Tenant, budget: Budget) -> T:
            nonlocal snapshot
            snapshot = Snapshot(tenant, budget, self._in_force)
            handle = copy(self)
            handle._snapshot = snapshot
            return ask(handle)

        try:
            return self._evaluated(evaluate, request_limits, kind="ask")
        finally:
            if snapshot is not None:
                for goal in snapshot.goals:
                    self._decided(goal)
                    self._report(snapshot.tenant, goal)

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

        With `notes`, all facts that match are counted. A fact with several labels has its details
        with each of them as `byLabels`.
        """
        search = self._services.reasoner(tenant).fact_search(pattern, options)
        arity = len(pattern.args)
        result: list[Row] = []
        partitions = self._partitions(tenant, options.scope)
        for _, stored, facts in search.pages(partitions, budget, notes):
            for part in budget.slices(facts.row_count):
                rows = facts.symbols[part.start * arity : part.stop * arity]
                ids = stored.relation.locate(rows, len(part))
                facts_then = stored.rows(tenant.engine, rows, ids, options.as_of)
                if stored.stacked and options.as_of is None:
                    add_layers(tenant, stored, rows, facts_then)
                result.extend(facts_then)
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
        external = self._services.predicates
        provided = () if external is None else external.signatures
        if self._snapshot is not None:
            return unknown_predicates(self._snapshot.tenant, signatures, scope, provided)
        tenant = self._read_tenant()
        with tenant.lock.read():
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
        changes wait for the log; what it raises refuses them. Raises InvalidInput for facts whose
        arguments are not of the types of a strict input, and Conflict for such types that stored
        facts do not have.
        """
        tenant = self._services.find_tenant(self.database, self.tenant)
        checked = NO_INPUTS if tenant is None else tenant.inputs_state
        kinds = set(map(type, paced(changes, yield_now)))
        declares = any(map(declares_inputs, paced(changes, yield_now)))
        if declares or (tenant is not None and tenant.rules.strict_count):
            check_arguments(tenant, changes, self.clock.now_ms(), yield_now)
        if (self.labels or not kinds.isdisjoint(_NAMING_LABELS)) and concerns_labels(
            changes, self.labels
        ):
            depends = None if concerns_dimensions(changes) else _with_rules(depends, check)
            check = partial(self._check_labelled, changes, check)
        if (tenant is not None and tenant.rules.required) or (
            Declare in kinds and concerns_requirements(tenant, changes)
        ):
            check = partial(self._check_requirements, changes, check, yield_now)
            depends = None
        if declares:
            check = partial(self._check_again, _state_of(tenant), changes, check, yield_now)
            depends = None
        yield_now()  # `ChangeSet` looks at all changes once more
        return self._services.commit(
            ChangeSet(
                self.database,
                self.tenant,
                changes,
                check,
                depends,
                undoes=undoes,
                yield_now=yield_now,
                checked_inputs=checked,
            )
        )

    def _check_labelled(
        self, changes: tuple[Change, ...], check: Callable[[], None] | None
    ) -> None:
        """Run `check`, and check the labels of changes on the state at the write."""
        if check is not None:
            check()
        check_labelled(self._stored_tenant(), changes, self.labels)

    def _check_again(
        self,
        state: tuple[int, int] | None,
        changes: tuple[Change, ...],
        check: Callable[[], None] | None,
        yield_now: YieldNow,
    ) -> None:
        """Run `check`, and check declared inputs again if something was stored since `state`."""
        if check is not None:
            check()
        tenant = self._services.find_tenant(self.database, self.tenant)
        if _state_of(tenant) != state:
            check_arguments(tenant, changes, self.clock.now_ms(), yield_now)

    def _check_requirements(
        self, changes: tuple[Change, ...], check: Callable[[], None] | None, yield_now: YieldNow
    ) -> None:
        """Run `check`, and check what predicates with requirements get."""
        if check is not None:
            check()
        tenant = self._stored_tenant()
        check_requirements(tenant, changes, self.labels, self._standing_bodies, yield_now)

    def _standing_bodies(self) -> Iterable[tuple[Labels, Sequence[BodyItem]]]:
        """Return the goals whose answers are kept current, each with its view."""
        return ()

    def _answering(self: Handle, goal: Sequence[BodyItem]) -> Handle:
        """Return the handle that answers a goal: this one, or a view of the level that its
        predicate requires. Raises InvalidInput for a goal that has no answers at one level.
        """
        return self

    def _requires_nothing(self) -> bool:
        """Return True if this handle reads the tenant as it is now, and no predicate of it requires
        a level.
        """
        if self.present is not None:
            return False
        services = self._whole_services() if self.view else self._services
        tenant = services.find_tenant(self.database, self.tenant)
        return tenant is None or not tenant.rules.required

    def _refuse_required(
        self, goals: Iterable[BodyItem], tenant: Tenant, where: str | None = None
    ) -> None:
        """Raise InvalidInput for goals with predicates that require a higher level than this handle
        reads; `where` names the field, the tenant is the one that is read.
        """

    def require_present(self) -> None:
        """Raise InvalidInput if this handle reads an earlier state."""
        if self.instant is not None:
            raise InvalidInput.at(
                "knownAt", "is not available here: this reads the present state only"
            )

    def require_whole(self) -> None:
        """Raise InvalidInput if this handle reads a view, or gives labels to what it writes."""
        for field in ("view", "labels"):
            if getattr(self, field):
                raise not_here(field)

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

    def _read_tenant(self, now: int | None = None) -> Tenant:
        return self._services.read_tenant(self.database, self.tenant, now)

    def _whole_services(self) -> Services:
        """Return the services without the view of this handle."""
        return self._services

    def _seen_in(self, tenant: Tenant, budget: Budget) -> Callable[[], Tenant]:
        """Return a function that returns what this handle sees of a tenant that was rebuilt, as it
        is at each call.
        """
        return lambda: tenant

    def _stored_tenant(self) -> Tenant:
        """Return the tenant itself, also where this handle reads a view of it."""
        return self._read_tenant()  # which a transaction has changed

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
        options: AnswerOptions | None = None,
    ) -> T:
        """Return the result of `evaluate` under the tenant's read lock, as `_reads` provides it.

        Where it needs rows of external predicates, they are fetched without the lock, and it is
        called again: it must not have effects before it returns. With `options`, those of a goal
        whose answers are returned, the decision is logged.
        """
        if self._snapshot is not None:
            self._refuse_required(goal or (), self._snapshot.tenant)
            return self._snapshot.evaluated(evaluate, notes, kind, goal, options)
        handle = self if goal is None or self._requires_nothing() else self._answering(goal)
        reading = Reading(handle, kind, goal, self._new_budget(request_limits, notes), options)
        with reading as (tenant, budget):
            while True:
                try:
                    return evaluate(tenant, budget)
                except RowsNeeded as needed:
                    rows = needed
                tenant = reading.fetch(rows)

    def _in_force(
        self, tenant: Tenant, options: AnswerOptions | None, goal: Sequence[BodyItem]
    ) -> InForce | None:
        """Return what the decision log says about a goal in the state of a tenant, which is locked.

        Where there are masks, a goal with an unknown predicate shows no constants: it may be a
        masked one with another name.
        """
        decisions = self._services.decisions
        if decisions is None or options is None:
            return None
        state = self._with_masks_of_now(decisions, tenant, options)
        if state.masks:
            external = self._services.predicates
            provided = () if external is None else external.signatures
            if names_unknown(tenant, goal, options.scope, {*state.masks, *provided}):
                return state._replace(hides_all=True)
        return state

    def _with_masks_of_now(
        self, decisions: DecisionLog, tenant: Tenant, options: AnswerOptions
    ) -> InForce:
        """Return what the decision log says about the state of a tenant, which is locked.

        Masks of now hide arguments of goals about an earlier state too, in which they may not have
        been declared yet.
        """
        state = decisions.in_force(tenant, options.scope)
        now = self.present and self.present.find_tenant(self.database, self.tenant)
        if not now:
            return state
        with now.lock.read():
            masks = decisions.in_force(now, options.scope).masks
        both = {*state.masks, *masks}
        none: frozenset[int] = frozenset()
        return state._replace(
            masks={key: state.masks.get(key, none) | masks.get(key, none) for key in both}
        )

    def _ended(
        self,
        tenant: Tenant,
        kind: str,
        goal: Sequence[BodyItem] | None,
        budget: Budget,
        options: AnswerOptions | None = None,
        state: tuple[InForce | None, int] = (None, 0),
    ) -> None:
        """Release what a read holds, and report the read."""
        budget.release()
        services, seconds = self._services, budget.clock.monotonic() - budget.begun
        services.meters.reads[kind](seconds)
        if budget.rows_made:
            services.meters.fired(budget.rows_made)
        if goal is None:
            return
        milliseconds, slow_ms = seconds * 1000, services.config.slow_query_ms
        is_reported = (
            milliseconds >= MIN_LISTED_MS or 0 < slow_ms <= milliseconds or services.reports_goals
        )
        if is_reported or state[0] is not None:
            error = sys.exc_info()[1]
            run = EvaluatedGoal(kind, goal, seconds, budget, error, options, *state, budget.answers)
            if state[0] is not None:
                self._decided(run)
            if is_reported:
                self._report(tenant, run)

    def _decided(self, run: EvaluatedGoal) -> None:
        """Write a goal whose answers were returned to the decision log, if there is one."""
        services = self._services
        if services.decisions is not None and run.in_force is not None:
            clock = (self.present or services).clock
            services.decisions.put(run, clock.now_ms(), self.instant)

    def _report(self, tenant: Tenant, run: EvaluatedGoal) -> None:
        """Tell plugins and the lists of slow goals of a goal; no lock of the tenant is held."""
        services, milliseconds = self._services, run.seconds * 1000
        if services.reports_goals:
            self._notify_plugins(run)
        if milliseconds >= MIN_LISTED_MS:
            self._list_slow_goal(run)
        slow_ms = services.config.slow_query_ms
        if slow_ms and milliseconds >= slow_ms:
            self._log_slow_goal(tenant, run)

    def _list_slow_goal(self, slow: EvaluatedGoal) -> None:
        """Add a goal to the list of the stored tenant; a tenant that does not exist has no list."""
        tenant = self._services.find_tenant(self.database, self.tenant)
        if tenant is not None:
            self._slow_goals(tenant).add(slow, self._services.clock.now_ms())

    def _slow_goals(self, tenant: Tenant) -> SlowGoals:
        return tenant.attached.need(SlowGoals, SlowGoals)

    def _log_slow_goal(self, tenant: Tenant, slow: EvaluatedGoal) -> None:
        reasoner = self._services.reasoner(tenant)
        with self._budget(RequestLimits(timeout_ms=PLAN_MS)) as plan_budget, tenant.lock.read():
            log_slow_goal(reasoner, slow, plan_budget)

    def _notify_plugins(self, run: EvaluatedGoal) -> None:
        error = None if run.error is None else type(run.error).__name__
        stats = Evaluation(run.seconds, run.budget.rows_made, error)
        self._services.plugins.tell(
            "kb_goal_answered",
            database=self.database,
            tenant=self.tenant,
            goal=tuple(run.goal),
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
        begun = clock.monotonic()
        return Budget(
            limits,
            timeout_ms,
            begun,
            begun + timeout_ms / 1000,
            max_answers,
            clock,
            Admission(services.slots, (self.database, self.tenant), self._caller),
            services.offload,
            services.yield_now,
            notes=notes or Notes(),
            max_proof_nodes=config.query_max_proof_nodes,
            now=clock.now_ms(),
        )


class Snapshot:
    """A tenant under its read lock, from which the goals of one request are answered.

    Its budget is that of the request. `goals` are those that have ended so far.
    """

    __slots__ = ("_in_force", "budget", "goals", "tenant")

    def __init__(
        self,
        tenant: Tenant,
        budget: Budget,
        in_force: Callable[[Tenant, AnswerOptions | None, Sequence[BodyItem]], InForce | None],
    ) -> None:
        self.tenant = tenant
        self._in_force = in_force
        self.budget = budget
        self.goals: list[EvaluatedGoal] = []
        budget.share()

    def evaluated(
        self,
        evaluate: Callable[[Tenant, Budget], T],
        notes: Notes | None,
        kind: str,
        goal: Sequence[BodyItem] | None,
        options: AnswerOptions | None,
    ) -> T:
        """Return the result of `evaluate` within what the goals before have left of the budget."""
        budget = self.budget
        budget.yield_now()
        own = budget.next_goal(notes or Notes())
        error: BaseException | None = None
        span = None if spans.tracer is None else begin_read(spans.tracer, kind, goal, own)
        try:
            return evaluate(self.tenant, own)
        except RowsNeeded:
            goal = None  # the goal has not ended
            raise
        except BudgetExceeded as raised:
            error = budget.total(raised)
            raise error from raised
        except BaseException as raised:
            error = raised
            raise
        finally:
            answers = own.answers - budget.answers
            if span is not None:
                end_read(span, own, error, answers)
            budget.add(own)
            if goal is not None:
                seconds = budget.clock.monotonic() - own.begun
                tenant = self.tenant
                in_force = self._in_force(tenant, options, goal)
                state = in_force, tenant.generation, answers
                self.goals.append(EvaluatedGoal(kind, goal, seconds, own, error, options, *state))


class Reading:
    """Context manager of a read: yields the tenant under its read lock, and the request's
    budget.
    """

    __slots__ = (
        "_budget",
        "_goal",
        "_handle",
        "_kind",
        "_lock",
        "_options",
        "_span",
        "_tenant",
        "_token",
    )

    _lock: AbstractContextManager[None] | None

    def __init__(
        self,
        handle: TenantHandle,
        kind: str,
        goal: Sequence[BodyItem] | None,
        budget: Budget,
        options: AnswerOptions | None = None,
    ) -> None:
        self._handle = handle
        self._options = options
        self._kind = kind
        self._goal = goal
        self._budget = budget
        self._span = (
            None
            if spans.tracer is None or spans.CURRENT.get() is spans.DROPPED
            else begin_read(spans.tracer, kind, goal, budget)
        )

    def __enter__(self) -> tuple[Tenant, Budget]:
        handle = self._handle
        self._tenant = tenant = handle._read_tenant(self._budget.now)
        self._lock = tenant.lock.read()
        try:
            self._lock.__enter__()
        except BaseException:  # such as KeyboardInterrupt: `__exit__` is not called
            if self._span is not None:
                self._span.end()
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
        budget.notes.warnings = budget.proof_nodes = budget.answers = (
            0  # of the evaluation that did not end
        )
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
        handle, options = self._handle, self._options
        state: tuple[InForce | None, int] = (None, 0)
        if options is not None and handle._services.decisions is not None:
            tenant = self._tenant
            state = handle._in_force(tenant, options, self._goal or ()), tenant.generation
        if self._lock is not None:
            self._lock.__exit__(kind, error, trace)
        if isinstance(error, BudgetExceeded):
            handle._services.meters.exceeded(error)
        if self._span is not None:
            answers = None if self._goal is None else self._budget.answers
            end_read(self._span, self._budget, error, answers)
        handle._ended(self._tenant, self._kind, self._goal, self._budget, options, state)


def _with_rules(depends: Depends | None, check: Callable[[], None] | None) -> Depends | None:
    """Return the inputs of a check, if there is one, and of another one that reads the rules."""
    if check is None:
        return Depends(frozenset(), frozenset(), True)
    return depends and Depends(depends.read, depends.needed, True)


def _lower(requested: int | None, maximum: int) -> int:
    return maximum if requested is None else min(requested, maximum)


def _state_of(tenant: Tenant | None) -> tuple[int, int] | None:
    return None if tenant is None else (tenant.serial, tenant.generation)
