"""Replay of log records at a start, in batches if they only assert plain facts.

A single record costs a dozen calls of the engine. Facts that have arguments only
are therefore collected by relation, each with its time, and asserted in one call before any other
change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kbcore.durable.records import chained_digest, plain_rows, read_body, read_changes
from kbcore.plug.ports import LogRecord
from kbcore.state.apply import apply, replay_rows
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeSet, Delta
from kbcore.state.facts import FactRows
from kbcore.state.tenant import Tenant
from kbplanner.ir.schema import RelationSchema

MAX_ROWS = 50_000
"""Largest number of collected facts: about ten megabytes."""


_Relation = tuple[str | None, str, int, bool]
"""Scope, predicate, arity and sign of the facts of a relation."""


def _relation(rows: FactRows) -> _Relation:
    return rows.scope, rows.predicate, rows.arity, rows.positive


def replayed(
    tenant: Tenant,
    changes: ChangeSet,
    at: int,
    seq: int,
    *,
    noted: bool = False,
    chained: bytes | None = None,
) -> Delta:
    """Apply a change set of the log to a tenant that no request uses; return its effect.

    `noted` and `chained` are as for `apply`.
    """
    with tenant.lock.write():
        return apply(tenant, changes, at, seq, noted=noted, chained=chained)


@dataclass(slots=True)
class _Batch:
    """The collected rows of one relation, and the assertion time of each."""

    args: list[str] = field(default_factory=list)
    times: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _ReplayedTenant:
    """The collected rows of one tenant, the number of their records, the digests of those in its
    chain, and time and sequence number of the last.
    """

    tenant: Tenant
    batches: dict[_Relation, _Batch] = field(default_factory=dict)
    records: int = 0
    digests: list[bytes] = field(default_factory=list)
    at: int = 0
    seq: int = 0


class Replay:
    """Brings a catalog to the end of a log, record by record; call `finish` after the last."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._waiting: dict[tuple[str, str], _ReplayedTenant] = {}
        self._rows = 0

    def take(self, record: LogRecord) -> int:
        """Take the next record and return its logged time (epoch milliseconds).

        Raises LogCorrupted.
        """
        body = read_body(record.type, record.version, record.payload)
        rows = plain_rows(body)
        if rows is None or self._has_opposites(body, rows):
            self.finish()
            return self._alone(body, record)
        at: int = body["at"]
        key = body["db"], body["tenant"]
        waiting = self._waiting.get(key)
        if waiting is None:
            tenant = self._catalog.need_tenant(*key, at)
            waiting = self._waiting[key] = _ReplayedTenant(tenant)
        for group in rows:
            batch = waiting.batches.setdefault(_relation(group), _Batch())
            batch.args += group.args
            batch.times += [at] * len(group)
            self._rows += len(group)
        waiting.records += 1
        digest = chained_digest(record.type, record.version, record.payload)
        if digest is not None:
            waiting.digests.append(digest)
        waiting.at, waiting.seq = (
            max(at, waiting.at),
            record.seq,
        )  # the clock of a tenant never goes back
        if self._rows >= MAX_ROWS:
            self.finish()
        return at

    def _has_opposites(self, body: dict[str, Any], rows: Sequence[FactRows]) -> bool:
        """Return True if rows have opposites among themselves or the collected ones: the order of
        their assertions counts.
        """
        waiting = self._waiting.get((body["db"], body["tenant"]))
        known = {_relation(each) for each in rows}
        return any(
            opposite in known or (waiting is not None and opposite in waiting.batches)
            for scope, predicate, arity, positive in known
            for opposite in [(scope, predicate, arity, not positive)]
        )

    def _alone(self, body: dict[str, Any], record: LogRecord) -> int:
        at, changes = read_changes(body)
        tenant = self._catalog.place(changes, at, record.seq)
        if tenant is not None:
            digest = chained_digest(record.type, record.version, record.payload)
            replayed(tenant, changes, at, record.seq, chained=digest)
        return at

    def finish(self) -> None:
        """Apply the collected rows."""
        waiting, self._waiting, self._rows = self._waiting, {}, 0
        for each in waiting.values():
            tenant = each.tenant
            with tenant.lock.write():
                tenant.advance(each.at)
                tenant.chain.waiting += each.digests
                tenant.chain.hash_waiting()
                for (scope, predicate, arity, positive), batch in each.batches.items():
                    replay_rows(
                        tenant,
                        scope,
                        RelationSchema(predicate, arity, positive),
                        batch.args,
                        batch.times,
                    )
                tenant.seq = each.seq
                tenant.generation += each.records
                tenant.version += each.records
