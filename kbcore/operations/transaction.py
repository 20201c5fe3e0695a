"""Knowledge base inside a transaction: writes are staged, and reads see staged and stored facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from kbcore.branching.preview import DEFAULT_LISTED, Proposal, TruthPreview
from kbcore.context.proofs.violations import Violation, violations
from kbcore.durable.records import encode_changes
from kbcore.durable.transactions import (
    FactName,
    SeenState,
    Transaction,
    TransactionState,
    ended,
    play,
    stored_row,
)
from kbcore.errors import InvalidInput, NotReady, RateLimited, StorageFull, TooLarge, Unconfirmed
from kbcore.llm.model import LanguageModel
from kbcore.operations.conflicts import Constraints, StagedConstraints
from kbcore.operations.tenant_kb import TenantKB
from kbcore.operations.views import (
    ALL,
    MAX_ATTEMPTS,
    Grant,
    StateInUse,
    ViewServices,
    as_seen,
    bring_state,
    busy,
    seen_now,
)
from kbcore.proofs.how_to import HowToOptions
from kbcore.reason.admission import Caller
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.options import DEFAULT_OPTIONS, AnswerOptions
from kbcore.state.argument_types import check_arguments
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    Change,
    ChangeSet,
    Delta,
    Depends,
    EndFacts,
    RetractFact,
    RetractPattern,
    UseLabels,
    declares_inputs,
)
from kbcore.state.labelling import (
    check_labelled,
    concerns_dimensions,
    concerns_labels,
    labels_used,
    refuse_more_sets,
)
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.overlay import Overlay
from kbcore.state.requirements import check_requirements, concerns_requirements
from kbcore.state.tenant import ALL_SCOPES, NO_INPUTS, Tenant
from kbcore.state.views import copy_changes
from kbplanner.ir.requirements import Requirement
from kbplanner.ir.terms import BodyItem
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.syntax.diagnostics import counted
from kbtypes.how_to import HowTo
from kbtypes.results import RetractOutcome
from kbtypes.rule_sets import Deployment

if TYPE_CHECKING:
    from kbcore.operations.services import Services


FACTS_PER_YIELD = 100
"""Facts looked up between two calls of `yield_now`: about a millisecond."""


class TransactionKB(TenantKB):
    """Tenant as one transaction sees it, for one operation; `with` locks the transaction.

    If an operation that writes raises an error, the transaction is rolled back.
    """

    def __init__(
        self,
        services: Services,
        transaction: Transaction,
        writes: bool,
        caller: Caller | None = None,
    ) -> None:
        super().__init__(services, transaction.database, transaction.tenant, caller)
        self.transaction = transaction
        self._writes = writes
        self._noting = True

        self._entered = self
        """The handle that locks the transaction, of which this one may be a copy with a view."""

    def __enter__(self) -> TransactionKB:
        transaction = self.transaction
        transaction.operation.acquire()
        if transaction.state is not TransactionState.OPEN:
            transaction.operation.release()
            raise ended(transaction.id, transaction.state)
        transaction.used = self._services.clock.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._writes and self.transaction.state is TransactionState.OPEN:
            self.roll_back()
        self.transaction.used = self._services.clock.monotonic()
        self.transaction.operation.release()

    _can_retry = False

    @contextmanager
    def _transaction(self) -> Iterator[TenantKB]:
        yield self

    def _constraints(self) -> Constraints:
        handle = self._of_own_labels()

        def evaluate(tenant: Tenant, budget: Budget) -> list[Violation]:
            partitions = handle._partitions(tenant, ALL_SCOPES)
            return violations(handle._services.reasoner(tenant), partitions, budget)

        return StagedConstraints(lambda: handle._evaluated(evaluate, None))

    def _whole_tenant(self) -> Tenant:
        raise InvalidInput("operations on whole scopes cannot be part of a transaction")

    def known_at(
        self, instant: int | None, request_limits: RequestLimits | None = None
    ) -> TransactionKB:
        """Raise InvalidInput for an instant: a transaction reads the state that it changes."""
        if instant is not None:
            raise InvalidInput.at("knownAt", "cannot be used in a transaction")
        return self

    def viewed(
        self,
        view: Mapping[str, Any] | None = None,
        labels: Mapping[str, Any] | None = None,
        grant: Grant = ALL,
    ) -> TransactionKB:
        """Return a handle with labels for what it stores, and with the view of the transaction.

        Raises InvalidInput for another view than the transaction was begun with, and what
        `TenantKB.viewed` raises.
        """
        if view is None and labels is None and grant == ALL:
            self._check_view(self.view)
            return self
        noting, self._noting = self._noting, False
        try:
            handle = super().viewed(view, labels, grant)
        finally:
            self._noting = noting
        handle._noting = noting
        self._check_view(handle.view)
        return handle

    def _check_view(self, view: Labels) -> None:
        if view != self.transaction.view:
            raise InvalidInput.at("view", "the transaction was begun with another view")

    def seen_as(self, view: Labels, labels: Labels) -> TransactionKB:
        """Return a handle on this transaction with the view and the labels of another handle."""
        return self._seeing(self._whole_services(), view, labels) if view or labels else self

    def _seeing(self, services: Services, view: Labels, labels: Labels) -> TransactionKB:
        handle = copy(self)
        handle._services = cast("Services", ViewServices(services, labels, view))
        handle.view, handle.labels = view, labels
        return handle

    def _requires_nothing(self) -> bool:
        return False  # the transaction may have declared it

    def _requirement(
        self,
        goal: Iterable[BodyItem],
        tenant: Tenant | None = None,
        view: Labels | None = None,
    ) -> Requirement | None:
        return super()._requirement(goal, tenant or self._whole_overlay(), view)

    def _check_history(self, scope: str | None) -> None:
        raise InvalidInput("histories cannot be read in a transaction")

    def _check_receipt(self) -> None:
        raise InvalidInput("a receipt cannot be made in a transaction")

    def _model(self) -> LanguageModel:
        raise InvalidInput("the language model cannot be used inside a transaction")

    def preview(
        self,
        proposal: Proposal,
        *,
        limit: int = DEFAULT_LISTED,
        request_limits: RequestLimits | None = None,
    ) -> TruthPreview:
        """Raise InvalidInput: a preview compares with the committed state."""
        raise InvalidInput("a preview cannot be part of a transaction")

    def how_to(
        self,
        body: Sequence[BodyItem],
        how: HowToOptions,
        options: AnswerOptions = DEFAULT_OPTIONS,
    ) -> HowTo:
        """Raise InvalidInput: proposals are changes of the committed state."""
        raise InvalidInput.at("howTo", "cannot be used in a transaction")

    def deploy(self, *args: Any, **options: Any) -> Deployment:
        """Raise InvalidInput: a deployment is a change of its own."""
        raise InvalidInput("a deployment cannot be part of a transaction")

    rollback = deploy

    def commit(self) -> Delta:
        """Commit the staged changes durably, all or none.

        Raises Conflict, and rolls back, if something the transaction read or wrote has changed. On
        StorageFull, RateLimited and NotReady the transaction stays open, and the commit can be
        retried. After Unconfirmed it may have been committed: a retry then raises Conflict with
        the state `committed`.
        """
        transaction = self.transaction
        self._check_view(self.view)
        yield_now, now = self._services.yield_now, self._services.clock.now_ms()
        if transaction.view:
            self._read_tenant()
        services = self._whole_services()
        tenant = services.find_tenant(self.database, self.tenant)
        if transaction.view:
            services = cast("Services", ViewServices(services, NO_LABELS, transaction.view))
        checked = NO_INPUTS if tenant is None else tenant.inputs_state
        staged, check, depends = transaction.changes(), self._check, transaction.depends()
        if transaction.stores_labels and tenant is not None:
            refuse_more_sets(tenant, labels_used(staged))
        if concerns_labels(staged) or concerns_requirements(tenant, staged):
            check = partial(self._check_labels_again, staged, check, yield_now)
        if concerns_dimensions(staged) or concerns_requirements(tenant, staged):
            depends = None
        if any(map(declares_inputs, staged)):
            check = partial(self._check_again, None, staged, check, yield_now)
            depends = None
        changes = ChangeSet(
            self.database,
            self.tenant,
            staged,
            check,
            depends,
            transaction.id,
            yield_now=yield_now,
            checked_inputs=checked,
        )
        try:
            check_arguments(tenant, staged, now, yield_now)
            delta = self._commit_when_read(services, changes)
        except (RateLimited, StorageFull, NotReady) as error:
            self._entered._writes = False
            transaction.uncertain |= isinstance(error, Unconfirmed)
            raise
        self._whole_services().transactions.end(transaction, TransactionState.COMMITTED)
        return delta

    def _commit_when_read(self, services: Services, changes: ChangeSet) -> Delta:
        """Commit, after waiting for the readers of the states of views that the check reads."""
        for _ in range(MAX_ATTEMPTS):
            try:
                return services.commit(changes)
            except StateInUse:
                for view in self.transaction.seen:
                    viewed = ViewServices(self._whole_services(), NO_LABELS, view)
                    viewed.read_tenant(self.database, self.tenant)
        raise busy()

    def _check_labels_again(
        self, staged: tuple[Change, ...], check: Callable[[], None], yield_now: YieldNow
    ) -> None:
        """Run `check`, and check the staged labels and requirements on the state at the write."""
        check()
        services = self._whole_services()
        tenant = services.find_tenant(self.database, self.tenant)
        if tenant is None:
            tenant = services.need_tenant(self.database, self.tenant)
        check_labelled(tenant, staged, NO_LABELS)
        if concerns_requirements(tenant, staged):
            whole = TenantKB(services, self.database, self.tenant)
            check_requirements(tenant, staged, NO_LABELS, whole._standing_bodies, yield_now)

    def roll_back(self) -> None:
        """Discard the staged changes."""
        self._whole_services().transactions.end(self.transaction, TransactionState.ROLLED_BACK)

    # -- inside ------------------------------------------------------------------------------------

    def _read_tenant(self, now: int | None = None) -> Tenant:
        """Return the transaction's overlay, advanced to the current time and committed state, or
        what the view of this handle shows of it.

        A time before the call does not do: the committed state is advanced in it.
        """
        return self._seen_overlay() if self.view else self._whole_overlay()

    def _stored_tenant(self) -> Tenant:
        return self._whole_overlay()

    def _seen_overlay(self) -> Overlay:
        """Return what the view of this handle shows of the transaction: the state of the view, with
        what the transaction has changed for it.
        """
        transaction, yield_now = self.transaction, self._services.yield_now
        if transaction.effects is None:
            transaction.effects = []
            if transaction.overlay is not None:
                transaction.overlay.drop()  # made again, with its effects
                transaction.overlay = None
        whole = self._whole_overlay()
        base = self._services.read_tenant(self.database, self.tenant)
        seen = transaction.seen.get(self.view)
        if seen is None:
            seen = transaction.seen[self.view] = SeenState(base)
        elif seen.base is not base:
            seen.drop()
            seen.base, seen.is_lost = base, True
        now, overlay = self._services.clock.now_ms(), seen.overlay
        if overlay is not None:
            with base.lock.read():
                seen.reads.aged |= overlay.due(now)
                is_current = seen.whole is whole and not overlay.outdated()
            if is_current:
                with overlay.lock.write():
                    overlay.renew(now)
            else:
                seen.drop()
                overlay = None
        if overlay is None:
            overlay = seen.overlay = Overlay(base, seen.reads)
            seen.whole = whole
        if seen.copied < len(transaction.effects):
            with (
                whole.unnoted(),
                overlay.unnoted(),
                whole.lock.read(),
                overlay.lock.write(),
            ):
                effects = transaction.effects[seen.copied :]
                copy_changes(whole, overlay, self.view, effects, yield_now)
            seen.copied = len(transaction.effects)
        overlay.noting = self._noting
        return overlay

    def _whole_overlay(self) -> Overlay:
        transaction, services = self.transaction, self._whole_services()
        transaction.see(services.find_tenant(self.database, self.tenant))
        overlay = transaction.overlay
        is_noting = self._noting and not self.view
        now = services.clock.now_ms()
        if overlay is not None:
            with overlay.base.lock.read():
                transaction.reads.aged |= overlay.due(now)
                current = (
                    transaction.base is None or overlay.base is transaction.base
                ) and not overlay.outdated()
            if current:
                with overlay.lock.write():
                    overlay.renew(now)
                overlay.noting = is_noting
                return overlay
            overlay.drop()
        base = transaction.base or services.read_tenant(self.database, self.tenant)
        overlay = transaction.overlay = Overlay(base, transaction.reads)
        effects = transaction.effects
        if transaction.staged:
            staged = tuple(transaction.staged)
            delta = play(overlay, staged, now, services.yield_now, view=transaction.view)
            if effects is not None:
                effects[:] = [(staged, delta)]
        elif effects is not None:
            effects.clear()
        overlay.noting = is_noting
        return overlay

    def _commit(
        self,
        changes: tuple[Change, ...],
        check: Callable[[], None] | None = None,
        depends: Depends | None = None,
        undoes: int | None = None,
        yield_now: YieldNow = go_on,
    ) -> Delta:
        """Stage changes."""
        self._check_view(self.view)
        if check is not None:
            check()
        overlay, services = self.transaction.overlay, self._whole_services()
        seen = overlay or services.find_tenant(self.database, self.tenant)
        if isinstance(self._services, ViewServices):
            self._services.check_changes(
                seen, ChangeSet(self.database, self.tenant, changes, yield_now=yield_now)
            )
        if concerns_requirements(seen, changes):
            tenant = seen or services.need_tenant(self.database, self.tenant)
            check_requirements(tenant, changes, self.labels, tuple, yield_now)
        with nullcontext() if seen is None else seen.unnoted():
            check_arguments(seen, changes, self._services.clock.now_ms(), yield_now)
        return self._stage(changes, yield_now)

    def _check_upkeep(self, scope: str | None) -> None:
        raise InvalidInput("upkeep, purges and undoing cannot be part of a transaction")

    def _retract(
        self,
        changes: Sequence[RetractFact | RetractPattern],
        request_limits: RequestLimits | None,
        count: bool,
    ) -> RetractOutcome:
        """Retract, and report the conclusions that no longer hold.

        The reads for this report are not recorded, because the transaction does not depend on them.
        """
        self._noting = False
        try:
            return super()._retract(changes, request_limits, count)
        finally:
            self._noting = True
            for overlay in (
                self.transaction.overlay,
                *map(_overlay, self.transaction.seen.values()),
            ):
                if overlay is not None:
                    overlay.forget()

    def _stage(self, changes: tuple[Change, ...], yield_now: YieldNow) -> Delta:
        transaction = self.transaction
        if transaction.labels != self.labels:
            changes = (UseLabels(self.labels), *changes)
        self._check_size(changes, yield_now)
        services = self._whole_services()
        tenant = services.find_tenant(self.database, self.tenant)
        transaction.see(tenant)
        now = services.clock.now_ms()
        simple = (transaction.overlay is None and not self.view) and all(
            isinstance(change, AssertFacts | AssertRows | UseLabels) for change in changes
        )
        if not simple:
            self._read_tenant()
        delta = self._record_before(changes, now, yield_now)
        if not simple:
            whole = self._whole_overlay()
            labels, view = transaction.labels, transaction.view
            delta = play(whole, changes, now, yield_now, labels, view)
            if transaction.effects is not None:
                first = (UseLabels(labels),) if labels else ()
                transaction.effects.append(((*first, *changes), delta))
        transaction.staged.extend(changes)
        for change in changes:
            if isinstance(change, UseLabels):
                transaction.labels = change.labels
        return delta if simple or not self.view else as_seen(delta, self._read_tenant(), yield_now)

    def _check_size(self, changes: tuple[Change, ...], yield_now: YieldNow) -> None:
        transaction, config = self.transaction, self._whole_services().config
        transaction.operations += len(changes)
        staged = ChangeSet(self.database, self.tenant, changes, yield_now=yield_now)
        transaction.bytes += len(encode_changes(staged))
        for limit, unit, size, maximum in (
            ("TX_MAX_OPERATIONS", "operation", transaction.operations, config.tx_max_operations),
            ("TX_MAX_BYTES", "byte", transaction.bytes, config.tx_max_bytes),
        ):
            if size > maximum:
                raise TooLarge(
                    f"a transaction takes at most {counted(maximum, unit)}",
                    {"limit": limit, "value": maximum},
                )

    def _record_before(self, changes: Sequence[Change], now: int, yield_now: YieldNow) -> Delta:
        """Record the state of written facts before their first write, for the conflict check.

        Return the delta that assertions alone would cause.
        """
        transaction, delta = self.transaction, Delta(now)
        reading = transaction.overlay
        if self.view:
            seen = transaction.seen[self.view]
            base, reading = seen.base, seen.overlay
        else:
            base = transaction.base or self._services.read_tenant(self.database, self.tenant)
        present = transaction.present
        with base.lock.read():
            for change in changes:
                for name in paced(_asserted(change), yield_now, FACTS_PER_YIELD):
                    is_stored = present.get(name)
                    if is_stored is None:
                        is_stored = stored_row(base, name) is not None
                        if is_stored:
                            transaction.needed.add(name)
                    present[name] = True
                    delta.updated += is_stored
                    delta.asserted += not is_stored
                for name in paced(_retracted(change), yield_now, FACTS_PER_YIELD):
                    if name not in present:
                        transaction.facts[name] = stored_row(base, name)
                    present[name] = False
                if isinstance(change, RetractPattern) and reading is not None:
                    reading.noting = True
                    reading.note((change.scope, change.predicate, len(change.pattern)))
                    reading.noting = self._noting
        return delta

    def _check(self) -> None:
        """Raise Conflict if something that the transaction depends on has changed."""
        transaction, services = self.transaction, self._whole_services()
        tenant = services.find_tenant(self.database, self.tenant)
        transaction.see(tenant)
        tenant = tenant or services.read_tenant(self.database, self.tenant)
        for view, seen in transaction.seen.items():
            if not bring_state(tenant, view, seen.base, services.yield_now):
                if seen_now(tenant, view) is not seen.base:
                    seen.is_lost = True
                    continue
                raise StateInUse("the state of a view is in use")
        with tenant.lock.read():
            transaction.check(tenant, services.clock.now_ms())


WRITES = frozenset(
    {
        "assert_facts",
        "assert_rows",
        "assert_rules",
        "retract_fact",
        "retract_pattern",
        "retract_rule",
        "execute",
        "ingest",
        "add_episode",
        "correct",
        "commit",
    }
)
"""Methods that stage or commit changes: an error in one of them ends the transaction."""


class Operations:
    """Methods of a `TenantKB`, each call one operation of a transaction.

    An error in one of the methods WRITES ends the transaction.
    """

    def __init__(
        self,
        services: Services,
        database: str,
        tenant: str,
        view: Labels = NO_LABELS,
        labels: Labels = NO_LABELS,
        id: str | None = None,
    ) -> None:
        self._services = services
        self.database = database
        self.tenant = tenant
        self.view = view
        self.labels = labels
        self.id = services.begin(database, tenant, view) if id is None else id

    def viewed(
        self, view: Mapping[str, Any] | None = None, labels: Mapping[str, Any] | None = None
    ) -> Operations:
        """Return the same transaction with labels for what is stored; the view is its own."""
        with self._services.in_transaction(self.database, self.tenant, self.id, writes=False) as kb:
            handle = kb.seen_as(self.view, self.labels).viewed(view, labels)
        return Operations(
            self._services, self.database, self.tenant, handle.view, handle.labels, self.id
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            with self._services.in_transaction(
                self.database, self.tenant, self.id, writes=name in WRITES
            ) as kb:
                return getattr(kb.seen_as(self.view, self.labels), name)(*args, **options)

        return operation


def _overlay(seen: SeenState) -> Overlay | None:
    return seen.overlay


def _asserted(change: Change) -> Iterator[FactName]:
    if isinstance(change, AssertFacts):
        for fact in change.facts:
            yield fact.scope, fact.predicate, fact.args, fact.positive
    elif isinstance(change, AssertRows):
        for rows in change.rows:
            for fact in rows.facts():
                yield fact.scope, fact.predicate, fact.args, fact.positive


def _retracted(change: Change) -> Iterator[FactName]:
    if isinstance(change, EndFacts):
        for fact in change.facts:
            yield fact.key
    elif isinstance(change, RetractFact):
        for positive in (True, False) if change.positive is None else (change.positive,):
            yield change.scope, change.predicate, change.args, positive
