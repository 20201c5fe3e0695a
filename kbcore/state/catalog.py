"""Databases and their tenants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from kbcore.errors import UnknownDatabase
from kbcore.state.tenant import Tenant
from kbplanner.backend import Engine

DEFAULT = "default"


class Catalog:
    """All tenants of all databases; `make_engine` gives each tenant an engine of its own."""

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self._make_engine = make_engine
        self._databases: dict[str, dict[str, Tenant]] = {DEFAULT: {}}
        self._mutex = threading.Lock()

    def tenant(self, database: str, name: str) -> Tenant | None:
        """A tenant, None if nothing was ever written to it; raises UnknownDatabase."""
        return self._tenants(database).get(name)

    def need_tenant(self, database: str, name: str, at: int) -> Tenant:
        """A tenant, made if new with creation time `at`; raises UnknownDatabase."""
        tenants = self._tenants(database)
        with self._mutex:
            found = tenants.get(name)
            if found is None:
                found = tenants[name] = Tenant(database, name, self._make_engine(), at)
            return found

    def tenants(self) -> Iterator[Tenant]:
        """Every tenant of every database."""
        for tenants in list(self._databases.values()):
            yield from list(tenants.values())

    def empty_tenant(self, database: str, name: str) -> Tenant:
        """A tenant for reading one that does not exist; it is not kept. Raises UnknownDatabase."""
        self._tenants(database)
        return Tenant(database, name, self._make_engine(), 0)

    def close(self) -> None:
        """Give every engine back."""
        for tenant in self.tenants():
            tenant.engine.close()

    def _tenants(self, database: str) -> dict[str, Tenant]:
        found = self._databases.get(database)
        if found is None:
            raise UnknownDatabase(database)
        return found
