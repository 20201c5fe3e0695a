"""Start and stop of a node: plugins, log, state and the write path, built once and in order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from kbcore.config.settings import Config
from kbcore.context.cache import Recent
from kbcore.context.relevance.vectors import fact_text
from kbcore.context.sessions import Sessions
from kbcore.context.text.tokens import TokenCounter
from kbcore.durable.commit import not_leading
from kbcore.durable.full_disk import ROOM_SECONDS
from kbcore.durable.known_states import KnownStates
from kbcore.durable.no_log import NoLog
from kbcore.durable.recovery import Recovered
from kbcore.durable.request_key import marked
from kbcore.durable.snapshot import paced
from kbcore.durable.transactions import Transactions
from kbcore.encryption.sealer import FileSealer, Sealer
from kbcore.errors import KBError, NotReady, StorageFailed, StorageFull
from kbcore.events.feed import Committed, Feeds
from kbcore.llm.model import LanguageModel, model_check
from kbcore.node.admin import Admin
from kbcore.node.api_keys import Keys
from kbcore.node.initial_rules import NewTenants
from kbcore.node.instruments import Meters
from kbcore.node.knowledge_base import KnowledgeBase
from kbcore.node.metric_sinks import Metrics
from kbcore.node.other_processes import Directory, TenantSize
from kbcore.node.quotas import Quotas
from kbcore.node.readiness import readiness, recovery_check, storage_check, worst
from kbcore.node.shard import (
    RecoveredLog,
    Shard,
    ShardListener,
    Storage,
    new_catalog,
)
from kbcore.node.shard_layout import SYSTEM, shard_of, vector_folder
from kbcore.operations.decision_log import DecisionLog
from kbcore.operations.decision_targets import decision_target
from kbcore.operations.services import Erasure
from kbcore.operations.slow_log import SlowGoals
from kbcore.operations.subscriptions.deliveries import Deliveries
from kbcore.operations.subscriptions.replaying import ReplayedChanges
from kbcore.operations.tenant_kb import TenantKB
from kbcore.operations.transaction import TransactionKB
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogSeed, LogStatus, LogStore
from kbcore.plug.sealed_store import SealedStore
from kbcore.reason.admission import Caller, Slots
from kbcore.reason.ask import Reasoner
from kbcore.reason.external.predicates import ExternalPredicates, search_predicates
from kbcore.receipts.signing import ReceiptKey
from kbcore.replication.failover import Connect
from kbcore.replication.role import FOLLOWER
from kbcore.retraction.cascade import Cascades
from kbcore.scheduling import Scheduling
from kbcore.search.embedder import Embedding
from kbcore.search.indexer import WordIndexes
from kbcore.search.vectors.indexer import VectorIndexes
from kbcore.search.vectors.places import VectorSettings, erase_purged, erased_to, forget_files
from kbcore.state.catalog import DEFAULT, Catalog
from kbcore.state.changes import ChangeCatalog, ChangeSet, Delta, PurgeMemory
from kbcore.state.labels import NO_LABELS, Dimensions, Labels
from kbcore.state.overlay import Overlay
from kbcore.state.tenant import Tenant
from kbcore.subscriptions.registry import registries
from kbcore.upkeep.sweep import Sweeper
from kbplanner.engine.backend import RunLimits

T = TypeVar("T")

_log = logging.getLogger("kbcore.node")

CHECK_INTERVAL_S = 30
"""Seconds between checks for expired transactions and for a snapshot that is due."""


def _tell_commit(tell: Callable[..., None], committed: Committed) -> None:
    tell(database=committed.database, tenant=committed.tenant, delta=committed.delta)


class Runtime:
    """A running node: its state, its log, and knowledge bases as handles on tenants."""

    def __init__(
        self,
        config: Config,
        plugins: Plugins,
        metrics: Metrics,
        storage: Storage,
        scheduling: Scheduling,
        on_failure: Callable[[StorageFailed], None] | None,
        model: LanguageModel | None,
    ) -> None:
        self.config = config
        self.plugins = plugins
        self.metrics = metrics
        self.meters = Meters(metrics)
        self.clock = storage.clock
        self.recovered = storage.recovered
        self.recovery_seconds = 0.0
        self.receipt_key: ReceiptKey | None = None
        self.shard_count = storage.shards
        self._new_tenants = (
            NewTenants(plugins, self._known_tenant, self._commit)
            if plugins.listens("kb_rule_texts")
            else None
        )
        self.decisions = (
            DecisionLog(
                decision_target(
                    config.decision_log,
                    storage.clock,
                    scheduling.offload_disk,
                    scheduling.offload_wait,
                    plugins.webhook_sender,
                ),
                self.meters.decided,
                scheduling.yield_in_background,
            )
            if config.decision_log
            else None
        )
        self.reports_goals = plugins.listens("kb_goal_answered")
        plugins.on_failure = self.meters.failed
        self.offload = scheduling.offload
        self.yield_now = scheduling.yield_now
        self.yield_in_background = scheduling.yield_in_background
        self.scorer = plugins.salience_scorer()
        provided, searches = plugins.predicates(), search_predicates(config)
        self.predicates = (
            ExternalPredicates(
                provided,
                searches,
                scheduling.call_within,
                partial(self.meters.failed, "kb_predicates"),
            )
            if provided or searches
            else None
        )
        self.model = model
        self.vectors: VectorIndexes | None = None
        self.word_indexes = WordIndexes(self._all_tenants, self.yield_now)
        self.token_counter = TokenCounter()
        self._quotas = Quotas(config)
        self.slots = Slots(config.tenant_max_inferences)
        self.limits = RunLimits(
            config.query_max_rows, config.query_max_bytes, config.query_max_steps
        )
        self.known_states = KnownStates(self.scratch, config.history_cache_mb << 20)
        self._vector_settings = VectorSettings(
            vector_folder(config),
            lambda database, tenant: shard_of(database, tenant, storage.shards),
            config.vector_index_mb << 20,
            fact_text,
            self._vector_sealer,
        )
        self._wake = threading.Event()
        self._stopping = False
        self._failed: StorageFailed | None = None
        self._on_failure = on_failure
        self.transactions = Transactions(config, self.clock, self.meters.transaction)
        self._listener = ShardListener(
            self._fail, self.meters.synced, self.meters.snapshot, self._wrote, self._wake.set
        )
        self._scheduling = scheduling
        self._on_shard_failure = storage.failed
        self.shards = {
            number: Shard(log, self.clock, config, scheduling, self._listener)
            for number, log in storage.logs.items()
        }
        self.on_shard_closed: list[Callable[[int], None]] = []
        self.peers = storage.peers
        if self.shards:
            self.system = next(iter(self.shards.values()))
            self.databases = self.system.catalog if SYSTEM in self.shards else new_catalog(config)
        else:
            unlogged = RecoveredLog(NoLog(), new_catalog(config), Recovered(0, 0, 0))
            self.system = Shard(unlogged, self.clock, config, scheduling, self._listener)
            self.databases = self.system.catalog
        self._version = self.system.store.status().head
        if storage.directory is not None:
            storage.directory.fill(self.databases)
            self._version = storage.directory.version
        self.feed = Feeds(
            {number: shard.committer.feed for number, shard in self.shards.items()},
            lambda database, tenant: shard_of(database, tenant, storage.shards),
        )
        self._aligning = threading.Lock()
        self._not_aligned = False
        self._not_announced = storage.peers is not None and SYSTEM in self.shards
        self._align()
        self.system.committer.confirmed = self.meters.replicated
        if plugins.listens("kb_changes_committed"):
            self.feed.subscribe(
                partial(_tell_commit, partial(plugins.tell, "kb_changes_committed"))
            )
        self.replication = self.system.replication
        metrics.on_collect(self.replication.values)
        cluster = None if storage.peers is None else storage.peers.cluster
        if cluster is not None:
            metrics.on_collect(cluster.values)
        self.replication.on_role.append(self._sweep_again)
        self._keeper = threading.Thread(target=self._keep, name="kbcore-keeper", daemon=True)
        if any(shard.to_erase for shard in self.shards.values()):
            self._wake.set()  # a purge before the last stop or crash
        if any(len(tenant.subscriptions) for tenant in self._all_tenants()):
            self._wake.set()
        self._keeper.start()
        self.sweeper = self._new_sweeper()
        self.webhooks = plugins.webhook_sender()
        self._deliveries: Deliveries | None = None
        if self.webhooks is not None:
            tenants, count = self._all_tenants, self.meters.delivered
            self._deliveries = Deliveries(
                self.webhooks, self.clock, tenants, self.knowledge_base, count
            )

    def embed_facts(self, embedding: Embedding) -> None:
        """Begin to make the vectors of facts."""
        settings, shards = self._vector_settings, self.shards
        self.vectors = VectorIndexes(
            embedding, settings, self._all_tenants, shards, self._scheduling
        )
        self.vectors.start()

    def start_replication(self, connect: Connect) -> None:
        """Follow the leader, or take part in its election; without replication do nothing.

        `connect` opens a connection to the leader of its settings. Raises ConfigError.
        """
        config = self.config
        if config.coordinator_url:
            self.replication.take_part(
                lambda: self.plugins.open_coordinator(config.coordinator_url), connect
            )
        elif self.replication.role == FOLLOWER:
            self.replication.follow(connect(config))

    def wake_deliveries(self) -> None:
        """Look for changes of standing goals to deliver."""
        if self._deliveries is not None:
            self._deliveries.wake()

    @property
    def webhooks_failing(self) -> int:
        """The number of addresses of webhooks whose last delivery failed."""
        return 0 if self._deliveries is None else self._deliveries.failing

    def _sweep_again(self) -> None:
        self.wake_deliveries()
        self.sweeper.close()
        self.sweeper = self._new_sweeper()

    def _new_sweeper(self) -> Sweeper:
        """Return incremental eviction of expired facts; a follower gets evictions with the log."""
        interval = self.config.sweep_interval_ms if self.replication.leader_url is None else 0
        return Sweeper(
            self._all_tenants,
            self.read_tenant,
            self.commit,
            self.clock,
            self.yield_now,
            interval,
        )

    def shard(self, database: str, tenant: str) -> Shard:
        """Return the shard that holds a tenant; raise NotReady if another process has it."""
        number = shard_of(database, tenant, self.shard_count)
        shard = self.shards.get(number)
        if shard is None:
            raise NotReady(
                "another process has this tenant at the moment: nothing was carried out",
                {"reason": "moved", "shard": number, "outcome": "not_done"},
            )
        return shard

    def open_shard(self, number: int, log: RecoveredLog, directory: Directory | None) -> None:
        """Add a shard to a node of a cluster, from which it is served then.

        `directory` was asked for after the log was opened; None for the system shard, whose own
        databases and keys are the directory from now on. Raises what prevents its databases from
        being those of the directory.
        """
        with self._aligning:
            listener = replace(self._listener, failed=partial(self._fail_shard, number))
            shard = Shard(log, self.clock, self.config, self._scheduling, listener)
            self.clock.seen(log.recovered.last_time)
            self.feed.add(number, shard.committer.feed)
            self.shards[number] = shard
            try:
                if directory is None:
                    self._decide(shard)
                elif directory.version >= self._version:
                    directory.fill(self.databases)
                    self._version = directory.version
                shard.align(self.databases)
            except BaseException:
                self.feed.remove(number)
                del self.shards[number]
                raise
        self.word_indexes.start()

    def _decide(self, system: Shard) -> None:
        """Take over the databases and keys of the system shard of a cluster."""
        version = system.store.status().head
        Directory.of(version, system.catalog).fill(self.databases)
        self._version = version
        self._not_announced = self.peers is not None

    def close_shard(self, number: int) -> None:
        """Remove a shard from a node of a cluster: its open transactions and streams end.

        Writes and snapshots under way are completed, or refused by the log if another node has it.
        """
        shard = self.shards.get(number)
        if shard is None:
            return
        shard.committer.close()
        shard.committer.exclusively(lambda seq: None)
        del self.shards[number]
        shard.replication.close()
        self.feed.remove(number)
        for tenant in list(shard.catalog.tenants()):
            self.transactions.fail(tenant.database, tenant.name)
        for closed in self.on_shard_closed:
            closed(number)
        with shard.replication.replacing:  # no snapshot is being stored
            self._scheduling.offload_disk(lambda: shard.store.close(clean=False))
        shard.catalog.forget()

    def knowledge_base(
        self, database: str = DEFAULT, tenant: str = DEFAULT, caller: Caller | None = None
    ) -> TenantKB:
        """Return a handle on a tenant, which its first write creates; raise UnknownDatabase.

        `caller` is the client that waits for results; long goals stop when it disconnects.
        """
        self._known_tenant(database, tenant)
        return TenantKB(self, database, tenant, caller)

    def open(self, tenant: str = DEFAULT, database: str = DEFAULT) -> KnowledgeBase:
        """Return a tenant as `open_kb` does, for Python programs; raise UnknownDatabase.

        The first write creates the tenant. Closing the knowledge base leaves the runtime open.
        """
        return KnowledgeBase(self, tenant, database, owns_runtime=False)

    def admin(self) -> Admin:
        """Return a handle on the databases and tenants as a whole."""
        return Admin(self)

    def keys(self) -> Keys:
        """Return a handle on the API keys of the node."""
        return Keys(self, self.databases)

    def may_see(self, owner: str, view: Labels, dimensions: Dimensions) -> bool:
        """Return False if the owner of a subscription is a key that may not see a view any more."""
        return self.keys().may_see(owner, view, dimensions)

    def begin(
        self, database: str = DEFAULT, tenant: str = DEFAULT, view: Labels = NO_LABELS
    ) -> str:
        """Open a transaction, which sees and changes what a view admits, and return its id.

        Raises UnknownDatabase, RateLimited, ReadOnlyFollower.
        """
        self.refuse_on_follower()
        known = self._known_tenant(database, tenant)
        if known is None and self._new_tenants is not None:
            self._new_tenants.introduce(database, tenant)
        return self.transactions.begin(database, tenant, view).id

    def refuse_on_follower(self) -> None:
        """Raise ReadOnlyFollower on a follower, NotReady while there is no leader.

        For operations that do much work before they write.
        """
        if (leader := self.replication.leader_url) is not None:
            raise not_leading(leader)

    def in_transaction(
        self,
        database: str,
        tenant: str,
        id: str,
        *,
        writes: bool = True,
        caller: Caller | None = None,
    ) -> TransactionKB:
        """Return a handle on a tenant as an open transaction sees it.

        A context manager for one operation.

        An error of an operation that `writes` rolls the transaction back.

        Raises UnknownTransaction, and Conflict if the transaction has ended.
        """
        known = self.shard(database, tenant).catalog.find(database, tenant)
        return TransactionKB(
            self, self.transactions.find(database, tenant, id, known), writes, caller
        )

    def find_tenant(self, database: str, name: str) -> Tenant | None:
        """Return a tenant advanced to now, None if the database or the tenant does not exist."""
        known = self.shard(database, name).catalog.find(database, name)
        return None if known is None else self.read_tenant(database, name)

    def need_tenant(self, database: str, name: str) -> Tenant:
        """Return a tenant advanced to now; one that does not exist is created in memory, without
        facts. Raises UnknownDatabase.
        """
        self.shard(database, name).catalog.need_tenant(database, name, self.clock.now_ms())
        return self.read_tenant(database, name)

    def commit(self, changes: ChangeSet) -> Delta:
        """Make a change set durable and apply it: the only way to change anything."""
        changes = marked(changes)
        return (
            self._commit(changes)
            if self._new_tenants is None
            else self._new_tenants.commit(changes)
        )

    def _commit(self, changes: ChangeSet) -> Delta:
        if changes.of_catalog and not changes.tenant:
            with self._aligning:
                system = self.shards.get(SYSTEM)
                if system is None:
                    raise NotReady(
                        "another node decides about databases and keys: nothing was carried out",
                        {"reason": "moved", "shard": SYSTEM, "outcome": "not_done"},
                    )
                delta = self._commit_in(system, changes)
                if system.catalog is self.databases:
                    self._version = delta.seq
                else:
                    self._decide(system)
                self._align()
                self._announce()
        else:
            delta = self._commit_in(self.shard(changes.database, changes.tenant), changes)
        self.replication.last_commit.seq = delta.seq
        return delta

    def _commit_in(self, shard: Shard, changes: ChangeSet) -> Delta:
        try:
            if self._quotas.active:
                with self._quotas.room(shard.catalog, changes):
                    delta = shard.committer.commit(changes)
            else:
                delta = shard.committer.commit(changes)
        except StorageFull:
            shard.room.found_full()
            raise
        except StorageFailed as error:
            if self._on_shard_failure is None:
                raise
            raise NotReady(
                "another node may have this tenant now: it is unknown whether this write took effect",
                {"reason": "lease", "outcome": "unknown"},
            ) from error
        if shard.room.full:
            shard.room.wrote(changes)
        self._wrote(changes, delta)
        return delta

    def _align(self) -> None:
        """Repeat changes of databases in the other shards; what failed is tried again later."""
        self._not_aligned = True
        failures = 0
        for shard in list(self.shards.values()):
            if shard.catalog is not self.databases:
                for changes, error in shard.align(self.databases):
                    failures += 1
                    _log.warning(
                        "database %s is not in every shard yet: %s", changes.database, error
                    )
        self._not_aligned = failures > 0

    def directory(self) -> Directory:
        """Return which databases and keys exist, in the process that has the system shard."""
        version = self._version  # first, so that what follows is not older
        return Directory.of(version, self.databases)

    def adopt(self, directory: Directory) -> None:
        """Act on what the system shard of another process decided, unless it is outdated.

        The process with the system shard adopts none. Raises what prevents that: it is tried again.
        """
        with self._aligning:
            if SYSTEM in self.shards or directory.version < self._version:
                return
            directory.fill(self.databases)
            self._version = directory.version
            self._align()
        if self._not_aligned:
            raise NotReady("a database could not be created in every shard yet")

    def _announce(self) -> None:
        """Make the other processes act on what the system shard decided.

        Raises NotReady if one does not answer; the directory is then sent again later.
        """
        if self.peers is not None and SYSTEM in self.shards:
            self._not_announced = True
            self.peers.announce(self.directory())
            self._not_announced = False

    def _wrote(self, changes: ChangeSet, delta: Delta) -> None:
        """Update metrics and caches after a change set was applied, from here or from the
        leader.
        """
        self.meters.committed(changes, delta)
        if self.vectors is not None:
            self.vectors.wake()
        if delta.rules_added or delta.rules_removed or delta.dropped:
            self._forget_tables(changes)
        purges = False
        for change in changes.changes:
            purges = purges or isinstance(change, PurgeMemory)
        if purges:
            self._forget_windows(changes)
            if self.replication.leader_url is not None:
                self._wake.set()  # on the leader, the request itself removes the text
        if purges or changes.of_catalog:
            self.known_states.forget(changes.database, changes.tenant)
        if changes.of_catalog and self.vectors is None:
            self._forget_vectors(changes)
        if changes.of_catalog:
            self.transactions.fail(changes.database, changes.tenant or None)
        for shard in list(self.shards.values()):
            if shard.snapshots.grown:
                self._wake.set()

    def read_tenant(self, database: str, name: str, now: int | None = None) -> Tenant:
        """Return a tenant to read, advanced to `now`, None: the current time; an unknown one is
        empty.

        Raises the error that made the tenant unusable, if any.
        """
        catalog = self.shard(database, name).catalog
        tenant = catalog.tenant(database, name)
        if tenant is None:
            return catalog.empty_tenant(database, name)
        if tenant.failed is not None:
            raise tenant.failed
        now = tenant.read_at = self.clock.now_ms() if now is None else now
        if tenant.due(now):
            with tenant.lock.write():
                tenant.advance(now)
                if tenant.observer is not None:
                    tenant.observer()
        return tenant

    def log_id(self, database: str = DEFAULT, tenant: str = DEFAULT) -> str:
        """Return the unique id of the log that holds a tenant."""
        return self.shard(database, tenant).store.status().log_id

    def log_head(self, database: str = DEFAULT, tenant: str = DEFAULT) -> int:
        """Return the sequence number of the last change in the log of a tenant that reads can
        see.
        """
        return self.shard(database, tenant).committer.visible

    def applied(self, database: str, name: str) -> int:
        """Return a sequence number up to which all changes of a tenant are applied."""
        tenant = self.shard(database, name).catalog.find(database, name)
        if tenant is None:
            return self.log_head(database, name)
        with tenant.lock.read():
            return tenant.seq

    def wait_for(self, seq: int, database: str, tenant: str) -> None:
        """Wait until the log that holds a tenant is applied up to `seq`.

        Raises NotReady after two seconds, if no other log of the node has come that far.
        """
        if self.shard_count == 1 or all(
            shard.store.status().head < seq for shard in list(self.shards.values())
        ):
            self.shard(database, tenant).replication.wait_for(seq)

    def reasoner(self, tenant: Tenant) -> Reasoner:
        """Return the reasoner of a tenant, with its goal tables."""
        reasoner = tenant.attached.get(Reasoner)
        if reasoner is not None:
            return reasoner
        config = self.config
        return tenant.attached.need(
            Reasoner,
            lambda: Reasoner(
                tenant,
                config.goal_table_mb << 20,
                config.engine_verify,
                self.meters.tables,
                self.predicates,
            ),
        )

    def cascades(self, tenant: Tenant) -> Cascades:
        """Return the object that finds conclusions that no longer hold after retractions."""
        cascades = tenant.attached.get(Cascades)
        if cascades is None:
            # Those of a transaction do not last.
            tables = None if isinstance(tenant, Overlay) else self.reasoner(tenant).tables
            cascades = tenant.attached.need(
                Cascades,
                lambda: Cascades(tenant, self.predicates, tables, self.config.engine_verify),
            )
        return cascades

    def snapshot(self) -> int:
        """Take a snapshot of every shard and drop the log it makes unnecessary.

        Return the sequence number of the first shard's.
        """
        head = self.own_snapshot()
        if self.peers is not None:
            self.peers.snapshot()
        return head

    def own_snapshot(self) -> int:
        """Take snapshots of the shards of this process; return the first sequence number."""
        heads = [shard.snapshot() for shard in list(self.shards.values())]
        return heads[0] if heads else 0

    def captured(self) -> tuple[tuple[LogSeed, ...], list[Iterator[bytes]]]:
        """Begin to capture the state of every shard; return the logs and the snapshots' chunks.

        Each shard is captured between two of its batches.
        """
        logs: list[LogSeed] = []
        chunks: list[Iterator[bytes]] = []
        with self._aligning:  # no database is created, dropped or emptied in between
            for number in range(self.shard_count):
                shard = self.shards.get(number)
                if shard is not None:
                    status, captured = shard.snapshots.captured()
                    log = LogSeed(status.log_id, status.epoch, status.head)
                    parts = paced(captured, self.yield_in_background)
                elif self.peers is not None:
                    log, parts = self.peers.capture(number)
                logs.append(log)
                chunks.append(parts)
        return tuple(logs), chunks

    def erase(self, database: str, tenant: str) -> bool:
        """Remove purged text of a tenant from its log and snapshots now; return True if that is
        done.

        If followers still need the records, it is done later, when they have later ones. A failure
        is logged, and the removal is tried again later.
        """
        shard = self.shard(database, tenant)
        return self._erase_vectors(shard) and shard.try_erase()

    def _erase_vectors(self, shard: Shard) -> bool:
        """Remove the vectors of purged facts; return whether none is left. A failure is logged."""
        try:
            erase_purged(self._vector_settings, shard.catalog.tenants(), self.vectors)
        except OSError as error:
            _log.warning("vectors of purged facts are still in the storage: %s", error)
            return False
        return True

    def _vector_sealer(self, database: str, tenant: str) -> FileSealer | None:
        """Return what encrypts the file of vectors of a tenant, None without encryption."""
        if not self.plugins.encryption.is_on:
            return None

        def current() -> Sealer:
            shard = self.shards.get(shard_of(database, tenant, self.shard_count))
            if shard is None or not isinstance(shard.store, SealedStore):
                raise NotReady("the log of the tenant is not open here")
            return shard.store.sealer

        return FileSealer(current, (database, tenant))

    def _forget_vectors(self, changes: ChangeSet) -> None:
        """Delete the files of vectors of tenants that were emptied or dropped. With an embedder its
        thread does so.
        """
        change = changes.changes[0]
        if isinstance(change, ChangeCatalog) and not change.action.value.startswith("create"):
            emptied, present = (changes.database, changes.tenant), self._all_tenants()
            forget_files(self._vector_settings, emptied, present, list(self.shards))

    def erase_later(self) -> None:
        """Remove purged text in the background."""
        self._wake.set()

    def erasure(self, database: str, tenant: str) -> Erasure:
        """Return how far the log of a tenant, and the vectors of its facts, are erased."""
        shard = self.shard(database, tenant)
        erasure, known = shard.erasure(), shard.catalog.find(database, tenant)
        if known is None:
            return erasure
        return replace(erasure, erased=min(erasure.erased, erased_to(self._vector_settings, known)))

    def log(self, database: str, tenant: str) -> LogStore:
        """Return the log of a tenant, to be read."""
        return self.shard(database, tenant).store

    def scratch(self) -> Catalog:
        """Return an empty catalog, in which an earlier state can be rebuilt."""
        return new_catalog(self.config)

    def tenants(self) -> tuple[int, list[Tenant]]:
        """Return the number of databases, and every tenant of this process."""
        return len(self.databases.databases()), list(self._all_tenants())

    def sizes(self) -> list[TenantSize]:
        """Return the tenants of this process with their numbers of facts."""
        sizes = []
        for tenant in self._all_tenants():
            with tenant.lock.read():
                sizes.append(TenantSize(tenant.database, tenant.name, tenant.facts()))
        return sizes

    def log_status(self) -> LogStatus:
        """Return the status of the first shard's log; writable if all logs are and none failed."""
        statuses = [shard.store.status() for shard in list(self.shards.values())]
        writable = self._failed is None and all(status.writable for status in statuses)
        first = statuses[0] if statuses else self.system.store.status()
        lost = any(status.snapshot_lost for status in statuses)
        return replace(first, writable=writable, snapshot_lost=lost)

    def health(self) -> dict[str, Any]:
        """Return the readiness: overall status, a check for each part, and `writable`.

        With other processes, each check is the worst of all. Raises NotReady if one does not
        answer.
        """
        own = self.own_health()
        return own if self.peers is None else worst([own, *self.peers.health()])

    def own_health(self) -> dict[str, Any]:
        """Return the readiness of this process."""
        status = self.log_status()
        checks = {
            "storage": storage_check(self.config, status, failed=self._failed is not None),
            "recovery": recovery_check(self.recovered, [s.catalog for s in self.shards.values()]),
            "replication": self.replication.check(),
            "llm": model_check(self.model),
            "search": self.word_indexes.check(),
        }
        if self.peers is not None and (cluster := self.peers.cluster) is not None:
            checks["cluster"] = cluster.check()
        return readiness(
            checks,
            available=not self._stopping
            and (status.writable or not self.config.ready_requires_writes),
            writable=status.writable and self.replication.accepts_writes,
        )

    def close(self) -> None:
        """Refuse new writes, take a snapshot if there are new records, and release the log."""
        if self._stopping:
            return
        self._stopping = True
        self.plugins.tell("kb_runtime_stopping", runtime=self)
        shards = list(self.shards.values())
        for shard in shards:
            shard.replication.close()
        self.sweeper.close()
        if self._deliveries is not None:
            self._deliveries.close()
        if self.vectors is not None:
            self.vectors.close()
        self.word_indexes.close()
        for shard in shards:
            shard.committer.close()
        self._wake.set()
        self._keeper.join()
        if self.decisions is not None:
            self.decisions.close()
        for shard in shards:
            shard.close(clean=self._failed is None)
        self.metrics.close()
        for shard in shards:
            shard.catalog.close()
        if self.model is not None:
            self.model.provider.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _keep(self) -> None:
        """Run background work until the stop: snapshots, expiry, metrics, and a full disk."""
        while not self._stopping:
            self._wake.wait(
                ROOM_SECONDS
                if any(shard.room.full for shard in list(self.shards.values()))
                else min(self.config.snapshot_minutes * 60, CHECK_INTERVAL_S)
            )
            self._wake.clear()
            if self._stopping:
                return
            self.transactions.expire()
            if self._not_aligned or self._not_announced:
                self.align_again()
            for shard in list(self.shards.values()):
                shard.keep()
                self._erase_vectors(shard)
            self._keep_goals()
            self.metrics.push()

    def _keep_goals(self) -> None:
        for tenant in list(self._all_tenants()):
            if not (len(tenant.subscriptions) or registries(tenant)):
                continue
            kb = self.knowledge_base(tenant.database, tenant.name)
            for view in kb.views_with_goals():
                try:
                    kb.of_view(view).keep_goals()
                except KBError as error:
                    _log.warning("standing goals of tenant %s: %s", tenant.name, error)

    def _forget_tables(self, changes: ChangeSet) -> None:
        tenant = self.shard(changes.database, changes.tenant).catalog.find(
            changes.database, changes.tenant
        )
        if tenant is not None:
            with tenant.lock.read():
                self.reasoner(tenant).tables.clear()
                tenant.models.clear()

    def _forget_windows(self, changes: ChangeSet) -> None:
        """Forget windows and goals that may show purged text."""
        tenant = self.shard(changes.database, changes.tenant).catalog.find(
            changes.database, changes.tenant
        )
        if tenant is not None:
            for kind in (Sessions, Recent, SlowGoals, ReplayedChanges):
                tenant.attached.pop(kind)
            for goals in registries(tenant):
                goals.forget_changes()

    def align_again(self) -> None:
        """Repeat what the system shard decided where that has failed, or was cut short by a
        crash.
        """
        try:
            with self._aligning:
                self._align()
                if self._not_announced:
                    self._announce()
        except KBError as error:
            _log.warning("the databases of the shards may differ: %s", error)

    def _known_tenant(self, database: str, tenant: str) -> Tenant | None:
        """Return a tenant, None if nothing was ever written to it; raise UnknownDatabase."""
        return self.shard(database, tenant).catalog.tenant(database, tenant)

    def _all_tenants(self) -> Iterator[Tenant]:
        for shard in list(self.shards.values()):
            yield from shard.catalog.served_tenants()

    def _fail_shard(self, number: int, error: StorageFailed) -> None:
        """Give up a shard of a cluster: another node may have it, or its log must be read again."""
        _log.warning("the log of shard %d failed: %s", number, error.message)
        if self._on_shard_failure is not None:
            self._on_shard_failure(number)

    def _fail(self, error: StorageFailed) -> None:
        self._failed = error
        if self._on_failure is not None:
            self._on_failure(error)
