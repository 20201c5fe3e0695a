"""Everything built once and in order: plugins, log, state, the write path; and taken down again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from kbcore.clock import Clock, LoggedClock, SystemClock
from kbcore.config import Config
from kbcore.durable.commit import Committer
from kbcore.durable.recovery import Recovered, recover
from kbcore.durable.snapshot import capture, encode
from kbcore.errors import KBError, StorageFailed
from kbcore.kb import KnowledgeBase
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogStore
from kbcore.reason.ask import Reasoner
from kbcore.reason.cascade import Cascades
from kbcore.state.catalog import DEFAULT, Catalog
from kbcore.state.changes import ChangeSet, Delta
from kbcore.state.tenant import Tenant
from kbplanner.backend import Engine, Limits
from kbplanner.engine import Engine as CEngine
from kbplanner.reference import ReferenceEngine

T = TypeVar("T")

_log = logging.getLogger("kbcore.runtime")


def _in_place(call: Callable[[], Any]) -> Any:
    return call()


def _nobody_waits() -> None:
    """Where there is only one thing going on, there is nobody to let through."""


def open_runtime(
    config: Config,
    *,
    plugins: Iterable[object] = (),
    clock: Clock | None = None,
    offload: Callable[[Callable[[], Any]], Any] | None = None,
    pause: Callable[[], None] | None = None,
    on_failure: Callable[[StorageFailed], None] | None = None,
) -> Runtime:
    """Load plugins, open the log, recover the state, and be ready to serve.

    `offload` runs a blocking call where it holds up nobody (default: in place); `pause` lets others run, between slices
    of long work; `on_failure` is told when the log failed and the process must stop. Raises ConfigError, StorageBusy,
    LogCorrupted.
    """
    loaded = Plugins(config, plugins)
    store = loaded.open_storage()
    logged = LoggedClock(clock or SystemClock())
    catalog = Catalog(_engine_maker(config))
    try:
        recovered = recover(store, catalog)
    except BaseException:
        store.close(clean=False)
        raise
    logged.seen(recovered.last_time)
    return Runtime(config, loaded, store, catalog, logged, recovered, offload or _in_place, pause, on_failure)


def _engine_maker(config: Config) -> Callable[[], Engine]:
    return ReferenceEngine if config.engine == "python" else CEngine  # type: ignore[return-value]


class Runtime:
    """A running node: its state, its log, and knowledge bases as handles on tenants."""

    def __init__(
        self,
        config: Config,
        plugins: Plugins,
        store: LogStore,
        catalog: Catalog,
        clock: LoggedClock,
        recovered: Recovered,
        offload: Callable[[Callable[[], Any]], Any],
        pause: Callable[[], None] | None,
        on_failure: Callable[[StorageFailed], None] | None,
    ) -> None:
        self.config = config
        self.plugins = plugins
        self.clock = clock
        self.recovered = recovered
        self.offload = offload
        self.pause = pause or _nobody_waits
        self.limits = Limits(config.query_max_rows, config.query_max_bytes, config.query_max_steps)
        self._store = store
        self._catalog = catalog
        self._reasoners: WeakKeyDictionary[Tenant, Reasoner] = WeakKeyDictionary()
        self._cascades: WeakKeyDictionary[Tenant, Cascades] = WeakKeyDictionary()
        self._snapshot_at_bytes = 0
        self._snapshot_at = clock.monotonic()
        self._snapshotting = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._failed: StorageFailed | None = None
        self._on_failure = on_failure
        self._committer = Committer(
            store,
            catalog,
            clock,
            offload=offload,
            max_records=config.write_queue_records,
            max_bytes=config.write_queue_bytes,
            on_failure=self._fail,
        )
        self._keeper = threading.Thread(target=self._keep, name="kbcore-keeper", daemon=True)
        self._keeper.start()

    def knowledge_base(self, database: str = DEFAULT, tenant: str = DEFAULT) -> KnowledgeBase:
        """A handle on a tenant; raises UnknownDatabase. The tenant comes into being with its first write."""
        self._catalog.tenant(database, tenant)
        return KnowledgeBase(self, database, tenant)

    def commit(self, changes: ChangeSet) -> Delta:
        """Make a change set durable and apply it: the only way to change anything."""
        delta = self._committer.commit(changes)
        if delta.rules_added or delta.rules_removed:
            self._forget_tables(changes)
        if self._committer.bytes - self._snapshot_at_bytes >= self.config.snapshot_log_mb << 20:
            self._wake.set()
        return delta

    def read_tenant(self, database: str, name: str) -> Tenant:
        """A tenant to read, brought to now; an unknown one is empty. Raises what made the tenant unusable, if anything."""
        tenant = self._catalog.tenant(database, name)
        if tenant is None:
            return self._catalog.empty_tenant(database, name)
        if tenant.failed is not None:
            raise tenant.failed
        now = self.clock.now_ms()
        if tenant.due(now):
            with tenant.lock.write():
                tenant.advance(now)
        return tenant

    def reasoner(self, tenant: Tenant) -> Reasoner:
        """The reasoner of a tenant, with its goal tables."""
        found = self._reasoners.get(tenant)
        if found is None:
            made = Reasoner(tenant, self.config.goal_table_mb << 20, self.config.engine_verify)
            found = self._reasoners.setdefault(tenant, made)
        return found

    def cascades(self, tenant: Tenant) -> Cascades:
        """What finds the conclusions that fall with a tenant's retractions."""
        found = self._cascades.get(tenant)
        return self._cascades.setdefault(tenant, Cascades(tenant)) if found is None else found

    def snapshot(self) -> int:
        """Take a snapshot and drop the log it makes unnecessary; returns its sequence number."""
        with self._snapshotting:
            head, captures = self._committer.exclusively(lambda head: (head, [capture(t) for t in self._catalog.tenants()]))
            chunks = []
            for chunk in encode(captures):
                chunks.append(chunk)
                self.pause()
            self.offload(lambda: self._store.save_snapshot(head, chunks))
            self.offload(lambda: self._store.drop_before(head))
            self._snapshot_at_bytes = self._committer.bytes
            self._snapshot_at = self.clock.monotonic()
            return head

    def health(self) -> dict[str, Any]:
        """Readiness: overall status, a check for each part, and whether writes are taken."""
        status = self._store.status()
        storage = {"status": "pass", "message": f"{self.config.storage_backend}, fsync {self.config.fsync_policy}"}
        if not status.writable:
            storage = {"status": "warn", "message": "no room on the disk: reads only"}
        if self._failed is not None:
            storage = {"status": "fail", "message": "the log failed"}
        broken = [tenant.name for tenant in self._catalog.tenants() if tenant.failed is not None]
        recovery = {
            "status": "fail" if broken else "pass",
            "message": f"{self.recovered.records} records replayed after snapshot {self.recovered.snapshot}",
        }
        checks = {"storage": storage, "recovery": recovery}
        worst = {check["status"] for check in checks.values()}
        overall = "unhealthy" if "fail" in worst or self._stopping else "degraded" if "warn" in worst else "healthy"
        return {"status": overall, "checks": checks, "writable": overall != "unhealthy" and status.writable}

    def close(self) -> None:
        """Refuse new writes, take a snapshot where there is something new, and release the log."""
        if self._stopping:
            return
        self._stopping = True
        self._committer.close()
        self._wake.set()
        self._keeper.join()
        clean = self._failed is None
        if clean and self._committer.bytes > self._snapshot_at_bytes:
            try:
                self.snapshot()
            except KBError as error:
                _log.warning("no snapshot at the stop: %s", error)
        self._store.close(clean=clean)
        self._catalog.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _keep(self) -> None:
        """Take snapshots when the log has grown or grown old. Runs beside everything else until the stop."""
        while not self._stopping:
            self._wake.wait(self.config.snapshot_minutes * 60)
            self._wake.clear()
            if self._stopping:
                return
            grown = self._committer.bytes - self._snapshot_at_bytes
            due = self.clock.monotonic() - self._snapshot_at >= self.config.snapshot_minutes * 60
            if grown and (due or grown >= self.config.snapshot_log_mb << 20):
                try:
                    self.snapshot()
                except KBError as error:
                    _log.warning("snapshot failed, the whole log is kept: %s", error)

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
