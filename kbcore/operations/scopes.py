"""Operations on whole scopes: fork, compare, merge and drop."""

from __future__ import annotations

from collections.abc import Callable

from kbcore.branching.compare import compare
from kbcore.branching.fork import check_fork, check_known, one_scope
from kbcore.branching.merge import Stamp, constant_decision, decide, refuse_conflicts, stamp
from kbcore.errors import Conflict, InvalidInput
from kbcore.operations.base import TenantHandle
from kbcore.plug.ports import Keep, MergeStrategy
from kbcore.state.changes import Delta, DropScope, ForkScope, MergeScope, Outdated
from kbcore.state.merging.labelled import refuse_labelled_facts
from kbcore.state.names import check_name
from kbcore.state.tenant import Tenant
from kbtypes.results import ForkOutcome, MergeOutcome, ScopeDiff

SOURCE_WINS = "SOURCE_WINS"

MAX_ATTEMPTS = 8
"""Maximum number of attempts at a merge whose scopes change during the merge."""


class ScopeMethods(TenantHandle):
    """Operations of a knowledge base on whole scopes; None is the base partition."""

    def scopes(self) -> list[str]:
        """Return the names of the scopes, sorted, without the base partition.

        A scope exists if it was written to or forked, or has rules of its own.
        """
        tenant = self._whole_tenant()
        with tenant.lock.read():
            return tenant.scopes()

    def fork_scope(
        self, source: str | None, target: str, *, overwrite: bool = False
    ) -> ForkOutcome:
        """Copy all facts of a scope, valid now or not, and its own rules, to a new scope.

        Raises NotFound for an unknown source, and AlreadyExists if the target exists and may not be
        overwritten.
        """
        one_scope("sourceScope", source)
        if one_scope("targetScope", target) is None or target == source:
            raise InvalidInput.at("targetScope", "must name another scope than the source")
        check_name("targetScope", target)
        fork = ForkScope(source, target, overwrite)
        delta = self._commit(
            (fork,), lambda: check_fork(self._whole_tenant(), source, target, overwrite)
        )
        return ForkOutcome(delta.details["copied"], delta.at)

    def drop_scope(self, scope: str) -> int:
        """Remove a scope with its facts and its own rules, and return the number of removed facts.

        Raises NotFound.
        """
        if one_scope("scope", scope) is None:
            raise InvalidInput.at("scope", "the base cannot be deleted")
        delta = self._commit((DropScope(scope),), lambda: check_known(self._whole_tenant(), scope))
        return int(delta.details["deleted"])

    def diff_scopes(self, source: str | None, target: str | None) -> ScopeDiff:
        """Return the differences between two scopes, for facts valid now.

        Raises NotFound and BudgetExceeded.
        """
        tenant = self._whole_tenant()
        with self._budget() as budget, tenant.lock.read():
            self._check_both(tenant, source, target)
            return compare(tenant, source, target, budget)

    def merge_scope(
        self, source: str | None, target: str | None = None, *, strategy: str = SOURCE_WINS
    ) -> MergeOutcome:
        """Merge the facts of the source into the target, all or none; the source does not change.

        Rules are not merged. A conflict is an atom for which the scopes differ in sign, confidence,
        validity or metadata; the strategy decides the conflict. Expired facts count as absent.
        Raises NotFound, Conflict if the strategy refuses, and InvalidInput that lists the
        strategies.
        """
        if target == source:
            raise InvalidInput.at("targetScope", "is the source")
        strategies = self._services.plugins.merge_strategies()
        merge_strategy = strategies.get(strategy)
        if merge_strategy is None:
            raise InvalidInput.at("strategy", f"must be one of {', '.join(sorted(strategies))}")
        decision = constant_decision(strategy, merge_strategy)
        if decision is None:
            delta = self._merge_by_conflict(source, target, strategy, merge_strategy)
        else:
            delta = self._merge(source, target, decision)
        return MergeOutcome(delta.details["merged"], delta.details["conflicts"], strategy, delta.at)

    # -- inside ------------------------------------------------------------------------------------

    def _merge(self, source: str | None, target: str | None, keep: Keep) -> Delta:
        """Merge with one fixed decision for every conflict."""
        at = self._at(self._whole_tenant())

        def check() -> None:
            tenant = self._whole_tenant()
            self._check_both(tenant, source, target)
            if keep is Keep.REFUSE:
                with self._budget() as budget, tenant.lock.read():
                    refuse_conflicts(tenant, source, target, at, budget)

        decision = Keep.SOURCE if keep is Keep.REFUSE else keep
        return self._commit((MergeScope(source, target, at, decision),), check)

    def _merge_by_conflict(
        self, source: str | None, target: str | None, name: str, strategy: MergeStrategy
    ) -> Delta:
        """Merge with a strategy that decides each conflict on the state at the write."""
        for _ in range(MAX_ATTEMPTS):
            tenant = self._whole_tenant()
            with self._budget() as budget, tenant.lock.read():
                self._check_both(tenant, source, target)
                seen, at = stamp(tenant, source, target), self._at(tenant)
                change = decide(tenant, source, target, name, strategy, at, budget)
                refuse_labelled_facts(tenant, change, budget.yield_now)
            try:
                return self._commit((change,), self._unless_changed(seen, source, target))
            except Outdated:
                continue
        raise Conflict(
            "the scopes change too often for this strategy to decide; try again", {"reason": "busy"}
        )

    def _unless_changed(
        self, seen: Stamp, source: str | None, target: str | None
    ) -> Callable[[], None]:
        def check() -> None:
            if stamp(self._whole_tenant(), source, target) != seen:
                raise Outdated("the scopes have changed")

        return check

    def _check_both(self, tenant: Tenant, source: str | None, target: str | None) -> None:
        """Raise NotFound if one of two scopes does not exist.

        The tenant is that of the caller, who may hold its read lock: to ask for it again would wait
        for the write lock, and so forever, if facts have become due since.
        """
        if tenant.failed is not None:  # by the writer that this read waited for
            raise tenant.failed
        check_known(tenant, one_scope("sourceScope", source))
        check_known(tenant, one_scope("targetScope", target))

    def _whole_tenant(self) -> Tenant:
        """Return the tenant with all its scopes."""
        return self._read_tenant()

    def _at(self, tenant: Tenant) -> int:
        return tenant.at(self._services.clock.now_ms())
