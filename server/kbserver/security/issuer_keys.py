"""The public keys of an OAuth issuer: found through its metadata, cached, and read again in time.

The address of the keys is `jwks_uri` of the issuer's metadata (RFC 8414, or OpenID Connect
discovery). Reading blocks on sockets of the standard library; under gevent other greenlets run
during that time, and requests whose key is in the cache do not wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from kbcore.config.hosts import read_host
from kbcore.errors import ConfigError, NotReady

FRESH_SECONDS = 600.0
"""Time after which cached keys are read again, so that withdrawn keys are dropped."""

MAX_AGE_SECONDS = 3600.0
"""Time for which cached keys are used while the issuer cannot be reached."""

REFETCH_SECONDS = 60.0
"""Minimum time between two readings: tokens with invented key ids cause no more."""

RETRY_SECONDS = 5.0
"""The same while no keys could be read yet."""

FETCH_SECONDS = 5.0
"""Timeout of one document of the issuer."""

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_KEYS = 64
MIN_RSA_BITS = 2048

RSA_ALGORITHMS: tuple[str, ...] = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
"""The algorithm of each elliptic curve."""

ALGORITHMS = frozenset((*RSA_ALGORITHMS, *CURVES.values()))
"""The accepted algorithms: all are asymmetric. Neither `none` nor HMAC is among them."""

log = logging.getLogger("kbserver.security")


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key, and the algorithms with which it may have signed."""

    public: Any
    algorithms: tuple[str, ...]


class IssuerKeys:
    """The keys of one issuer by their ids; thread-safe.

    `now` is a monotonic clock in seconds; `transport` replaces the network in tests.
    """

    def __init__(
        self,
        issuer: str,
        now: Callable[[], float],
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._issuer = issuer
        self._now = now
        self._is_local = _is_loopback(issuer)
        self._transport = transport
        self._mutex = threading.Lock()
        self._keys: Mapping[str, IssuerKey] = {}
        self._read_at = self._next_read = float("-inf")
        self._has_failed = False

    def find(self, kid: str) -> IssuerKey | None:
        """Return the key with an id, None if the issuer has none.

        Raises NotReady if the keys cannot be read at present.
        """
        key = self._keys.get(kid)
        if key is not None and self._now() < self._read_at + FRESH_SECONDS:
            return key
        # A request whose key is known does not wait for a reading that has begun.
        if self._mutex.acquire(timeout=0 if key is not None else 3 * FETCH_SECONDS):
            try:
                self._refresh(kid)
            finally:
                self._mutex.release()
        key = self._keys.get(kid)
        if self._now() >= self._read_at + MAX_AGE_SECONDS or (key is None and self._has_failed):
            raise NotReady("the keys of the OAuth issuer cannot be read at present")
        return key

    def _refresh(self, kid: str) -> None:
        """Read the keys, unless another request has done so, or it is too early."""
        now = self._now()
        is_known = kid in self._keys and now < self._read_at + FRESH_SECONDS
        if is_known or now < self._next_read:
            return
        self._next_read = now + (REFETCH_SECONDS if self._keys else RETRY_SECONDS)
        try:
            self._keys = self._read()
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            ValueError,
            RuntimeError,  # the client was closed
            _UnusableDocument,
        ) as error:
            self._has_failed = True
            reason = str(error) if isinstance(error, _UnusableDocument) else type(error).__name__
            log.warning("the keys of the OAuth issuer could not be read: %s", reason)
        else:
            self._has_failed = False
            self._read_at = self._now()
            self._next_read = self._read_at + REFETCH_SECONDS

    def _read(self) -> Mapping[str, IssuerKey]:
        """Return the usable keys; raises httpx.HTTPError, httpx.InvalidURL, _UnusableDocument,
        ValueError for a malformed address, and RuntimeError if it took too long.
        """
        with httpx.Client(
            headers={
                "User-Agent": "kbcore",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
            follow_redirects=False,
            trust_env=not self._is_local,  # a proxy in the environment is not for this machine
            timeout=FETCH_SECONDS,
            transport=self._transport,
        ) as client:
            metadata = next(
                filter(None, (_document(client, url) for url in self._addresses())), None
            )
            if metadata is None:
                raise _UnusableDocument("the issuer has no metadata")
            if metadata.get("issuer") != self._issuer:
                name = str(metadata.get("issuer"))[:200]
                raise _UnusableDocument(f"OAUTH_ISSUER is not the issuer of its metadata, {name!r}")
            document = _document(client, self._key_address(metadata.get("jwks_uri")))
        keys = document.get("keys") if document is not None else None
        if not isinstance(keys, list):
            raise _UnusableDocument("the document at jwks_uri has no keys")
        usable: dict[str, IssuerKey] = {}
        for each in keys[:MAX_KEYS]:
            key = _key_of(each)
            if key is not None:
                usable.setdefault(each["kid"], key)
        return usable

    def _addresses(self) -> Iterator[str]:
        """Yield where the metadata may be: RFC 8414, then OpenID Connect."""
        parts = urlsplit(self._issuer)
        root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        yield f"{root}/.well-known/oauth-authorization-server{path}"
        yield f"{root}{path}/.well-known/openid-configuration"

    def _key_address(self, url: object) -> str:
        """Return `jwks_uri` of the metadata. HTTP is for an issuer and keys on this machine."""
        if isinstance(url, str):
            scheme = urlsplit(url).scheme
            if scheme == "https" or (scheme == "http" and self._is_local and _is_loopback(url)):
                return url
        raise _UnusableDocument("jwks_uri of its metadata is not an HTTPS address")


class _UnusableDocument(Exception):
    """A document of the issuer that cannot be used; the text is for the log."""


def _document(client: httpx.Client, url: str) -> dict[str, Any] | None:
    """Return the JSON object at an address, None if there is nothing (404).

    Raises httpx.HTTPError, _UnusableDocument, and RuntimeError if the client was closed.
    """
    end, size, parts = monotonic() + FETCH_SECONDS, 0, []
    with _closed_after(client, FETCH_SECONDS), client.stream("GET", url) as answer:
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if answer.status_code != httpx.codes.OK:
            raise _UnusableDocument(f"a document was answered with {answer.status_code}")
        for part in answer.iter_raw():
            size += len(part)
            if size > MAX_DOCUMENT_BYTES:
                raise _UnusableDocument(f"a document has more than {MAX_DOCUMENT_BYTES} bytes")
            if monotonic() > end:
                raise _UnusableDocument(f"a document took more than {FETCH_SECONDS:.0f} seconds")
            parts.append(part)
    try:
        members = orjson.loads(b"".join(parts))
    except orjson.JSONDecodeError:
        members = None
    if not isinstance(members, dict):
        raise _UnusableDocument("a document is not a JSON object")
    return members


@contextmanager
def _closed_after(client: httpx.Client, seconds: float) -> Iterator[None]:
    """Close a client, and so end what it waits for, unless the block ends within some seconds.

    The timeouts of the client are those of one read: the head of an answer that arrives byte by
    byte would not end.
    """
    timer = threading.Timer(seconds, client.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _key_of(members: Any) -> IssuerKey | None:
    """Return a key of a JWK set, None for one that cannot verify tokens here."""
    jwt = jwt_library()
    if not isinstance(members, dict) or not isinstance(members.get("kid"), str):
        return None
    if members.get("use", "sig") != "sig" or "d" in members:  # "d": it is no secret any more
        return None
    kind, curve = members.get("kty"), members.get("crv")
    if kind == "RSA":
        algorithms = RSA_ALGORITHMS
    elif kind in ("EC", "OKP") and isinstance(curve, str) and curve in CURVES:
        algorithms = (CURVES[curve],)
    else:
        return None
    stated = members.get("alg")
    if stated is not None:
        algorithms = tuple(name for name in algorithms if name == stated)
    if not algorithms:
        return None
    try:
        public = jwt.PyJWK(members, algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and public.key_size < MIN_RSA_BITS:
        return None
    return IssuerKey(public, algorithms)


def jwt_library() -> Any:
    """Import and return PyJWT; raises ConfigError if it is not installed."""
    try:
        import cryptography  # noqa: F401  without it PyJWT has no asymmetric algorithm
        import jwt
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"OAUTH_ISSUER needs the package {error.name}: pip install 'kbcore[oauth]'"
        ) from None
    return jwt


def _is_loopback(url: str) -> bool:
    host = read_host(urlsplit(url).hostname or "")
    return host is not None and host.is_loopback
