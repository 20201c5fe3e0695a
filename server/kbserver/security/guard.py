"""Authentication, authorisation and rate limits, checked before any other work on a request.

The fast path and the Flask routes both call the guard. Without keys, authentication plugins and
limits there is no guard.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kbcore.config.settings import Config
from kbcore.durable.request_key import API_KEY
from kbcore.errors import Forbidden, InvalidInput, KBError, PluginFailed, RateLimited, Unauthorized
from kbcore.node.api_keys import digest_of, is_equal
from kbcore.operations.evaluated_goal import KEY_NAME
from kbcore.state.keys import ADMIN, REPLICA, StoredKey
from kbserver.errors import ExpiredToken, InvalidToken
from kbserver.hookspecs import Principal
from kbserver.http.request import Request
from kbserver.http.request_context import DEFAULT
from kbserver.security.limits import RateLimits, address_of
from kbserver.security.permissions import NO_ROLE, PUBLIC, About, Need, TokenPrincipal, demand
from kbserver.security.token_bucket import Buckets

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbserver.security.tokens import Tokens

DISABLED, SINGLE, MANAGED, OAUTH = "disabled", "single", "managed", "oauth"

_TOKEN_PARAMETER = re.compile(r"(?:^|[&;])access_token=")

GUARD = "kbcore.guard"
"""The key of the guard in the extensions of an application."""

MAX_WRONG_KEYS, WRONG_KEYS_SECONDS = 10, 60
"""Wrong keys per address and interval before further wrong ones are RateLimited and not logged."""

MAX_REFUSED_TOKENS = 1000
"""Genuine tokens without access or out of their time, per address and interval, before further ones
are RateLimited and have no audit line. It is larger, because many users may share an address."""

ROOT = Principal("API_KEY", role=ADMIN, key="api-key")
"""The principal of the key in the setting API_KEY."""

NODE = Principal("REPLICATION_TOKEN", role=REPLICA)
"""The principal of the setting REPLICATION_TOKEN."""

audit = logging.getLogger("kbserver.audit")


def mode_of(config: Config) -> str:
    """Return the authentication mode: DISABLED, SINGLE or MANAGED, or OAUTH without any key.

    With an issuer, tokens are accepted in every mode but DISABLED.
    """
    if config.auth_enabled or config.api_key:
        return MANAGED if config.auth_enabled else SINGLE
    return OAUTH if config.oauth_issuer else DISABLED


class Guard:
    """Admission check of requests; `plugin`: an authentication plugin is installed."""

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
        self._tokens = _tokens(runtime) if config.oauth_issuer else None
        self._hops = config.forwarded_hops
        self._tries = Buckets(
            "credentials", MAX_WRONG_KEYS, WRONG_KEYS_SECONDS, runtime.clock.monotonic
        )
        self._refused = Buckets(
            "tokens", MAX_REFUSED_TOKENS, WRONG_KEYS_SECONDS, runtime.clock.monotonic
        )
        self._principals: dict[str, tuple[StoredKey, Principal]] = {}

    @property
    def active(self) -> bool:
        """True if requests must be checked."""
        return self._asks or self.limits.active

    def admit(self, request: Request, need: Need, names: Mapping[str, Any] | None = None) -> None:
        """Admit a request, or raise Unauthorized, Forbidden or RateLimited; `names` are the
        parameters of its path.
        """
        if request.is_admitted:  # by the fast path, which passed the request on to Flask
            return
        environ = request.environ
        who: Principal | None = None
        if self._asks and need.role != PUBLIC:
            who = self._credited(request, need.role)
            API_KEY.set(who.key)
            KEY_NAME.set(who.name)
            need.check_view(who.name, view=bool(who.view), labels=bool(who.labels))
            if who.limited:
                _within(who, environ, need.about, names or {})
        if need.counted and self.limits.active:
            self.limits.count(
                request,
                who.key or who.name if who else None,
                address_of(environ, self._hops),
                DEFAULT if need.about is About.IMPLIED else None,
            )
        request.is_admitted = True

    def implied_tenant(self, environ: dict[str, Any]) -> str:
        """Return the tenant of a request that names none: the only one of its key, or `default`.

        The request is not admitted by this.
        """
        key: StoredKey | Principal | None = None
        try:
            if self._plugin:
                key = self._plugin_principal(environ)
            text = None if key is not None else credentials(environ)
            if text is not None:
                key = self._keys.verify(text) if self._keys is not None else None
                key = key or self._token_principal(environ, text)
        except KBError:  # the request will be refused
            return DEFAULT
        return next(iter(key.tenants)) if key is not None and len(key.tenants) == 1 else DEFAULT

    def recognises(self, environ: dict[str, Any]) -> bool:
        """Return True if a request has valid credentials, or needs none.

        The request is neither admitted nor counted by this.
        """
        if not self._asks:
            return True
        try:
            if self._plugin and self._plugin_principal(environ) is not None:
                return True
            text = credentials(environ)
            if text is None:
                return False
            if self._keys is not None and self._keys.verify(text) is not None:
                return True
            if self._of_settings(text) is not None:
                return True
            return self._token_principal(environ, text) is not None
        except KBError:  # the request will be refused
            return False

    def is_valid(self, who: Principal) -> bool:
        """Return True if the key or token of an admitted principal is still valid; streams check
        this.
        """
        if isinstance(who, TokenPrincipal):
            return self._runtime.clock.now_ms() < who.expires_at
        return self._keys is None or who.key is None or who is ROOT or self._keys.current(who.key)

    def _credited(self, request: Request, role: str) -> Principal:
        """Return the principal of a request that has a role; raises Unauthorized, Forbidden, and
        RateLimited for an address with many wrong keys or refused tokens.
        """
        try:
            request.principal = self._who(request.environ)
            demand(request.principal, role)
        except RateLimited:
            request.is_audited = False
            raise
        except (ExpiredToken, Forbidden):
            if request.principal is None or request.principal.role == NO_ROLE:
                self._count_refused(request)
            raise
        principal: Principal = request.principal
        return principal

    def _count_refused(self, request: Request) -> None:
        """Count a genuine token that was refused; raises RateLimited for too many of an address."""
        address = address_of(request.environ, self._hops)
        if seconds := self._refused.wait(address):
            request.is_audited = False
            raise RateLimited(
                "too many refused tokens from this address", seconds, self._refused.details()
            )
        self._refused.take(address)

    def _who(self, environ: dict[str, Any]) -> Principal:
        if self._plugin and (principal := self._plugin_principal(environ)) is not None:
            return principal
        text = credentials(environ)
        if self._tokens is not None and _TOKEN_PARAMETER.search(environ.get("QUERY_STRING", "")):
            raise InvalidInput("a token must be in the header Authorization, not in the address")
        if text is None:
            if self.mode == DISABLED:
                raise Unauthorized("this request needs credentials: no plugin recognised it")
            if self.mode == OAUTH:
                raise Unauthorized("this server needs a token: Authorization: Bearer TOKEN")
            raise Unauthorized(
                "this server needs a key: Authorization: Bearer KEY, or X-API-Key: KEY"
            )
        key = self._keys.verify(text) if self._keys is not None else None
        if key is not None:
            return self._principal(key)
        if (principal := self._of_settings(text)) is not None:
            return principal
        problem = "unknown, expired or revoked key"
        try:
            token = self._token_principal(environ, text)
        except ExpiredToken:  # only the issuer can have made it, so that it is no guess
            raise
        except InvalidToken as error:
            token, problem = None, error.message
        if token is not None:
            return token
        # The comparison comes first: wrong keys of others behind the same address must not lock
        # out a node or a program that has the right one.
        address = address_of(environ, self._hops)
        if seconds := self._tries.wait(address):
            raise RateLimited(
                "too many wrong keys from this address", seconds, self._tries.details()
            )
        self._tries.take(address)
        audit.warning(
            "wrong key",
            extra={"fields": {"address": address, "path": environ.get("PATH_INFO", "")}},
        )
        raise InvalidToken(problem)

    def _token_principal(self, environ: Mapping[str, Any], text: str) -> TokenPrincipal | None:
        """Return the principal of an access token; None without OAUTH_ISSUER, and for what cannot
        be a token. Raises as `Tokens.principal` does.
        """
        if self._tokens is None or "HTTP_AUTHORIZATION" not in environ or text.count(".") != 2:
            return None
        return self._tokens.principal(text)

    def _of_settings(self, text: str) -> Principal | None:
        """Return the principal of REPLICATION_TOKEN or API_KEY if `text` is one of them, else None.

        The cost of a wrong key is one digest of a header of bounded length and a comparison in
        constant time for each setting.
        """
        if self._replica is None and self._single is None:
            return None
        digest = digest_of(text)
        is_node = self._replica is not None and hmac.compare_digest(digest, self._replica)
        is_root = self._single is not None and hmac.compare_digest(digest, self._single)
        return NODE if is_node else ROOT if is_root else None

    def _principal(self, key: StoredKey) -> Principal:
        known = self._principals.get(key.id)
        if known is None or known[0] is not key:
            if len(self._principals) > 2 * len(self._runtime.keys()) + 16:
                self._principals.clear()
            principal = Principal(
                key.name,
                frozenset(key.databases),
                frozenset(key.tenants),
                key.role,
                key.id,
                key.view,
                key.labels,
            )
            known = self._principals[key.id] = key, principal
        return known[1]

    def _plugin_principal(self, environ: Mapping[str, Any]) -> Principal | None:
        headers = {
            name[5:].replace("_", "-").lower(): value
            for name, value in environ.items()
            if name[:5] == "HTTP_"
        }
        who = self._runtime.plugins.decide("kb_http_authenticate", headers=headers)
        if who is not None and not isinstance(who, Principal):
            raise PluginFailed(
                f"kb_http_authenticate returned {type(who).__name__} instead of Principal"
            )
        return who


def _tokens(runtime: Runtime) -> Tokens:
    """Return the validation of tokens, which needs an HTTP client and PyJWT; raises ConfigError."""
    from kbserver.security.tokens import Tokens

    return Tokens(runtime.config, runtime.clock.monotonic)


def credentials(environ: Mapping[str, Any]) -> str | None:
    """Return the key of a request or None; raises Unauthorized for a malformed header or two
    different keys.

    Only headers are read, because URLs end up in logs and browser histories.
    """
    authorization, api_key = environ.get("HTTP_AUTHORIZATION"), environ.get("HTTP_X_API_KEY")
    if authorization is None:
        return api_key or None
    scheme, _, text = authorization.partition(" ")
    text = text.strip()
    if scheme.lower() != "bearer" or not text:
        raise Unauthorized("the header Authorization must be: Bearer KEY")
    if api_key and not is_equal(api_key, text):
        raise Unauthorized("Authorization and X-API-Key hold different keys; send one")
    return text  # type: ignore[no-any-return]


def _within(
    who: Principal, environ: dict[str, Any], about: About, names: Mapping[str, Any]
) -> None:
    """Raise Forbidden if a request concerns a database or tenant outside the principal's limits."""
    if about is About.NOTHING:
        return
    if about is About.NODE:
        raise Forbidden(
            f"'{who.name}' may touch some databases and tenants only, and this concerns all of them"
        )
    if about is About.NAMED:
        database, tenant = str(names.get("name")), names.get("tenant")
        if tenant is None and who.tenants:
            raise Forbidden(
                f"'{who.name}' may touch some tenants only, and this concerns all of a database"
            )
    else:
        database = environ.get("HTTP_X_DATABASE") or DEFAULT
        tenant = environ.get("HTTP_X_TENANT_ID")
        if not tenant and about is About.IMPLIED:
            tenant = next(iter(who.tenants)) if len(who.tenants) == 1 else DEFAULT
            environ["HTTP_X_TENANT_ID"] = tenant
    if not who.may_touch(database, tenant or None):
        whose = f"tenant '{tenant}' of " if tenant else ""
        raise Forbidden(f"'{who.name}' may not touch {whose}database '{database}'")


class RevocableStream:
    """A stream that ends when the key of its principal is no longer valid."""

    def __init__(self, parts: Any, is_valid: Callable[[], bool]) -> None:
        self._parts, self._is_valid = parts, is_valid
        self._next = iter(parts)

    def __iter__(self) -> RevocableStream:
        return self

    def __next__(self) -> bytes:
        part: bytes = next(self._next)
        if not self._is_valid():
            raise StopIteration
        return part

    def close(self) -> None:
        """Close the stream."""
        close = getattr(self._parts, "close", None)
        if close is not None:
            close()
