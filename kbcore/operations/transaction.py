"""Knowledge base inside a transaction: writes are staged, and reads see staged and stored facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kbcore.branching.preview import DEFAULT_LISTED, Proposal, TruthPreview
from kbcore.context.proofs.violations import Violation, violations
from kbcore.durable.records import encode_changes
from kbcore.durable.transactions import (
    FactName,
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
    declares_inputs,
)
from kbcore.state.overlay import Overlay
from kbcore.state.tenant import ALL_SCOPES, NO_INPUTS, Tenant
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
        def evaluate(tenant: Tenant, budget: Budget) -> list[Violation]:
            partitions = self._partitions(tenant, ALL_SCOPES)
            return violations(self._services.reasoner(tenant), partitions, budget)

        return StagedConstraints(lambda: self._evaluated(evaluate, None))

    def _whole_tenant(self) -> Tenant:
        raise InvalidInput("operations on whole scopes cannot be part of a transaction")

    def known_at(
        self, instant: int | None, request_limits: RequestLimits | None = None
    ) -> TransactionKB:
        """Raise InvalidInput for an instant: a transaction reads the state that it changes."""
        if instant is not None:
            raise InvalidInput.at("knownAt", "cannot be used in a transaction")
        return self

    def _check_history(self, scope: str | None) -> None:
        raise InvalidInput("histories cannot be read in a transaction")

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
        yield_now, now = self._services.yield_now, self._services.clock.now_ms()
        tenant = self._services.find_tenant(self.database, self.tenant)
        checked = NO_INPUTS if tenant is None else tenant.inputs_state
        staged, check, depends = transaction.changes(), self._check, transaction.depends()
        if any(map(declares_inputs, staged)):
            check = partial(self._check_again, None, staged, self._check, yield_now)
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
            delta = self._services.commit(changes)
        except (RateLimited, StorageFull, NotReady) as error:
            self._writes = False
            transaction.uncertain |= isinstance(error, Unconfirmed)
            raise
        self._services.transactions.end(transaction, TransactionState.COMMITTED)
        return delta

    def roll_back(self) -> None:
        """Discard the staged changes."""
        self._services.transactions.end(self.transaction, TransactionState.ROLLED_BACK)

    # -- inside ------------------------------------------------------------------------------------

    def _read_tenant(self, now: int | None = None) -> Tenant:
        """Return the transaction's overlay, advanced to the current time and committed state.

        A time before the call does not do: the committed state is advanced in it.
        """
        transaction = self.transaction
        transaction.see(self._services.find_tenant(self.database, self.tenant))
        overlay = transaction.overlay
        now = self._services.clock.now_ms()
        if overlay is not None:
            with overlay.base.lock.read():
                transaction.reads.aged |= overlay.due(now)
                current = (
                    transaction.base is None or overlay.base is transaction.base
                ) and not overlay.outdated()
            if current:
                with overlay.lock.write():
                    overlay.renew(now)
                overlay.noting = self._noting
                return overlay
            overlay.drop()
        base = transaction.base or self._services.read_tenant(self.database, self.tenant)
        overlay = transaction.overlay = Overlay(base, transaction.reads)
        if transaction.staged:
            play(overlay, transaction.staged, now, self._services.yield_now)
        overlay.noting = self._noting
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
        if check is not None:
            check()
        overlay = self.transaction.overlay
        seen = overlay or self._services.find_tenant(self.database, self.tenant)
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
            if self.transaction.overlay is not None:
                self.transaction.overlay.forget()

    def _stage(self, changes: tuple[Change, ...], yield_now: YieldNow) -> Delta:
        transaction = self.transaction
        self._check_size(changes, yield_now)
        tenant = self._services.find_tenant(self.database, self.tenant)
        transaction.see(tenant)
        now = self._services.clock.now_ms()
        simple = transaction.overlay is None and all(
            isinstance(change, AssertFacts | AssertRows) for change in changes
        )
        view = None if simple else self._read_tenant()
        delta = self._record_before(changes, now, yield_now)
        if isinstance(view, Overlay):
            delta = play(view, changes, now, yield_now)
        transaction.staged.extend(changes)
        return delta

    def _check_size(self, changes: tuple[Change, ...], yield_now: YieldNow) -> None:
        transaction, config = self.transaction, self._services.config
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
                if isinstance(change, RetractPattern) and transaction.overlay is not None:
                    transaction.overlay.noting = True
                    transaction.overlay.note((change.scope, change.predicate, len(change.pattern)))
                    transaction.overlay.noting = self._noting
        return delta

    def _check(self) -> None:
        """Raise Conflict if something that the transaction depends on has changed."""
        transaction = self.transaction
        tenant = self._services.find_tenant(self.database, self.tenant)
        transaction.see(tenant)
        tenant = tenant or self._services.read_tenant(self.database, self.tenant)
        with tenant.lock.read():
            transaction.check(tenant, self._services.clock.now_ms())


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

    def __init__(self, services: Services, database: str, tenant: str) -> None:
        self._services = services
        self.database = database
        self.tenant = tenant
        self.id = services.begin(database, tenant)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            with self._services.in_transaction(
                self.database, self.tenant, self.id, writes=name in WRITES
            ) as kb:
                return getattr(kb, name)(*args, **options)

        return operation


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
