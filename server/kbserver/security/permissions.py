"""Roles, what each includes, and what a request may need.

Each operation declares its role; the routes of MCP and A2A admit every key that may read, and the
role of the tool that a message calls is checked then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kbcore.errors import Forbidden
from kbcore.state.keys import ADMIN, READER, REPLICA, WRITER
from kbserver.errors import InsufficientScope
from kbserver.hookspecs import Principal

PUBLIC, ANY = "public", "any"
"""Needs beside the roles: PUBLIC needs no key, ANY a key of any role."""

_MAY: dict[str, frozenset[str]] = {
    READER: frozenset((PUBLIC, ANY, READER)),
    WRITER: frozenset((PUBLIC, ANY, READER, WRITER)),
    ADMIN: frozenset((PUBLIC, ANY, READER, WRITER, ADMIN, REPLICA)),
    REPLICA: frozenset((PUBLIC, ANY, REPLICA)),
}

PERMISSIONS: dict[str, tuple[str, ...]] = {
    READER: ("read",),
    WRITER: ("read", "write"),
    ADMIN: ("read", "write", "admin", "replicate"),
    REPLICA: ("replicate",),
}
"""Permissions of each role, as shown to users."""


SCOPES = {READER: "kbcore:read", WRITER: "kbcore:write", ADMIN: "kbcore:admin"}
"""The scope of each role; of several scopes in a token the greatest counts."""

NO_ROLE = "none"
"""The role of a token without a scope of this server: it may do nothing."""


class About(Enum):
    """The object that a route concerns, on which a key must be valid."""

    TENANT = "the tenant that the headers name"
    IMPLIED = "the same; without a header the only tenant of the key, or `default`"
    NAMED = "the database or tenant in the path"
    NODE = "all databases and tenants"
    NOTHING = "no database or tenant"


@dataclass(frozen=True, slots=True)
class Need:
    """The role a route needs (or PUBLIC, or ANY), and on what. `counted`: it counts against rate
    limits. `viewed`: it reads and writes through the view of a key.
    """

    role: str
    about: About = About.TENANT
    counted: bool = True
    viewed: bool = False

    def check_view(self, name: str, *, view: bool, labels: bool) -> None:
        """Raise Forbidden if a key with a view or with labels may not do this."""
        if self.viewed or self.about is About.NOTHING:
            return
        if view or (labels and self.role != READER):
            raise Forbidden(
                f"the key '{name}' has a view or labels, and this concerns all of a tenant"
            )


@dataclass(frozen=True, slots=True)
class TokenPrincipal(Principal):
    """The subject of an access token; `expires_at` is its end in epoch milliseconds."""

    expires_at: float = 0.0


def scope_of(needed: str) -> str:
    """Return the least scope with which a token may do what needs a role."""
    return SCOPES.get(needed, SCOPES[ADMIN] if needed == REPLICA else SCOPES[READER])


def may(role: str, needed: str) -> bool:
    """Return True if a role includes the needed one."""
    return needed in _MAY.get(role, ())


def demand(who: Principal, needed: str) -> None:
    """Raise Forbidden if the role of a caller does not include the needed one; InsufficientScope if
    the caller has a token.
    """
    if may(who.role, needed):
        return
    details = {"role": who.role, "needed": needed}
    if isinstance(who, TokenPrincipal):
        scope = scope_of(needed)
        message = f"the token of '{who.name}' lacks the scope {scope}, which this needs"
        raise InsufficientScope(message, scope, details)
    raise Forbidden(f"the key '{who.name}' has role {who.role}, and this needs {needed}", details)


ADMIN_OF_NODE = Need(ADMIN, About.NODE)
"""The need of a route that no operation declares."""

NO_ROUTE = Need(ANY, About.NOTHING)
"""The need of an unknown path or method."""

PLUGIN_READ, PLUGIN_WRITE = Need(READER, About.IMPLIED), Need(WRITER, About.IMPLIED)
"""Needs of plugin routes under /x/: GET and HEAD read, all other methods write."""
