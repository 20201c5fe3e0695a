"""Roles, what each includes, and what a request may need.

Each operation declares its role; the routes of MCP and A2A admit every key that may read, and the
role of the tool that a message calls is checked then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kbcore.errors import Forbidden
from kbcore.state.keys import ADMIN, READER, REPLICA, WRITER

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
    limits.
    """

    role: str
    about: About = About.TENANT
    counted: bool = True


def may(role: str, needed: str) -> bool:
    """Return True if a role includes the needed one."""
    return needed in _MAY.get(role, ())


def demand(role: str, name: str, needed: str) -> None:
    """Raise Forbidden if a role does not include the needed one."""
    if not may(role, needed):
        raise Forbidden(
            f"the key '{name}' has role {role}, and this needs {needed}",
            {"role": role, "needed": needed},
        )


ADMIN_OF_NODE = Need(ADMIN, About.NODE)
"""The need of a route that no operation declares."""

NO_ROUTE = Need(ANY, About.NOTHING)
"""The need of an unknown path or method."""

PLUGIN_READ, PLUGIN_WRITE = Need(READER, About.IMPLIED), Need(WRITER, About.IMPLIED)
"""Needs of plugin routes under /x/: GET and HEAD read, all other methods write."""
