"""The logs of a storage that no server has open, with the state recovered from them."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kbcore.config.settings import Config
from kbcore.durable.capture import capture_tenants
from kbcore.durable.snapshot import encode
from kbcore.errors import AlreadyExists, ReadOnlyFollower, StorageBusy
from kbcore.node.shard import RecoveredLog, overdue, recover_log
from kbcore.node.shard_layout import Logs, open_logs
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogStore
from kbcore.state.catalog import Catalog
from kbcore.state.tenant import Tenant

_log = logging.getLogger("kbcore.offline")


@dataclass(frozen=True, slots=True)
class LogContents:
    """Contents of a storage: last record, newest snapshot (0: none), later records, and totals.

    Of several shards, the highest numbers and the sum of the later records. `digest` is the SHA-256
    of everything a start recovers: databases, tenants, scopes, rules, facts with their attributes,
    generations and transactions. It does not depend on the number of shards.
    """

    head: int
    snapshot: int
    records: int
    facts: int
    digest: str
    shards: int = 1


@contextmanager
def opened_logs(plugins: Plugins, config: Config) -> Iterator[list[LogStore]]:
    """Open the logs of all shards of a storage, and close them at the end."""
    shards, logs = open_logs(plugins, config)
    with closed_at_end(logs):
        yield [logs[shard] for shard in range(shards)]


@contextmanager
def closed_at_end(logs: Logs) -> Iterator[None]:
    """Close logs at the end of the block, as not clean if it fails."""
    clean = False
    try:
        yield
        clean = True
    finally:
        for log in logs.values():
            log.close(clean=clean)


@contextmanager
def recovered(stores: Sequence[LogStore], config: Config) -> Iterator[list[RecoveredLog]]:
    """Recover the state of all shards; databases are those that a start would serve."""
    logs: list[RecoveredLog] = []
    try:
        for store in stores:
            logs.append(recover_log(store, replace(config, replication_mode="none")))
            catalog = logs[-1].catalog
            repeated, unknown = overdue(logs[0].catalog, catalog)
            catalog.quarantine(unknown)
            for name in sorted(unknown):
                _log.error("database %s is quarantined and left out", name)
            for changes in repeated:
                catalog.place(changes, 0, store.status().head)
        yield logs
    finally:
        for log in logs:
            log.catalog.close()


@contextmanager
def removed_on_failure(path: str) -> Iterator[None]:
    """Remove the files that the block creates at a path if it fails: the file, or the folder and
    what is in it. What was there before stays, also if another process has it.
    """
    before = set(os.listdir(path)) if os.path.isdir(path) else None
    was_there = os.path.lexists(path)
    try:
        yield
    except (AlreadyExists, ReadOnlyFollower, StorageBusy):
        raise
    except BaseException:
        if before is not None:
            _remove(os.path.join(path, name) for name in set(os.listdir(path)) - before)
        elif not was_there:
            _remove((path, *(path + suffix for suffix in _SQLITE_SUFFIXES)))
        raise


_SQLITE_SUFFIXES = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a database."""


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def contents_of(logs: Sequence[RecoveredLog]) -> LogContents:
    """Return the totals and the digest of a recovered storage."""
    catalogs = [log.catalog for log in logs]
    tenants = tenants_of(catalogs)
    digest = hashlib.sha256()
    for chunk in encode(capture_tenants(catalogs[0], tenants)):
        digest.update(len(chunk).to_bytes(8, "little") + chunk)
    statuses = [log.store.status() for log in logs]
    return LogContents(
        max(status.head for status in statuses),
        max(log.recovered.snapshot for log in logs),
        sum(log.recovered.records for log in logs),
        sum(tenant.facts() for tenant in tenants),
        digest.hexdigest(),
        len(logs),
    )


def tenants_of(catalogs: Sequence[Catalog]) -> list[Tenant]:
    """Return the tenants of all shards, sorted by database and name."""
    tenants = [tenant for catalog in catalogs for tenant in catalog.served_tenants()]
    return sorted(tenants, key=lambda tenant: (tenant.database, tenant.name))
