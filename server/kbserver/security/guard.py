"""The door: who sends a request, whether that one may, and whether not too often. Nothing of a request is done before.

Both ways through the application come here, the short one and Flask's. Without keys, without a plugin that says who is
calling and without limits there is no guard at all, and a request pays nothing.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kbcore.config.settings import Config
from kbcore.errors import Forbidden, PluginFailed, RateLimited, Unauthorized
from kbcore.node.api_keys import digest_of, same
from kbcore.state.keys import ADMIN, REPLICA, StoredKey
from kbserver.hookspecs import Principal
from kbserver.http.request_context import DEFAULT
from kbserver.security.limits import RateLimits, address_of
from kbserver.security.permissions import PUBLIC, About, Need, demand
from kbserver.security.token_bucket import Buckets

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

DISABLED, SINGLE, MANAGED = "disabled", "single", "managed"

WHO = "kbcore.principal"
"""Where the Principal of a request is left in its WSGI environment."""

ADMITTED = "kbcore.admitted"
"""Set in the WSGI environment of a request that was let in."""

TRIES, TRIES_SECONDS = 10, 60
"""Wrong keys an address may send in a minute before it is told to wait."""

ROOT = Principal("API_KEY", role=ADMIN, key="api-key")
"""Whoever has the key of the setting API_KEY."""

NODE = Principal("REPLICATION_TOKEN", role=REPLICA)
"""Whoever has the secret of the nodes that replicate."""

audit = logging.getLogger("kbserver.audit")


def mode_of(config: Config) -> str:
    """How this server asks for keys."""
    return MANAGED if config.auth_enabled else SINGLE if config.api_key else DISABLED


class Guard:
    """Lets requests in; `plugin` says that a plugin knows who is calling."""

    def __init__(self, runtime: Runtime, *, plugin: bool) -> None:
        config = runtime.config
        self.mode = mode_of(config)
        self.limits = RateLimits(runtime)
        self._runtime = runtime
        self._plugin = plugin
        self._asks = plugin or self.mode != DISABLED
        self._keys = runtime.keys() if self.mode == MANAGED else None
        self._replica = digest_of(config.replication_token) if config.replication_token else None
        self._single = digest_of(config.api_key) if config.api_key else None
        self._hops = config.forwarded_hops
        self._tries = Buckets("credentials", TRIES, TRIES_SECONDS, runtime.clock.monotonic)
        self._principals: dict[str, tuple[StoredKey, Principal]] = {}

    @property
    def active(self) -> bool:
        """Whether there is anything to look at."""
        return self._asks or self.limits.active

    def admit(self, environ: dict[str, Any], need: Need, names: Mapping[str, Any] | None = None) -> None:
        """Let a request in, or raise Unauthorized, Forbidden or RateLimited; `names` are those in its path."""
        if ADMITTED in environ:  # by the short way, which left it to the long one
            return
        who: Principal | None = None
        if self._asks and need.role != PUBLIC:
            who = environ[WHO] = self._who(environ)
            demand(who.role, who.name, need.role)
            if who.limited:
                _within(who, environ, need.about, names or {})
        if need.counted and self.limits.active:
            self.limits.count(environ, who.key or who.name if who else None, address_of(environ, self._hops))
        environ[ADMITTED] = True

    def holds(self, who: Principal) -> bool:
        """Whether one that was let in would still be, for answers without an end."""
        return self._keys is None or who.key is None or who is ROOT or self._keys.current(who.key)

    def _who(self, environ: dict[str, Any]) -> Principal:
        if self._plugin and (said := self._said(environ)) is not None:
            return said
        text = credentials(environ)
        if text is None:
            if self.mode == DISABLED:
                raise Unauthorized("this server asks who is calling, and nothing in the request says it")
            raise Unauthorized("this server needs a key: Authorization: Bearer KEY, or X-API-Key: KEY")
        key = self._keys.judge(text) if self._keys is not None else None
        if key is not None:
            return self._principal(key)
        address = address_of(environ, self._hops)
        # A key that was guessed right must look the same as a wrong one here; one of 256 random bits is not guessed.
        if seconds := self._tries.wait(address):
            limit = {"limit": "credentials", "requests": TRIES, "seconds": TRIES_SECONDS}
            raise RateLimited("too many wrong keys from this address", seconds, limit)
        if self._replica is not None and hmac.compare_digest(digest_of(text), self._replica):
            return NODE
        if self._single is not None and hmac.compare_digest(digest_of(text), self._single):
            return ROOT
        self._tries.take(address)
        audit.warning("wrong key", extra={"fields": {"address": address, "path": environ.get("PATH_INFO", "")}})
        raise Unauthorized("there is no such key, or it has expired or been revoked")

    def _principal(self, key: StoredKey) -> Principal:
        known = self._principals.get(key.id)
        if known is None or known[0] is not key:
            if len(self._principals) > 2 * len(self._runtime.keys()) + 16:
                self._principals.clear()
            made = Principal(key.name, frozenset(key.databases), frozenset(key.tenants), key.role, key.id)
            known = self._principals[key.id] = key, made
        return known[1]

    def _said(self, environ: Mapping[str, Any]) -> Principal | None:
        headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name[:5] == "HTTP_"}
        who = self._runtime.plugins.decide("kb_http_authenticate", headers=headers)
        if who is not None and not isinstance(who, Principal):
            raise PluginFailed(f"kb_http_authenticate gave a {type(who).__name__}, not a Principal")
        return who


def credentials(environ: Mapping[str, Any]) -> str | None:
    """The key a request carries, None where it has none; raises Unauthorized for what is no key, or two of them.

    Only headers are looked at: an address is written into logs and histories.
    """
    stated, other = environ.get("HTTP_AUTHORIZATION"), environ.get("HTTP_X_API_KEY")
    if stated is None:
        return other or None
    scheme, _, text = stated.partition(" ")
    text = text.strip()
    if scheme.lower() != "bearer" or not text:
        raise Unauthorized("the header Authorization must be: Bearer KEY")
    if other and not same(other, text):
        raise Unauthorized("Authorization and X-API-Key hold two keys; send one")
    return text  # type: ignore[no-any-return]


def _within(who: Principal, environ: dict[str, Any], about: About, names: Mapping[str, Any]) -> None:
    """Raise Forbidden where a request is about something that a limited one may not touch."""
    if about is About.NOTHING:
        return
    if about is About.NODE:
        raise Forbidden(f"'{who.name}' may touch some databases and tenants only, and this concerns all of them")
    if about is About.NAMED:
        database, tenant = str(names.get("name")), names.get("tenant")
        if tenant is None and who.tenants:
            raise Forbidden(f"'{who.name}' may touch some tenants only, and this concerns all of a database")
    else:
        database = environ.get("HTTP_X_DATABASE") or DEFAULT
        tenant = environ.get("HTTP_X_TENANT_ID")
        if not tenant and about is About.IMPLIED:
            tenant = next(iter(who.tenants)) if len(who.tenants) == 1 else DEFAULT
            environ["HTTP_X_TENANT_ID"] = tenant
    if not who.may_touch(database, tenant or None):
        whose = f"tenant '{tenant}' of " if tenant else ""
        raise Forbidden(f"'{who.name}' may not touch {whose}database '{database}'")


class WhileItHolds:
    """The parts of an answer without an end, for as long as whoever asked is still let in."""

    def __init__(self, parts: Any, holds: Callable[[], bool]) -> None:
        self._parts, self._holds = parts, holds
        self._next = iter(parts)

    def __iter__(self) -> WhileItHolds:
        return self

    def __next__(self) -> bytes:
        part: bytes = next(self._next)
        if not self._holds():
            raise StopIteration
        return part

    def close(self) -> None:
        """End it."""
        close = getattr(self._parts, "close", None)
        if close is not None:
            close()
