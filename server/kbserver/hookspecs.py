"""The hooks that know HTTP. The application adds them to those of the core; a program without a server ignores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbcore.plug.hookspecs import hookspec
from kbcore.state.keys import ADMIN

if TYPE_CHECKING:
    from flask import Blueprint

    from kbcore.node.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling, and the databases and tenants that one may touch; empty is all of them.

    One that may not touch everything may not use the routes that are about databases and tenants as a whole either. `role`
    is reader, writer, admin or replica; `key` is the id of the key that was sent, None where a plugin says who is calling.
    """

    name: str
    databases: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    role: str = ADMIN
    key: str | None = None

    @property
    def limited(self) -> bool:
        """Whether there is something this one may not touch."""
        return bool(self.databases or self.tenants)

    def may_touch(self, database: str, tenant: str | None) -> bool:
        """Whether a tenant of a database is open to this one; None where the database is asked for."""
        return (not self.databases or database in self.databases) and (
            tenant is None or not self.tenants or tenant in self.tenants
        )


@hookspec(firstresult=True)
def kb_http_authenticate(headers: Mapping[str, str]) -> Principal | None:
    """Say who sends a request, by its headers (names in lower case); None leaves it to the next plugin.

    Raise `kbcore.errors.Unauthorized` for credentials that are wrong. With such a plugin every request needs an answer but
    those for public routes: where no plugin gives one the keys of the server are asked, and without keys it is 401. An
    exception is 500, and nothing is served.
    """


@hookspec
def kb_http_blueprints(runtime: Runtime) -> Iterable[Blueprint]:  # type: ignore[empty-body]
    """More routes, mounted under `/x/`; their errors leave in the one shape, and they are counted as all are."""
