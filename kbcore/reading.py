"""What every read needs: its tenant brought to now, the partitions asked, a budget, the rows of a goal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbcore.reason.budget import Budget, Notes
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.terms import Literal

if TYPE_CHECKING:
    from kbcore.runtime import Runtime


class Reading:
    """A handle on one tenant of a runtime, for reading."""

    def __init__(self, runtime: Runtime, database: str, tenant: str) -> None:
        self._runtime = runtime
        self.database = database
        self.tenant = tenant

    def _answers(
        self,
        tenant: Tenant,
        literal: Literal,
        scope: str | None,
        limit: int | None,
        offset: int,
        min_confidence: float | None,
        as_of: int | None,
        budget: Budget,
        undefined: bool = False,
    ) -> list[tuple[Partition, list[Row]]]:
        """The rows of each partition that `limit` and `offset`, which go over all of them, leave."""
        wanted = None if limit is None or min_confidence is not None else limit + offset
        reasoner = self._runtime.reasoner(tenant)
        found = []
        for partition in self._partitions(tenant, scope):
            rows = reasoner.rows(partition, literal, budget, as_of, wanted, undefined)
            if min_confidence is not None:
                rows = [row for row in rows if row["confidence"] is None or row["confidence"] >= min_confidence]
            if offset or limit is not None:
                skipped = min(offset, len(rows))
                rows = rows[skipped : None if limit is None else skipped + limit]
                offset, limit = offset - skipped, None if limit is None else limit - len(rows)
            found.append((partition, rows))
        return found

    def _read_tenant(self) -> Tenant:
        return self._runtime.read_tenant(self.database, self.tenant)

    def _partitions(self, tenant: Tenant, scope: str | None) -> list[Partition]:
        """The partitions a read looks at; where nothing was written yet rules may still give something."""
        return tenant.partitions(scope) or [Partition(tenant.engine, scope)]

    def _budget(self, timeout_ms: int | None, notes: Notes | None = None) -> Budget:
        config, clock = self._runtime.config, self._runtime.clock
        longest = config.query_timeout_ms
        allowed = longest if timeout_ms is None else min(timeout_ms, longest)
        deadline = clock.monotonic() + allowed / 1000
        run, most = self._runtime, config.query_max_answers
        return Budget(run.limits, allowed, deadline, most, clock, run.offload, run.pause, notes=notes or Notes())
