"""Databases and their tenants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbcore.errors import UnknownDatabase
from kbcore.state.access import Uncounted
from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeKeys, ChangeSet
from kbcore.state.keys import KeyRing, StoredKey
from kbcore.state.tenant import EndsWithTenant, Tenant
from kbplanner.engine.backend import Engine

DEFAULT = "default"

MAX_DROPS = 1000
"""Drops of databases that are remembered. Without the drop a shard that missed it quarantines its
database instead of dropping it.
"""


@dataclass(slots=True)
class DatabaseEntry:
    """A database: its creation time (epoch milliseconds, 0 for the built-in one), when it was last
    emptied (a later number each time, 0: never), and its tenants by id.
    """

    name: str
    created_at: int = 0
    emptied_at: int = 0
    tenants: dict[str, Tenant] = field(default_factory=dict)

    def facts(self) -> int:
        """Return the number of facts stored in all tenants."""
        return sum(tenant.facts() for tenant in list(self.tenants.values()))


class Catalog:
    """All tenants of all databases, and the keys of the node.

    `make_engine` gives each tenant its own engine.

    A tenant that is dropped or emptied is released, not changed: readers that still hold it see its
    old state.

    A quarantined database has data whose drop is not recorded, but does not exist for its node. It
    is kept and part of snapshots, and requests do not find it.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self._make_engine = make_engine
        self.counts = True
        """True if new tenants count accesses of facts; False on a follower."""
        self._databases: dict[str, DatabaseEntry] = {DEFAULT: DatabaseEntry(DEFAULT)}
        self._mutex = threading.Lock()
        self._quarantined: frozenset[str] = frozenset()
        self._drops: dict[str, int] = {}
        self.keys = KeyRing()
        self.purged = 0
        """The last purge of a tenant that was deleted or emptied later, by its sequence number."""
        self.deleted = 0
        """Sequence number of the last deletion or emptying of a tenant or database."""

    def new_empty(self) -> Catalog:
        """Return an empty catalog with engines of the same kind."""
        return Catalog(self._make_engine)

    def tenant(self, database: str, name: str) -> Tenant | None:
        """Return a tenant, None if nothing was ever written to it; raise UnknownDatabase."""
        known = self._databases.get(database)
        if known is None or database in self._quarantined:
            raise UnknownDatabase(database)
        return known.tenants.get(name)

    def find(self, database: str, name: str) -> Tenant | None:
        """Return a tenant, None if the tenant or its database does not exist."""
        known = None if database in self._quarantined else self._databases.get(database)
        return known.tenants.get(name) if known else None

    def need_tenant(self, database: str, name: str, at: int) -> Tenant:
        """Return a tenant, created at `at` if it is new; raise UnknownDatabase."""
        tenant = self.tenant(database, name)
        if tenant is not None:
            return tenant
        tenants = self.database(database).tenants
        with self._mutex:
            tenant = tenants.get(name)
            if tenant is None:
                tenant = tenants[name] = self._new_tenant(database, name, at)
            return tenant

    def need_database(self, name: str, at: int) -> DatabaseEntry:
        """Return a database, created at `at` if it is new."""
        with self._mutex:
            return self._databases.setdefault(name, DatabaseEntry(name, at))

    def database(self, name: str) -> DatabaseEntry:
        """Return a database; raise UnknownDatabase."""
        database = self._databases.get(name)
        if database is None or name in self._quarantined:
            raise UnknownDatabase(name)
        return database

    def databases(self) -> list[DatabaseEntry]:
        """Return every database, also quarantined ones, sorted by name."""
        return sorted(self._databases.values(), key=lambda database: database.name)

    def tenants(self) -> Iterator[Tenant]:
        """Yield every tenant of every database, also of quarantined ones."""
        for database in self.databases():
            yield from list(database.tenants.values())

    def served_tenants(self) -> Iterator[Tenant]:
        """Yield every tenant that requests can find."""
        for database in self.databases():
            if database.name not in self._quarantined:
                yield from list(database.tenants.values())

    @property
    def quarantined(self) -> frozenset[str]:
        """Names of the databases that exist here and not for the node."""
        return self._quarantined

    def quarantine(self, names: Iterable[str]) -> None:
        """Hide these databases from requests, and no others; the caller makes sure that no writer
        is active.
        """
        with self._mutex:
            self._quarantined = frozenset(names)

    @property
    def drops(self) -> dict[str, int]:
        """The latest drops of databases, oldest first: name, and creation time of what was
        dropped.
        """
        return dict(self._drops)

    def has_dropped(self, name: str, created_at: int) -> bool:
        """Return True if a database of this name and creation time was dropped, or a later one."""
        return created_at <= self._drops.get(name, -1)

    def record_drop(self, name: str, created_at: int) -> None:
        """Remember that a database was dropped, and all of its name before it."""
        latest = max(created_at, self._drops.pop(name, created_at))
        self._drops[name] = latest
        if len(self._drops) > MAX_DROPS:
            del self._drops[next(iter(self._drops))]

    def last_purge(self) -> int:
        """Return the sequence number of the last purge of any tenant, 0 if there was none."""
        return max([self.purged, *(tenant.purges.last_seq() for tenant in self.tenants())])

    def empty_tenant(self, database: str, name: str) -> Tenant:
        """Return an empty tenant to read in place of one that does not exist; it is not stored.

        Raise UnknownDatabase.
        """
        self.database(database)
        return Tenant(database, name, self._make_engine(), 0)

    def place(self, changes: ChangeSet, at: int, seq: int = 0) -> Tenant | None:
        """Return the tenant of a durable change set, created if new.

        None after a change of the catalog, which is applied.

        `seq` is the sequence number of the change set in the log.
        """
        change = changes.changes[0] if changes.of_catalog else None
        if isinstance(change, ChangeKeys):
            with self._mutex:
                self.keys.change(change.put, change.drop)
            return None
        if not isinstance(change, ChangeCatalog):
            return self.need_tenant(changes.database, changes.tenant, at)
        action, name = change.action, changes.database
        if action is CatalogAction.CREATE_DATABASE:
            later = max(at, self._drops.get(name, -1) + 1)
            self.need_database(name, later if change.mark is None else change.mark)
        elif action is CatalogAction.CREATE_TENANT:
            self.need_tenant(name, changes.tenant, at)
        elif action is CatalogAction.DROP_DATABASE:
            with self._mutex:
                dropped = self._databases.pop(name)
                self._quarantined -= {name}
                self.record_drop(name, dropped.created_at)
                self._delete(list(dropped.tenants.values()), seq)
        elif action is CatalogAction.DROP_TENANT:
            with self._mutex:
                # Of a tenant whose key was destroyed, a log has the deletion and nothing before it.
                dropped_tenant = self.database(name).tenants.pop(changes.tenant, None)
                self._delete([] if dropped_tenant is None else [dropped_tenant], seq)
        else:
            database = self.database(name)
            if action is CatalogAction.NUKE_DATABASE:
                later = max(at, database.emptied_at + 1)
                database.emptied_at = later if change.mark is None else change.mark
            known = database.tenants
            if action is CatalogAction.NUKE_TENANT:
                emptied = [self.need_tenant(name, changes.tenant, at).name]
            else:
                emptied = list(known)
            with self._mutex:
                before = [known[tenant] for tenant in emptied]
                for tenant in emptied:
                    known[tenant] = self._new_tenant(name, tenant, known[tenant].created_at)
                    known[tenant].seq = seq
                self._delete(before, seq)
        return None

    def mirror(
        self,
        databases: Iterable[DatabaseEntry],
        drops: Mapping[str, int],
        keys: Iterable[StoredKey],
        *,
        used: bool,
    ) -> None:
        """Replace the databases, which have no tenants here, their drops, and the keys."""
        ring = KeyRing()
        ring.change(keys, ())
        ring.used = used
        with self._mutex:
            self._databases = {database.name: database for database in databases}
            self._drops = dict(drops)
            self.keys = ring

    def become(self, other: Catalog) -> None:
        """Replace the contents with those of another catalog at once, and release the old
        tenants.
        """
        with self._mutex:
            before = list(self.tenants())
            vars(self).update(
                {
                    name: value
                    for name, value in vars(other).items()
                    if name not in ("_mutex", "_make_engine")
                }
            )
            self._release(before)

    def _new_tenant(self, database: str, name: str, at: int) -> Tenant:
        tenant = Tenant(database, name, self._make_engine(), at)
        if not self.counts:
            tenant.accesses = Uncounted()
        return tenant

    def close(self) -> None:
        """Close every engine."""
        for tenant in self.tenants():
            tenant.engine.close()

    def forget(self) -> None:
        """Release every tenant: their memory is freed when no reader holds them any more."""
        with self._mutex:
            self.purged = self.deleted = 0
            self._quarantined, self._drops = frozenset(), {}
            databases, self._databases = self._databases, {DEFAULT: DatabaseEntry(DEFAULT)}
        for database in databases.values():
            self._release(list(database.tenants.values()))

    def _delete(self, tenants: Sequence[Tenant], seq: int) -> None:
        """Release tenants whose text is to be removed from the log, which has it up to `seq`."""
        if tenants:
            self.deleted = max(self.deleted, seq)
        self.purged = max([self.purged, *(tenant.purges.last_seq() for tenant in tenants)])
        self._release(tenants)

    @staticmethod
    def _release(tenants: Iterable[Tenant]) -> None:
        # Call it after the tenants are replaced: listeners read the new state.
        for tenant in tenants:
            tenant.gone = True
            tenant.observer = None
            for each in tenant.attached.clear():
                if isinstance(each, EndsWithTenant):
                    each.tenant_ended()
