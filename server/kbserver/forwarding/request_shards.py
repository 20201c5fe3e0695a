"""The shard that a request is for: found before the request is authenticated, routed or forwarded.

Most requests name their tenant in a header or in the path. For those that name it in the body, the
body is read here, if the client is recognised, and kept for the application.
"""

from __future__ import annotations

import re
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kbcore.errors import InvalidInput
from kbcore.node.shard_layout import SYSTEM, shard_of
from kbplanner.pacing import yielding
from kbserver.http.body_memory import Bodies
from kbserver.http.json_body import parse_object, read_body, text_limit
from kbserver.http.request_context import DEFAULT

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbserver.security.guard import Guard

TENANT_KEYS = ("tenantId", "id", "name")
"""Keys of the body that names a new tenant; the first that it has counts."""

_TENANT = re.compile(r"/admin/databases/([^/]+)/tenants/([^/]+)(?:/nuke)?")
_TENANTS = re.compile(r"/admin/databases/([^/]+)/tenants")
_AGENT = "/a2a"
_SYSTEM_PATHS = ("/admin/", "/auth/", "/metrics", "/health/", "/replication/")


class RequestShards:
    """Finds the shards of the requests to a node."""

    def __init__(self, guard: Guard, bodies: Bodies, runtime: Runtime) -> None:
        self._guard = guard
        self._bodies = bodies
        self._config = runtime.config
        self._yield_now = runtime.yield_now
        shards = runtime.shard_count
        self._shard_of = lru_cache(maxsize=1 << 16)(
            lambda database, tenant: shard_of(database, tenant, shards)
        )

    def find(self, environ: dict[str, Any]) -> int:
        """Return the shard of a request. Raises KBError for a body that cannot be read."""
        path = environ["PATH_INFO"]
        is_post = environ["REQUEST_METHOD"].upper() == "POST"  # as Flask routes it
        if path.startswith(_SYSTEM_PATHS):
            return self._shard_of_path(path, environ, is_post)
        tenant = self._tenant_of_message(environ) if is_post and path == _AGENT else None
        tenant = tenant or environ.get("HTTP_X_TENANT_ID") or self._guard.implied_tenant(environ)
        return self._shard_of(environ.get("HTTP_X_DATABASE") or DEFAULT, tenant)

    def release(self, environ: dict[str, Any]) -> None:
        """Stop counting the body of a request that is answered."""
        self._bodies.release(environ)

    def _shard_of_path(self, path: str, environ: dict[str, Any], is_post: bool) -> int:
        if match := _TENANT.fullmatch(path):
            return self._shard_of(match[1], match[2])
        if is_post and (match := _TENANTS.fullmatch(path)):
            fields = self._fields(environ)
            named = (fields.get(key) for key in TENANT_KEYS)
            tenant = next((tenant for tenant in named if isinstance(tenant, str)), None)
            if tenant is not None:
                return self._shard_of(match[1], tenant)
        return SYSTEM

    def _tenant_of_message(self, environ: dict[str, Any]) -> str | None:
        """Return the tenant that a message to the agent names in its parameters."""
        params = self._fields(environ).get("params")
        tenant = params.get("tenant") if isinstance(params, dict) else None
        return tenant if isinstance(tenant, str) else None

    def _fields(self, environ: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a body, none if it is refused later; keep it for its reader.

        The body of a client that will be refused is not read.
        """
        if not self._guard.recognises(environ):
            return {}
        body = read_body(environ, text_limit(self._config), self._bodies)
        environ["wsgi.input"] = BytesIO(body)
        try:
            with yielding(self._yield_now):
                return parse_object(body, self._config.max_json_depth)
        except InvalidInput:
            return {}
