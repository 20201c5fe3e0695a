"""A shard: one log of a node, with the state recovered from it and everything that writes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from kbcore.clock import LoggedClock
from kbcore.config.settings import Config
from kbcore.durable.commit import Committer
from kbcore.durable.full_disk import FullDisk
from kbcore.durable.recovery import Recovered, recover
from kbcore.errors import ConfigError, Conflict, KBError, StorageFailed
from kbcore.node.other_processes import Directory, Peers
from kbcore.node.snapshotter import Snapshots
from kbcore.operations.services import Erasure
from kbcore.plug.ports import LogStore, WorksBeside
from kbcore.replication.role import NONE, Replication, check_leader_mark
from kbcore.scheduling import Scheduling
from kbcore.state.catalog import DEFAULT, Catalog, DatabaseEntry
from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeSet, Delta
from kbcore.system_calls import available_cores
from kbplanner.engine.engine import Engine as CEngine

_BLOCKED = "an older database of this name is quarantined"

_log = logging.getLogger("kbcore.node")


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """An open log and the state recovered from it."""

    store: LogStore
    catalog: Catalog
    recovered: Recovered


def recover_log(store: LogStore, config: Config) -> RecoveredLog:
    """Recover the state from a log. Raises ConfigError, LogCorrupted."""
    catalog = new_catalog(config)
    check_leader_mark(store, config)
    return RecoveredLog(store, catalog, recover(store, catalog))


@dataclass(frozen=True, slots=True)
class Storage:
    """The open logs of a node by shard, of `shards` in all, and the state recovered from them.

    `peers` have the other shards; without the system shard, `directory` is what that decides.
    In a cluster, shards are opened and closed while the node runs; `failed` is called with one
    whose log failed.
    """

    shards: int
    logs: Mapping[int, RecoveredLog]
    clock: LoggedClock
    peers: Peers | None = None
    directory: Directory | None = None
    failed: Callable[[int], None] | None = None

    @property
    def recovered(self) -> Recovered:
        """The newest snapshot, all replayed records, and the latest logged time."""
        logs = [log.recovered for log in self.logs.values()]
        return Recovered(
            max((log.snapshot for log in logs), default=0),
            sum(log.records for log in logs),
            max((log.last_time for log in logs), default=0),
        )


def recover_storage(
    shards: int, logs: Mapping[int, LogStore], config: Config, clock: LoggedClock
) -> Storage:
    """Recover the state from the logs; close them if that fails.

    Raises ConfigError for several shards that are to be replicated, and LogCorrupted.
    """
    try:
        if shards > 1 and config.replication_mode != NONE:
            raise ConfigError(
                f"REPLICATION_MODE={config.replication_mode}: the storage has {shards} shards,"
                " which cannot be replicated; convert it: kbcore storage copy FROM TO --shards 1"
            )
        recovered = {shard: recover_log(store, config) for shard, store in logs.items()}
    except BaseException:
        for store in logs.values():
            store.close(clean=False)
        raise
    storage = Storage(shards, recovered, clock)
    clock.seen(storage.recovered.last_time)
    return storage


def new_catalog(config: Config) -> Catalog:
    """Return an empty catalog with the threads of the settings for its engine."""
    return Catalog(partial(CEngine, threads=config.engine_threads or available_cores()))


@dataclass(frozen=True, slots=True)
class ShardListener:
    """Functions of the node that its shards call.

    `failed`: the log failed; `synced`: seconds of a batch; `snapshot`: seconds and outcome of a
    snapshot; `wrote`: a change set was applied; `wake`: there is work for the keeper.
    """

    failed: Callable[[StorageFailed], None]
    synced: Callable[[float], None]
    snapshot: Callable[[float, str], None]
    wrote: Callable[[ChangeSet, Delta], None]
    wake: Callable[[], None]


class Shard:
    """One log of a node: state, write path, snapshots, full-disk guard and replication.

    A shard has no thread of its own: the node calls `keep` from time to time.
    """

    def __init__(
        self,
        log: RecoveredLog,
        clock: LoggedClock,
        config: Config,
        scheduling: Scheduling,
        listener: ShardListener,
    ) -> None:
        self._wrote = listener.wrote
        self._erase_problem: str | None = None
        self.store = log.store
        self.catalog = log.catalog
        self.recovered = log.recovered
        if isinstance(self.store, WorksBeside):
            self.store.work_through(scheduling.offload_disk)
        self.committer = Committer(
            self.store,
            self.catalog,
            clock,
            config,
            scheduling=scheduling,
            on_failure=listener.failed,
            synced=listener.synced,
        )
        self.replication = Replication(self.committer, config, scheduling, listener.wrote)
        self.snapshots = Snapshots(
            self.committer, config, scheduling, self.replication, listener.snapshot
        )
        self.snapshots.note_replayed(log.recovered.records)
        self.room = FullDisk(
            self.store,
            scheduling.offload_disk,
            listener.wake,
            self.snapshots.try_take,
            listener.failed,
        )

    def keep(self) -> None:
        """Look for free space on a full disk, and take a snapshot that is due."""
        self.room.make()
        if self.room.full:
            return
        if self.to_erase:
            self.try_erase()
        deleted = self.to_erase_deleted
        erases = deleted > 0 and self.snapshots.waits_for(deleted) is None
        is_due = self.snapshots.due() or (erases and self.snapshots.is_old)
        if is_due and not (erases and self.try_erase(deleted=True)):
            self.snapshots.try_take()

    @property
    def to_erase(self) -> int:
        """Sequence number of the last purge whose text may still be in the storage, 0 if none."""
        return self._pending(self.catalog.last_purge())

    @property
    def to_erase_deleted(self) -> int:
        """The same for purges and for deletions of tenants and databases.

        The text of what was deleted is removed with the next snapshot.
        """
        return self._pending(max(self.catalog.last_purge(), self.catalog.deleted))

    def _pending(self, seq: int) -> int:
        # The numbers of a copied storage may be those of the log from which it was copied.
        seq = min(seq, self.committer.visible)
        return seq if seq > self.snapshots.erased() else 0

    def erasure(self) -> Erasure:
        """Return how far purged text, and that of deleted tenants, is removed from the storage."""
        pending = self.to_erase_deleted
        waits_for = None
        if pending:
            waits_for = self.snapshots.waits_for(pending) or (
                "retry" if self._erase_problem else "work"
            )
        problem = self._erase_problem if waits_for == "retry" else None
        return Erasure(self.snapshots.erased(), pending, waits_for, problem)

    def try_erase(self, *, deleted: bool = False) -> bool:
        """Do the same as `erase`; a failure is recorded, and the next call tries again."""
        try:
            done = self.erase(deleted=deleted)
        except KBError as error:
            self._erase_problem = error.message
            _log.warning("purged text is still in the storage: %s", error)
            return False
        self._erase_problem = None
        return done

    def erase(self, *, deleted: bool = False) -> bool:
        """Remove purged text from the log and the snapshots; return True if none is left.

        With `deleted`, also that of deleted tenants and databases. Raises what `Snapshots.take`
        raises.
        """
        seq = self.to_erase_deleted if deleted else self.to_erase
        if not seq:
            return True
        leader = self.replication.leader
        if leader.followers() and self.committer.leader is None and self.committer.visible == seq:
            # A follower asks for what comes after its last record, which must not be dropped. So
            # there has to be a later record, and apart from the purge. Without a tenant there is
            # none until the next write.
            tenants = self.catalog.tenants()
            last = max(tenants, key=lambda tenant: tenant.purges.last_seq(), default=None)
            if last is not None:
                self.snapshots.begin_apart()
                self.committer.commit(ChangeSet(last.database, last.name, ()))
        return self.snapshots.erase(seq)

    def snapshot(self) -> int:
        """Take a snapshot, remove deleted text with it, and return its sequence number."""
        if self.to_erase_deleted and self.erase(deleted=True):
            return self.store.status().snapshot
        return self.snapshots.take()

    def align(self, system: Catalog) -> list[tuple[ChangeSet, KBError]]:
        """Repeat the changes of databases that the system shard made and this one did not.

        The system shard decides: it records a change first. After a crash in between, a database
        that it has dropped, or emptied later, is dropped or emptied here. A database with data that
        it neither has nor has dropped is quarantined. Return the creations that failed: the
        database has no data here yet. Raises what the log raises if data could not be removed.
        """
        repeated, unknown = overdue(system, self.catalog)
        self._quarantine(unknown)
        failed: list[tuple[ChangeSet, KBError]] = [
            (_changed(database.name, CatalogAction.CREATE_DATABASE), Conflict(_BLOCKED))
            for database in system.databases()
            if database.name in unknown
        ]
        for changes in repeated:
            if any(creation.database == changes.database for creation, _ in failed):
                continue
            try:
                self._wrote(changes, self.committer.commit(changes))
            except KBError as error:
                if changes.makes_room:
                    raise
                failed.append((changes, error))
        return failed

    def _quarantine(self, unknown: frozenset[str]) -> None:
        """Hide the databases with data that the system shard does not know, and no others."""
        before = self.catalog.quarantined
        if unknown == before:
            return
        for name in sorted(unknown - before):
            _log.error(
                "database %s has data in a shard, and the system shard neither has it nor has dropped"
                " it: it is kept, but not served; to remove it, create a database of this name and"
                " delete that",
                name,
            )
        self.committer.exclusively(lambda seq: self.catalog.quarantine(unknown))

    def close(self, *, clean: bool) -> None:
        """Release the log, after a snapshot of records that none has if it is `clean`."""
        if clean and self.snapshots.is_behind:
            self.snapshots.try_take()
        self.store.close(clean=clean)


def overdue(system: Catalog, catalog: Catalog) -> tuple[list[ChangeSet], frozenset[str]]:
    """Return the changes that make the databases of a shard those of the system shard.

    The second result is the names of databases with tenants that the system shard neither has nor
    has dropped. Nothing is changed for these: that the system shard does not know them is no
    decision, but the loss of one.
    """
    decided = {database.name: database for database in system.databases()}
    present = {database.name: database for database in catalog.databases()}
    changes: list[ChangeSet] = []
    unknown: set[str] = set()
    for name, database in list(present.items()):
        if name == DEFAULT or _is_same(decided.get(name), database):
            continue
        if database.tenants and not system.has_dropped(name, database.created_at):
            unknown.add(name)
        else:
            changes.append(_changed(name, CatalogAction.DROP_DATABASE))
            del present[name]
    for name, database in decided.items():
        if name in unknown:
            continue
        known, emptied_at = present.get(name), database.emptied_at
        if known is None:
            changes.append(_changed(name, CatalogAction.CREATE_DATABASE, database.created_at))
        if emptied_at > (0 if known is None else known.emptied_at):
            changes.append(_changed(name, CatalogAction.NUKE_DATABASE, emptied_at))
    return changes, frozenset(unknown)


def _changed(name: str, action: CatalogAction, mark: int | None = None) -> ChangeSet:
    return ChangeSet(name, "", (ChangeCatalog(action, mark),))


def _is_same(decided: DatabaseEntry | None, database: DatabaseEntry) -> bool:
    return decided is not None and decided.created_at == database.created_at
