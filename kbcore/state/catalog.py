"""Databases and their tenants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kbcore.errors import UnknownDatabase
from kbcore.state.access import Uncounted
from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeKeys, ChangeSet
from kbcore.state.keys import KeyRing
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Engine

DEFAULT = "default"


@dataclass(slots=True)
class Database:
    """A database: when it was created (epoch milliseconds, 0: it was always there), and its tenants by id."""

    name: str
    created_at: int = 0
    tenants: dict[str, Tenant] = field(default_factory=dict)

    def facts(self) -> int:
        """Facts stored in all tenants."""
        return sum(tenant.facts() for tenant in list(self.tenants.values()))


class Catalog:
    """All tenants of all databases, and the keys of the node; `make_engine` gives each tenant an engine of its own.

    A tenant that is dropped or emptied is let go of, not changed: whoever still reads it sees it as it was.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self._make_engine = make_engine
        self.counts = True
        """Whether accesses of facts are counted in tenants that are made; not on a node that follows another one."""
        self._databases: dict[str, Database] = {DEFAULT: Database(DEFAULT)}
        self._mutex = threading.Lock()
        self.keys = KeyRing()

    def tenant(self, database: str, name: str) -> Tenant | None:
        """A tenant, None if nothing was ever written to it; raises UnknownDatabase."""
        return self.database(database).tenants.get(name)

    def find(self, database: str, name: str) -> Tenant | None:
        """A tenant, None where it or its database is not there."""
        known = self._databases.get(database)
        return known.tenants.get(name) if known else None

    def need_tenant(self, database: str, name: str, at: int) -> Tenant:
        """A tenant, made if new with creation time `at`; raises UnknownDatabase."""
        tenants = self.database(database).tenants
        with self._mutex:
            found = tenants.get(name)
            if found is None:
                found = tenants[name] = self._made(database, name, at)
            return found

    def need_database(self, name: str, at: int) -> Database:
        """A database, made if new with creation time `at`."""
        with self._mutex:
            return self._databases.setdefault(name, Database(name, at))

    def database(self, name: str) -> Database:
        """A database; raises UnknownDatabase."""
        found = self._databases.get(name)
        if found is None:
            raise UnknownDatabase(name)
        return found

    def databases(self) -> list[Database]:
        """Every database, by name."""
        return sorted(self._databases.values(), key=lambda database: database.name)

    def tenants(self) -> Iterator[Tenant]:
        """Every tenant of every database."""
        for database in self.databases():
            yield from list(database.tenants.values())

    def empty_tenant(self, database: str, name: str) -> Tenant:
        """A tenant for reading one that does not exist; it is not kept. Raises UnknownDatabase."""
        self.database(database)
        return Tenant(database, name, self._make_engine(), 0)

    def place(self, changes: ChangeSet, at: int, seq: int = 0) -> Tenant | None:
        """The tenant that a durable change set is for, made if new; None where it changed the catalog itself, now done.

        `seq` is its place in the log.
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
            self.need_database(name, at)
        elif action is CatalogAction.CREATE_TENANT:
            self.need_tenant(name, changes.tenant, at)
        elif action is CatalogAction.DROP_DATABASE:
            with self._mutex:
                self._let_go(self._databases.pop(name).tenants.values())
        elif action is CatalogAction.DROP_TENANT:
            with self._mutex:
                self._let_go([self.database(name).tenants.pop(changes.tenant)])
        else:
            known = self.database(name).tenants
            emptied = [changes.tenant] if action is CatalogAction.NUKE_TENANT else list(known)
            with self._mutex:
                self._let_go([known[tenant] for tenant in emptied])
                for tenant in emptied:
                    known[tenant] = self._made(name, tenant, known[tenant].created_at)
                    known[tenant].seq = seq
        return None

    def become(self, other: Catalog) -> None:
        """Hold what another one holds, from one moment to the next; what was here is let go of."""
        with self._mutex:
            self._let_go(list(self.tenants()))
            vars(self).update({name: value for name, value in vars(other).items() if name not in ("_mutex", "_make_engine")})

    def _made(self, database: str, name: str, at: int) -> Tenant:
        made = Tenant(database, name, self._make_engine(), at)
        if not self.counts:
            made.accesses = Uncounted()
        return made

    def close(self) -> None:
        """Give every engine back."""
        for tenant in self.tenants():
            tenant.engine.close()

    @staticmethod
    def _let_go(tenants: Iterable[Tenant]) -> None:
        for tenant in tenants:
            tenant.gone = True
            tenant.attached.clear()
