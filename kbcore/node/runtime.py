"""Start and stop of a node: plugins, log, state and the write path, built once and in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from kbcore.clock import Clock, LoggedClock, SystemClock
from kbcore.config.settings import Config
from kbcore.context.text.tokens import TokenCounter
from kbcore.durable.capture import Capture
from kbcore.durable.commit import Committer
from kbcore.durable.full_disk import ROOM_SECONDS, FullDisk
from kbcore.durable.recovery import Recovered, recover
from kbcore.durable.request_key import marked
from kbcore.durable.transactions import Transactions
from kbcore.errors import ReadOnlyFollower, StorageFailed
from kbcore.events.feed import Committed
from kbcore.kb.tenant_kb import TenantKB
from kbcore.kb.transaction import TransactionKB
from kbcore.llm.model import Model, model_check
from kbcore.node.admin import Admin
from kbcore.node.api_keys import Keys
from kbcore.node.initial_rules import NewTenants
from kbcore.node.instruments import Meters, collector, model_called
from kbcore.node.knowledge_base import KnowledgeBase
from kbcore.node.metric_sinks import Metrics
from kbcore.node.quotas import Quotas
from kbcore.node.readiness import readiness, recovery_check, storage_check
from kbcore.node.snapshotter import Snapshots
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LLMProvider, LogStatus, LogStore, WorksBeside
from kbcore.reason.admission import Caller, Slots
from kbcore.reason.ask import Reasoner
from kbcore.replication.role import Replication, check_leader_mark, check_settings
from kbcore.retraction.cascade import Cascades
from kbcore.scheduling import Scheduling
from kbcore.search.embedder import Embedding
from kbcore.state.catalog import DEFAULT, Catalog
from kbcore.state.changes import ChangeSet, Delta
from kbcore.state.tenant import Tenant
from kbcore.upkeep.sweep import Sweeper
from kbplanner.engine.backend import Limits
from kbplanner.engine.engine import Engine as CEngine
from kbplanner.reference.engine import ReferenceEngine

T = TypeVar("T")

CHECK_INTERVAL_S = 30
"""Seconds between checks for expired transactions and for a snapshot that is due."""


def _tell_commit(tell: Callable[..., None], committed: Committed) -> None:
    tell(database=committed.database, tenant=committed.tenant, delta=committed.delta)


def open_runtime(
    config: Config,
    *,
    plugins: Iterable[object] = (),
    clock: Clock | None = None,
    scheduling: Scheduling | None = None,
    on_failure: Callable[[StorageFailed], None] | None = None,
    llm: LLMProvider | None = None,
) -> Runtime:
    """Load plugins, open the log, recover the state, and return a node that is ready to serve.

    `on_failure` is called when the log failed. `llm` replaces LLM_PROVIDER. Raises ConfigError,
    StorageBusy, LogCorrupted.
    """
    check_settings(config)
    loaded = Plugins(config, plugins)
    loaded.salience_scorer()  # fail on an unknown name before the log is opened
    scheduling = scheduling or Scheduling()
    provider = llm or loaded.llm_provider()
    embedder, tokenizer = loaded.embedder(), loaded.tokenizer()
    metrics = Metrics(loaded.metrics_sinks())
    store = loaded.open_storage()
    logged = LoggedClock(clock or SystemClock())
    begun = logged.monotonic()
    storage = _recovered(store, config, logged)
    model = None
    if provider is not None:
        model = Model(provider, config, logged, model_called(metrics, loaded))
    runtime = Runtime(config, loaded, metrics, storage, scheduling, on_failure, model)
    runtime.token_counter = TokenCounter(tokenizer)
    if embedder is not None:
        runtime.embedding = Embedding(embedder, logged, scheduling.offload, runtime.meters.embedded)
    metrics.on_collect(collector(runtime, logged.monotonic() - begun))
    loaded.tell("kb_runtime_started", runtime=runtime)
    return runtime


@dataclass(frozen=True, slots=True)
class Storage:
    """The open log of a node and the state recovered from it."""

    store: LogStore
    catalog: Catalog
    clock: LoggedClock
    recovered: Recovered


def _recovered(store: LogStore, config: Config, clock: LoggedClock) -> Storage:
    """Recover the state from a log; close the log if that fails."""
    make_engine: Any = ReferenceEngine if config.engine == "python" else CEngine
    catalog = Catalog(make_engine)
    try:
        check_leader_mark(store, config)
        recovered = recover(store, catalog)
    except BaseException:
        store.close(clean=False)
        raise
    clock.seen(recovered.last_time)
    return Storage(store, catalog, clock, recovered)


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
        model: Model | None,
    ) -> None:
        self.config = config
        self.plugins = plugins
        self.metrics = metrics
        self.meters = Meters(metrics)
        self.clock = storage.clock
        self.recovered = storage.recovered
        self._store = storage.store
        self._catalog = storage.catalog
        self._new_tenants = (
            NewTenants(plugins, self._catalog, self._commit)
            if plugins.listens("kb_rule_texts")
            else None
        )
        self.reports_goals = plugins.listens("kb_goal_answered")
        plugins.on_failure = self.meters.failed
        self.offload = scheduling.offload
        self.yield_now = scheduling.yield_now
        self.yield_in_background = scheduling.yield_in_background
        self.scorer = plugins.salience_scorer()
        self.model = model
        self.embedding: Embedding | None = None
        self.token_counter = TokenCounter()
        self._quotas = Quotas(config)
        self.slots = Slots(config.tenant_max_inferences)
        self.limits = Limits(config.query_max_rows, config.query_max_bytes, config.query_max_steps)
        if isinstance(self._store, WorksBeside):
            self._store.work_through(scheduling.offload_disk)
        self._wake = threading.Event()
        self._stopping = False
        self._failed: StorageFailed | None = None
        self._on_failure = on_failure
        self.transactions = Transactions(config, self.clock, self.meters.transaction)
        self._committer = Committer(
            self._store,
            self._catalog,
            self.clock,
            config,
            offload=scheduling.offload_disk,
            on_failure=self._fail,
            synced=self.meters.synced,
        )
        self.feed = self._committer.feed
        if plugins.listens("kb_changes_committed"):
            self.feed.subscribe(
                partial(_tell_commit, partial(plugins.tell, "kb_changes_committed"))
            )
        self.replication = Replication(self._committer, config, scheduling, self._wrote)
        metrics.on_collect(self.replication.values)
        self.replication.on_led.append(self._sweep)
        self._snapshots = Snapshots(
            self._committer, config, scheduling, self.replication, self.meters.snapshot
        )
        self._room = FullDisk(
            self._store,
            scheduling.offload_disk,
            self._wake.set,
            self._snapshots.try_take,
            self._fail,
        )
        self._keeper = threading.Thread(target=self._keep, name="kbcore-keeper", daemon=True)
        self._keeper.start()
        self._sweep()

    def _sweep(self) -> None:
        """Start incremental eviction of expired facts; a follower gets evictions with the log."""
        interval = self.config.sweep_interval_ms if self.replication.leader_url is None else 0
        self.sweeper = Sweeper(
            self._catalog.tenants,
            self.read_tenant,
            self.commit,
            self.clock,
            self.yield_now,
            interval,
        )

    def knowledge_base(
        self, database: str = DEFAULT, tenant: str = DEFAULT, caller: Caller | None = None
    ) -> TenantKB:
        """Return a handle on a tenant, which its first write creates; raise UnknownDatabase.

        `caller` is the client that waits for results; long goals stop when it disconnects.
        """
        self._catalog.tenant(database, tenant)
        return TenantKB(self, database, tenant, caller)

    def open(self, tenant: str = DEFAULT, database: str = DEFAULT) -> KnowledgeBase:
        """Return a tenant as `open_kb` does, for Python programs; raise UnknownDatabase.

        The first write creates the tenant. Closing the knowledge base leaves the runtime open.
        """
        return KnowledgeBase(self, tenant, database, owns_runtime=False)

    def admin(self) -> Admin:
        """Return a handle on the databases and tenants as a whole."""
        return Admin(self, self._catalog)

    def keys(self) -> Keys:
        """Return a handle on the API keys of the node."""
        return Keys(self, self._catalog)

    def begin(self, database: str = DEFAULT, tenant: str = DEFAULT) -> str:
        """Open a transaction and return its id.

        Raises UnknownDatabase, RateLimited, ReadOnlyFollower.
        """
        self.refuse_on_follower()
        known = self._catalog.tenant(database, tenant)
        if known is None and self._new_tenants is not None:
            self._new_tenants.introduce(database, tenant)
        return self.transactions.begin(database, tenant).id

    def refuse_on_follower(self) -> None:
        """Raise ReadOnlyFollower on a follower.

        For operations that do much work before they write.
        """
        if (leader := self.replication.leader_url) is not None:
            raise ReadOnlyFollower(leader)

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
        known = self._catalog.find(database, tenant)
        return TransactionKB(
            self, self.transactions.find(database, tenant, id, known), writes, caller
        )

    def find_tenant(self, database: str, name: str) -> Tenant | None:
        """Return a tenant advanced to now, None if the database or the tenant does not exist."""
        return self.read_tenant(database, name) if self._catalog.find(database, name) else None

    def commit(self, changes: ChangeSet) -> Delta:
        """Make a change set durable and apply it: the only way to change anything."""
        changes = marked(changes)
        return (
            self._commit(changes)
            if self._new_tenants is None
            else self._new_tenants.commit(changes)
        )

    def _commit(self, changes: ChangeSet) -> Delta:
        with self._room.watched(changes), self._quotas.room(self._catalog, changes):
            delta = self._committer.commit(changes)
        self.replication.last_commit.seq = delta.seq
        self._wrote(changes, delta)
        return delta

    def _wrote(self, changes: ChangeSet, delta: Delta) -> None:
        """Update metrics and caches after a change set was applied, from here or from the
        leader.
        """
        self.meters.committed(changes, delta)
        if delta.rules_added or delta.rules_removed or delta.dropped:
            self._forget_tables(changes)
        if changes.of_catalog:
            self.transactions.fail(changes.database, changes.tenant or None)
        if self._snapshots.grown:
            self._wake.set()

    def read_tenant(self, database: str, name: str) -> Tenant:
        """Return a tenant to read, advanced to now; an unknown one is empty.

        Raises the error that made the tenant unusable, if any.
        """
        tenant = self._catalog.tenant(database, name)
        if tenant is None:
            return self._catalog.empty_tenant(database, name)
        if tenant.failed is not None:
            raise tenant.failed
        now = tenant.read_at = self.clock.now_ms()
        if tenant.due(now):
            with tenant.lock.write():
                tenant.advance(now)
        return tenant

    @property
    def log_id(self) -> str:
        """The unique id of the log."""
        return self._store.status().log_id

    def log_head(self) -> int:
        """Return the last sequence number of the log."""
        return self._store.status().head

    def applied(self, database: str, name: str) -> int:
        """Return a sequence number up to which all changes of a tenant are applied."""
        tenant = self._catalog.find(database, name)
        if tenant is None:
            return self.log_head()
        with tenant.lock.read():
            return tenant.seq

    def reasoner(self, tenant: Tenant) -> Reasoner:
        """Return the reasoner of a tenant, with its goal tables."""
        reasoner = tenant.attached.get("reasoner")
        if reasoner is None:
            config = self.config
            new = Reasoner(
                tenant, config.goal_table_mb << 20, config.engine_verify, self.meters.tables
            )
            reasoner = tenant.attached.setdefault("reasoner", new)
        return cast(Reasoner, reasoner)

    def cascades(self, tenant: Tenant) -> Cascades:
        """Return the object that finds conclusions that no longer hold after retractions."""
        cascades = tenant.attached.get("cascades")
        return cast(
            Cascades,
            tenant.attached.setdefault("cascades", Cascades(tenant))
            if cascades is None
            else cascades,
        )

    def snapshot(self) -> int:
        """Take a snapshot and drop the log it makes unnecessary; return its sequence number."""
        return self._snapshots.take()

    def captured(self) -> tuple[LogStatus, Capture]:
        """Capture the current state between two batches, with the status of the log at that
        point.
        """
        return self._snapshots.captured()

    def tenants(self) -> tuple[int, list[Tenant]]:
        """Return the number of databases, and every tenant."""
        return len(self._catalog.databases()), list(self._catalog.tenants())

    @property
    def committer(self) -> Committer:
        """The one write path, with its counters."""
        return self._committer

    def log_status(self) -> LogStatus:
        """Return the status of the log, not writable after a failure."""
        status = self._store.status()
        return status if self._failed is None else replace(status, writable=False)

    def snapshot_age(self) -> float:
        """Return the seconds since the last snapshot, or since the start."""
        return self._snapshots.age()

    def health(self) -> dict[str, Any]:
        """Return the readiness: overall status, a check for each part, and `writable`."""
        status = self._store.status()
        checks = {
            "storage": storage_check(self.config, status, failed=self._failed is not None),
            "recovery": recovery_check(self.recovered, self._catalog.tenants()),
            "replication": self.replication.check(),
            "llm": model_check(self.model),
        }
        return readiness(
            checks,
            available=not self._stopping
            and (status.writable or not self.config.ready_requires_writes),
            writable=status.writable and self.replication.leader_url is None,
        )

    def close(self) -> None:
        """Refuse new writes, take a snapshot if there are new records, and release the log."""
        if self._stopping:
            return
        self._stopping = True
        self.plugins.tell("kb_runtime_stopping", runtime=self)
        self.replication.close()
        self.sweeper.close()
        self._committer.close()
        self._wake.set()
        self._keeper.join()
        clean = self._failed is None
        if clean and self._snapshots.bytes_since:
            self._snapshots.try_take()
        self._store.close(clean=clean)
        self.metrics.close()
        self._catalog.close()
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
                if self._room.full
                else min(self.config.snapshot_minutes * 60, CHECK_INTERVAL_S)
            )
            self._wake.clear()
            if self._stopping:
                return
            self.transactions.expire()
            self._room.make()
            self.metrics.push()
            if not self._room.full and self._snapshots.due():
                self._snapshots.try_take()

    def _forget_tables(self, changes: ChangeSet) -> None:
        tenant = self._catalog.tenant(changes.database, changes.tenant)
        if tenant is not None:
            with tenant.lock.read():
                self.reasoner(tenant).tables.clear()
                tenant.models.clear()

    def _fail(self, error: StorageFailed) -> None:
        self._failed = error
        if self._on_failure is not None:
            self._on_failure(error)
