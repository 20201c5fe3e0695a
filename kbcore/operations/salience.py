"""Memory of a knowledge base: salience, decay, consolidation, priorities and recall."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kbcore.context.salience import Scores
from kbcore.errors import InvalidInput, NotFound
from kbcore.operations.base import TenantHandle
from kbcore.operations.memory_spans import memory_span
from kbcore.reason.options import FactOptions
from kbcore.reason.stored_facts import StoredPattern
from kbcore.state.changes import SetPriority
from kbcore.state.facts import Row
from kbcore.upkeep.consolidate import consolidate
from kbcore.upkeep.decay import decay
from kbcore.upkeep.evict import UpkeepTarget
from kbplanner.engine.backend import NO_ROW
from kbplanner.ir.terms import Term
from kbtypes.results import ConsolidateOutcome, DecayOutcome

DECAY_THRESHOLD = 0.05
"""Default salience below which decay evicts a fact."""

LEAST_GROUP = 5
"""Default minimum number of facts with the same first argument that are consolidated."""


class SalienceMethods(TenantHandle):
    """Memory of a knowledge base.

    Decay, consolidation and priorities write to one partition: the base partition if `scope` is
    None. Transactions do not support them.
    """

    def decay(
        self, threshold: float = DECAY_THRESHOLD, *, scope: str | None = None, dry_run: bool = False
    ) -> DecayOutcome:
        """Evict expired facts, and valid facts whose salience is below `threshold` (0 to 1).

        Facts that are not valid yet stay. With `dry_run` nothing changes; each row gives the reason
        as `why`. Raises BudgetExceeded before any change.
        """
        self._check_upkeep(scope)
        _from_0_to_1("threshold", threshold)
        now = self._services.clock.now_ms()
        with self._budget() as budget:
            return decay(
                self._upkeep(), scope, threshold, self._services.scorer, budget, now, dry_run
            )

    def consolidate(
        self,
        *,
        min_group_size: int = LEAST_GROUP,
        predicates: Sequence[str] | None = None,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> ConsolidateOutcome:
        """Consolidate facts that share predicate, arity and first argument.

        A group needs at least `min_group_size` facts (2 or more). Its summary is
        `<predicate>_consolidated(<first argument>, <count>)`. Every run updates the summary, or
        removes it if the group has become too small. The facts stay. With `dry_run` nothing
        changes.
        """
        self._check_upkeep(scope)
        if min_group_size < 2:
            raise InvalidInput.at("minGroupSize", "must be at least 2")
        now = self._services.clock.now_ms()
        with self._budget() as budget:
            outcome = consolidate(
                self._upkeep(), scope, predicates, min_group_size, budget, now, dry_run
            )
        if not dry_run:
            self._services.meters.consolidated(outcome.consolidated)
        return outcome

    def prioritize(
        self,
        predicate: str,
        args: Sequence[str],
        priority: float,
        *,
        positive: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Set the priority of a stored fact, 0 to 1; raises NotFound.

        `positive` selects one sign; None selects both.
        """
        self._check_upkeep(scope)
        _from_0_to_1("priority", priority)

        def check() -> None:
            tenant = self._read_tenant()
            with tenant.lock.read():
                partition = tenant.partition(scope)
                symbols = array("I", [tenant.engine.find(arg) for arg in args])
                for stored in partition.named(predicate, len(args), positive) if partition else ():
                    if (
                        stored.relation.locate(symbols, 1)[0] != NO_ROW
                        and tuple(symbols) not in stored.expired
                    ):
                        return
            raise NotFound(
                "no such fact is stored",
                {"predicate": predicate, "args": list(args), "scope": scope},
            )

        change = SetPriority(predicate, tuple(args), float(priority), positive, scope)
        self._commit((change,), check)

    @memory_span("search_memory", len)
    def salient(
        self,
        predicate: str | None = None,
        args: Sequence[Term] | None = None,
        *,
        limit: int = 50,
        minimum: float = 0.0,
        scope: str | None = None,
    ) -> list[Row]:
        """Return the stored facts with the highest salience, best first, each with its `salience`.

        `predicate` None means all predicates; `args` None means every arity. The returned facts
        count as accessed. Raises BudgetExceeded.
        """
        _from_0_to_1("minSalience", minimum)
        with self._reads(None, kind="salient") as (tenant, budget):
            tenant.accesses.settle_shown()
            scores = Scores(tenant, self._services.scorer, self._services.clock.now_ms(), budget)
            ranked = scores.most(self._partitions(tenant, scope), predicate, args, limit, minimum)
            budget.check_answers(len(ranked))
            rows = scores.rows(ranked)
            scores.touch(ranked)
        return rows

    @memory_span("search_memory", len)
    def recall(
        self,
        predicate: str,
        args: Sequence[Term],
        at: int,
        *,
        positive: bool | None = None,
        scope: str | None = None,
        limit: int | None = None,
    ) -> list[Row]:
        """Return matching facts valid at a point in time (epoch ms), with current metadata."""
        pattern = StoredPattern(predicate, args, positive)
        with self._reads(None, kind="recall") as (tenant, budget):
            return self._stored_rows(tenant, pattern, FactOptions(scope, limit, as_of=at), budget)

    def _upkeep(self) -> UpkeepTarget:
        return UpkeepTarget(self._commit, self._read_tenant)

    def _check_upkeep(self, scope: str | None) -> None:
        """Raise InvalidInput if upkeep cannot write to the scope."""
        self._check_writable(scope)


def _from_0_to_1(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InvalidInput.at(name, "must be a number from 0 to 1")
