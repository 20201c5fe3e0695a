"""Administration of databases and tenants: list, create, drop, empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbcore.errors import AlreadyExists, Conflict, NotFound
from kbcore.node.other_processes import TenantSize
from kbcore.state.catalog import DEFAULT, Catalog
from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeSet
from kbtypes.administration import DatabaseInfo

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


class Admin:
    """Operations of a node administrator. Every change is durable when its method returns.

    Emptying (`nuke`) keeps the name and removes everything else: facts, rules, scopes, records of
    transactions.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._system = runtime.databases

    def databases(self) -> list[DatabaseInfo]:
        """Return every database, by name."""
        sizes = self._sizes()
        infos = []
        for database in self._system.databases():
            facts = [size.facts for size in sizes if size.database == database.name]
            infos.append(DatabaseInfo(database.name, len(facts), sum(facts), database.created_at))
        return infos

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
        return sorted(size.name for size in self._sizes() if size.database == database)

    def create_tenant(self, database: str, tenant: str) -> bool:
        """Create a tenant; return False if it exists already. Raises UnknownDatabase."""

        def check() -> None:
            if self._catalog(database, tenant).tenant(database, tenant) is not None:
                raise _KnownDatabase("the tenant exists")

        try:
            self._change(CatalogAction.CREATE_TENANT, database, check, tenant)
        except _KnownDatabase:
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

    def _sizes(self) -> list[TenantSize]:
        """Return every tenant, also those of other processes."""
        peers = self._runtime.peers
        return self._runtime.sizes() + ([] if peers is None else peers.tenants())

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


class _KnownDatabase(AlreadyExists):
    """A tenant that exists already."""
