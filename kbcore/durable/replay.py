"""Records of the log applied at a start, many at a time where they only tell plain facts.

A record by itself costs a dozen calls of the engine, whatever it holds. Facts with nothing beside their arguments are
therefore put together by relation, each with its time, and told in one go before anything else happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kbcore.durable.records import plain_rows, read_body, read_changes
from kbcore.plug.ports import LogRecord
from kbcore.state.apply import apply, tell_rows
from kbcore.state.catalog import Catalog
from kbcore.state.tenant import Tenant
from kbplanner.ir.schema import RelationSchema

MAX_ROWS = 50_000
"""Facts put together at most: some ten megabytes."""


@dataclass(slots=True)
class _Told:
    """What waits for one relation: its rows, and when each was told."""

    args: list[str] = field(default_factory=list)
    times: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Tenant:
    """What waits for one tenant, how many records that was, the latest time and the place in the log of the last."""

    tenant: Tenant
    told: dict[tuple[str | None, str, int, bool], _Told] = field(default_factory=dict)
    records: int = 0
    at: int = 0
    seq: int = 0


class Replay:
    """Brings a catalog to the end of a log, record by record; `finish` when there are no more."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._waiting: dict[tuple[str, str], _Tenant] = {}
        self._rows = 0

    def take(self, record: LogRecord) -> int:
        """Take the next record; its logged time (epoch milliseconds). Raises LogCorrupted."""
        body = read_body(record.type, record.version, record.payload)
        rows = plain_rows(body)
        if rows is None:
            self.finish()
            return self._alone(body, record.seq)
        at: int = body["at"]
        key = body["db"], body["tenant"]
        waiting = self._waiting.get(key)
        if waiting is None:
            tenant = self._catalog.need_tenant(*key, at)
            waiting = self._waiting[key] = _Tenant(tenant)
        for some in rows:
            told = waiting.told.setdefault((some.scope, some.predicate, some.arity, some.positive), _Told())
            told.args += some.args
            told.times += [at] * len(some)
            self._rows += len(some)
        waiting.records += 1
        waiting.at, waiting.seq = max(at, waiting.at), record.seq  # the clock of a tenant never goes back
        if self._rows >= MAX_ROWS:
            self.finish()
        return at

    def _alone(self, body: dict[str, Any], seq: int) -> int:
        at, changes = read_changes(body)
        tenant = self._catalog.place(changes, at, seq)
        if tenant is not None:
            with tenant.lock.write():
                apply(tenant, changes, at, seq)
        return at

    def finish(self) -> None:
        """Apply what was put together."""
        waiting, self._waiting, self._rows = self._waiting, {}, 0
        for each in waiting.values():
            tenant = each.tenant
            with tenant.lock.write():
                tenant.advance(each.at)
                for (scope, predicate, arity, positive), told in each.told.items():
                    tell_rows(tenant, scope, RelationSchema(predicate, arity, positive), told.args, told.times)
                tenant.seq = each.seq
                tenant.generation += each.records
                tenant.version += each.records
