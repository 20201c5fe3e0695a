"""Plugin hooks of the HTTP server, in addition to those of the core; programs without a server
ignore them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbcore.plug.hookspecs import hookspec
from kbcore.state.keys import ADMIN

if TYPE_CHECKING:
    from flask import Blueprint

    from kbcore.node.runtime import Runtime
    from kbcore.state.labels import Labels


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request, and the databases and tenants it may access; empty means all.

    A principal with limits may not use routes that concern all databases or tenants. `role` is
    reader, writer, admin or replica; `key` is the id of the API key, None if a plugin authenticated
    the caller. `view` is what the principal may see at most of a tenant, `labels` are those of what
    it stores: pairs of a dimension and its level or groups.
    """

    name: str
    databases: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    role: str = ADMIN
    key: str | None = None
    view: Labels = ()
    labels: Labels = ()

    @property
    def limited(self) -> bool:
        """True if access is limited to some databases or tenants."""
        return bool(self.databases or self.tenants)

    def may_touch(self, database: str, tenant: str | None) -> bool:
        """Return True if the principal may access a tenant, or with None the database."""
        return (not self.databases or database in self.databases) and (
            tenant is None or not self.tenants or tenant in self.tenants
        )


@hookspec(firstresult=True)
def kb_http_authenticate(headers: Mapping[str, str]) -> Principal | None:
    """Authenticate a request by its headers (names in lower case); None passes it to the next
    plugin.

    Raise `kbcore.errors.Unauthorized` for wrong credentials. With such a plugin every request
    except those for public routes needs a principal: if no plugin returns one, the keys of the
    server are checked, and without keys the response is 401. Other exceptions give 500.
    """


@hookspec
def kb_http_blueprints(runtime: Runtime) -> Iterable[Blueprint]:  # type: ignore[empty-body]
    """Return blueprints to mount under `/x/`; their errors and metrics are handled like those of
    the server.
    """
