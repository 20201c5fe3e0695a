"""Databases and tenants as a whole: listed, created, dropped, emptied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbcore.errors import AlreadyExists, Conflict, NotFound
from kbcore.state.catalog import DEFAULT, Catalog
from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeSet

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """A database: how many tenants and stored facts it has, and when it was created in epoch milliseconds.

    The default database was not created but always there: its time is 0.
    """

    name: str
    tenants: int
    facts: int
    created_at: int


class Admin:
    """What an administrator of a node may do. Every change is durable when its method returns.

    Emptying (`nuke`) leaves the name and takes everything else: facts, rules, scopes, what is remembered of transactions.
    """

    def __init__(self, runtime: Runtime, catalog: Catalog) -> None:
        self._runtime = runtime
        self._catalog = catalog

    def databases(self) -> list[DatabaseInfo]:
        """Every database, by name."""
        found = []
        for database in self._catalog.databases():
            tenants = list(database.tenants.values())
            facts = 0
            for tenant in tenants:
                with tenant.lock.read():
                    facts += tenant.facts()
            found.append(DatabaseInfo(database.name, len(tenants), facts, database.created_at))
        return found

    def create_database(self, name: str) -> None:
        """Create a database; raises AlreadyExists."""

        def check() -> None:
            if any(database.name == name for database in self._catalog.databases()):
                raise AlreadyExists(f"database '{name}' exists", {"database": name})

        self._change(CatalogAction.CREATE_DATABASE, name, check)

    def drop_database(self, name: str) -> None:
        """Remove a database with all its tenants; raises UnknownDatabase, and Conflict for the default one."""
        if name == DEFAULT:
            raise Conflict(f"database '{DEFAULT}' cannot be deleted, only nuked", {"database": name})
        self._change(CatalogAction.DROP_DATABASE, name, lambda: self._known(name))

    def nuke_database(self, name: str) -> None:
        """Empty every tenant of a database; raises UnknownDatabase."""
        self._change(CatalogAction.NUKE_DATABASE, name, lambda: self._known(name))

    def tenants(self, database: str) -> list[str]:
        """The ids of a database's tenants, sorted; raises UnknownDatabase."""
        return sorted(self._catalog.database(database).tenants)

    def create_tenant(self, database: str, tenant: str) -> bool:
        """Create a tenant; False where it is there already. Raises UnknownDatabase."""

        def check() -> None:
            if self._catalog.tenant(database, tenant) is not None:
                raise _Known("it is there")

        try:
            self._change(CatalogAction.CREATE_TENANT, database, check, tenant)
        except _Known:
            return False
        return True

    def drop_tenant(self, database: str, tenant: str) -> None:
        """Remove a tenant with all it has; raises UnknownDatabase and NotFound."""
        self._change(CatalogAction.DROP_TENANT, database, lambda: self._known(database, tenant), tenant)

    def nuke_tenant(self, database: str, tenant: str) -> None:
        """Empty a tenant; raises UnknownDatabase and NotFound."""
        self._change(CatalogAction.NUKE_TENANT, database, lambda: self._known(database, tenant), tenant)

    def _known(self, database: str, tenant: str | None = None) -> None:
        """Raise where there is no such database or tenant."""
        tenants = self._catalog.database(database).tenants
        if tenant is not None and tenant not in tenants:
            raise NotFound(f"tenant '{tenant}' does not exist", {"database": database, "tenant": tenant})

    def _change(self, action: CatalogAction, database: str, check: Callable[[], None], tenant: str = "") -> None:
        self._runtime.commit(ChangeSet(database, tenant, (ChangeCatalog(action),), check))


class _Known(AlreadyExists):
    """A tenant that need not be created."""
