"""Administration of a server: databases, tenants, API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from kbcore_client._sync.handle import Handle
from kbcore_client.requests import Reply, Request
from kbtypes.administration import ApiKey, DatabaseInfo

_KEY_NAMES = {"overlapSeconds": "overlap_seconds", "expiresInDays": "expires_in_days"}


class Administration(Handle):
    """Databases, tenants and API keys of a server; needs a key of role admin if keys are on.

    Errors: Forbidden without the permission, NotFound for an unknown database, tenant or key,
    Conflict for a database that exists, or if the server does not manage keys.
    """

    def databases(self) -> list[DatabaseInfo]:
        """Return the databases."""
        return [DatabaseInfo.of(each) for each in (self._get("/admin/databases")).json()]

    def create_database(self, name: str) -> None:
        """Create a database."""
        self._post("/admin/databases", {"name": name})

    def delete_database(self, name: str) -> None:
        """Delete a database with everything in it."""
        self._delete(_path("databases", name))

    def empty_database(self, name: str) -> None:
        """Delete what all tenants of a database have stored; the tenants stay."""
        self._post(_path("databases", name, "nuke"))

    def tenants(self, database: str = "default") -> list[str]:
        """Return the tenants of a database."""
        names: list[str] = (self._get(_path("databases", database, "tenants"))).json()
        return names

    def create_tenant(self, tenant: str, database: str = "default") -> None:
        """Create a tenant, if it does not exist. A first write creates it, too."""
        self._post(_path("databases", database, "tenants"), {"tenantId": tenant})

    def delete_tenant(self, tenant: str, database: str = "default") -> None:
        """Delete a tenant with everything that it has stored."""
        self._delete(_path("databases", database, "tenants", tenant))

    def empty_tenant(self, tenant: str, database: str = "default") -> None:
        """Delete what a tenant has stored; the tenant stays."""
        self._post(_path("databases", database, "tenants", tenant, "nuke"))

    def api_keys(self) -> list[ApiKey]:
        """Return the API keys without their secrets, the oldest first."""
        return [ApiKey.of(each) for each in (self._get("/auth/keys")).json()]

    def create_api_key(
        self,
        name: str,
        role: str,
        *,
        databases: Sequence[str] = (),
        tenants: Sequence[str] = (),
        expires_in_days: float | None = None,
        description: str = "",
    ) -> ApiKey:
        """Create an API key; its secret is `key` of the result, and is never shown again.

        `role` is `reader`, `writer`, `admin` or `replica`. Without `databases` and `tenants` the
        key is valid everywhere.
        """
        body = {
            "name": name,
            "role": role,
            "databases": list(databases),
            "tenants": list(tenants),
            "expiresInDays": expires_in_days,
            "description": description,
        }
        return ApiKey.of((self._post("/auth/keys", body)).json())

    def rotate_api_key(self, id: str, *, overlap_seconds: float = 3600) -> ApiKey:
        """Create a key with the same permissions; the old one ends after `overlap_seconds`."""
        path = f"/auth/keys/{quote(id, safe='')}/rotate"
        return ApiKey.of((self._post(path, {"overlapSeconds": overlap_seconds})).json())

    def revoke_api_key(self, id: str) -> None:
        """Revoke an API key at once."""
        self._delete(f"/auth/keys/{quote(id, safe='')}")

    def _get(self, path: str) -> Reply:
        return self._send(Request(path, method="GET"))

    def _post(self, path: str, body: Mapping[str, object] | None = None) -> Reply:
        return self._send(Request(path, body or {}, writes=True, names=_KEY_NAMES))

    def _delete(self, path: str) -> None:
        self._send(Request(path, method="DELETE", writes=True))


def _path(*parts: str) -> str:
    return "/admin/" + "/".join(quote(part, safe="") for part in parts)
