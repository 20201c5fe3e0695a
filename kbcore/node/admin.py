"""Administration of databases and tenants: list, create, drop, empty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbcore.errors import AlreadyExists, Conflict, NotFound
from kbcore.state.catalog import DEFAULT, Catalog
from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeSet
from kbcore.state.tenant import Tenant

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """A database: its numbers of tenants and stored facts, and its creation time in epoch
    milliseconds.

    The default database always exists: its creation time is 0.
    """

    name: str
    tenants: int
    facts: int
    created_at: int


class Admin:
    """Operations of a node administrator. Every change is durable when its method returns.

    Emptying (`nuke`) keeps the name and removes everything else: facts, rules, scopes, records of
    transactions.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._system = runtime.system.catalog

    def databases(self) -> list[DatabaseInfo]:
        """Return every database, by name."""
        return [
            DatabaseInfo(database.name, *self._counts(database.name), database.created_at)
            for database in self._system.databases()
        ]

    def create_database(self, name: str) -> None:
        """Create a database; raises AlreadyExists."""

        def check() -> None:
            if any(database.name == name for database in self._system.databases()):
                raise AlreadyExists(f"database '{name}' exists", {"database": name})

        self._change(CatalogAction.CREATE_DATABASE, name, check)

    def drop_database(self, name: str) -> None:
        """Remove a database with all its tenants.

        Raise UnknownDatabase, and Conflict for the default one.
        """
        if name == DEFAULT:
            raise Conflict(
                f"database '{DEFAULT}' cannot be deleted, only nuked", {"database": name}
            )
        self._change(CatalogAction.DROP_DATABASE, name, lambda: self._known(name))

    def nuke_database(self, name: str) -> None:
        """Empty every tenant of a database; raise UnknownDatabase."""
        self._change(CatalogAction.NUKE_DATABASE, name, lambda: self._known(name))

    def tenants(self, database: str) -> list[str]:
        """Return the ids of a database's tenants, sorted; raise UnknownDatabase."""
        self._system.database(database)
        return sorted(tenant.name for tenant in self._tenants(database))

    def create_tenant(self, database: str, tenant: str) -> bool:
        """Create a tenant; return False if it exists already. Raises UnknownDatabase."""

        def check() -> None:
            if self._catalog(database, tenant).tenant(database, tenant) is not None:
                raise _Known("the tenant exists")

        try:
            self._change(CatalogAction.CREATE_TENANT, database, check, tenant)
        except _Known:
            return False
        return True

    def drop_tenant(self, database: str, tenant: str) -> None:
        """Remove a tenant with all its data; raise UnknownDatabase and NotFound."""
        self._change(
            CatalogAction.DROP_TENANT, database, lambda: self._known(database, tenant), tenant
        )

    def nuke_tenant(self, database: str, tenant: str) -> None:
        """Empty a tenant; raise UnknownDatabase and NotFound."""
        self._change(
            CatalogAction.NUKE_TENANT, database, lambda: self._known(database, tenant), tenant
        )

    def _catalog(self, database: str, tenant: str) -> Catalog:
        return self._runtime.shard(database, tenant).catalog

    def _tenants(self, database: str) -> list[Tenant]:
        return [tenant for tenant in self._runtime.tenants()[1] if tenant.database == database]

    def _counts(self, database: str) -> tuple[int, int]:
        """Return the numbers of tenants and facts of a database."""
        tenants, facts = self._tenants(database), 0
        for tenant in tenants:
            with tenant.lock.read():
                facts += tenant.facts()
        return len(tenants), facts

    def _known(self, database: str, tenant: str | None = None) -> None:
        """Raise if the database or the tenant does not exist."""
        catalog = self._system if tenant is None else self._catalog(database, tenant)
        tenants = catalog.database(database).tenants
        if tenant is not None and tenant not in tenants:
            raise NotFound(
                f"tenant '{tenant}' does not exist", {"database": database, "tenant": tenant}
            )

    def _change(
        self, action: CatalogAction, database: str, check: Callable[[], None], tenant: str = ""
    ) -> None:
        self._runtime.commit(ChangeSet(database, tenant, (ChangeCatalog(action),), check))


class _Known(AlreadyExists):
    """A tenant that exists already."""
