"""Who may use which route: the one table, by method and route template. What is not in it, only an admin may use.

The tools of the tool protocol and the operations of agents say themselves what they need (`mcp/tools.py`), in the same
words; their routes let in every key that may read.
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
    """The role a route needs (or PUBLIC, or ANY), and on what. `counted`: it counts against rate limits."""

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


UNKNOWN_ROUTE = Need(ADMIN, About.NODE)
NO_ROUTE = Need(ANY, About.NOTHING)
"""The need of an unknown path or method."""

PLUGIN_READ, PLUGIN_WRITE = Need(READER, About.IMPLIED), Need(WRITER, About.IMPLIED)
"""Needs of plugin routes under /x/: GET and HEAD read, all other methods write."""


def _table() -> dict[tuple[str, str], Need]:
    table: dict[tuple[str, str], Need] = {}

    def add(need: Need, *routes: str) -> None:
        for route in routes:
            method, template = route.split()
            table[method, template] = need

    add(Need(PUBLIC, About.NOTHING, counted=False), "GET /health", "GET /health/ready")
    add(
        Need(PUBLIC, About.NOTHING),
        "GET /openapi.json",
        "GET /favicon.ico",
        "GET /auth/status",
        "POST /auth/bootstrap",
    )
    add(Need(ANY, About.NOTHING), "GET /auth/whoami", "GET /docs", "GET /docs/<name>")
    add(
        Need(READER),
        *(
            "POST /infer",
            "POST /ask",
            "POST /query",
            "POST /aggregate",
            "POST /explain",
            "GET /predicates",
            "GET /rules",
        ),
        *(
            "POST /memory/query/salient",
            "POST /memory/query/temporal",
            "POST /memory/recall",
            "GET /memory/events",
        ),
        *(
            "POST /memory/context",
            "POST /context/optimize",
            "POST /context/diff",
            "POST /context/session/clear",
        ),
        *("POST /context/summary", "POST /synthesize", "GET /scopes", "POST /scope/diff"),
    )
    add(
        Need(WRITER),
        *(
            "POST /tell",
            "POST /assert/fact",
            "POST /assert/facts",
            "POST /teach",
            "POST /assert/rule",
            "POST /execute",
        ),
        *("POST /retract", "POST /forget", "POST /retract/pattern", "POST /retract/rule"),
        *("POST /tx/begin", "POST /tx/commit/<id>", "POST /tx/rollback/<id>"),
        *(
            "POST /memory/decay",
            "POST /memory/cleanup",
            "POST /memory/consolidate",
            "POST /memory/compress",
        ),
        *("POST /memory/priority", "POST /memory/prioritize"),
        *("POST /extract", "POST /context", "POST /context/ingest"),
        *("POST /scope/fork", "POST /scope/merge", "DELETE /scope/<name>"),
    )
    add(
        Need(ADMIN, About.NODE),
        *("GET /admin/databases", "POST /admin/databases", "DELETE /admin/databases/<name>"),
        *("POST /admin/snapshot", "GET /admin/backup"),
        *(
            "GET /auth/keys",
            "POST /auth/keys",
            "DELETE /auth/keys/<id>",
            "POST /auth/keys/<id>/rotate",
        ),
    )
    add(
        Need(ADMIN, About.NAMED),
        *("POST /admin/databases/<name>/nuke", "GET /admin/databases/<name>/tenants"),
        *(
            "POST /admin/databases/<name>/tenants",
            "DELETE /admin/databases/<name>/tenants/<tenant>",
        ),
        "POST /admin/databases/<name>/tenants/<tenant>/nuke",
    )
    add(Need(READER, About.NODE, counted=False), "GET /metrics")
    nodes = ("GET /replication/log", "GET /replication/snapshot", "GET /replication/status")
    add(Need(REPLICA, About.NODE, counted=False), *nodes)
    add(Need(ADMIN, About.NODE), "POST /admin/promote")
    add(
        Need(READER, About.IMPLIED),
        *(
            "POST /mcp",
            "GET /mcp",
            "DELETE /mcp",
            "GET /mcp/sse",
            "POST /mcp/messages",
            "POST /a2a",
        ),
    )
    add(
        Need(PUBLIC, About.NOTHING),
        "GET /.well-known/agent-card.json",
        "GET /.well-known/agent.json",
    )
    return table


TABLE: dict[tuple[str, str], Need] = _table()
"""The need of each route, by method (GET also for HEAD) and template."""


def need_of(method: str, template: str) -> Need:
    """Return the need of a route."""
    method = "GET" if method == "HEAD" else method
    need = TABLE.get((method, template))
    if need is not None:
        return need
    if template.startswith("/x/"):
        return PLUGIN_READ if method == "GET" else PLUGIN_WRITE
    return UNKNOWN_ROUTE
