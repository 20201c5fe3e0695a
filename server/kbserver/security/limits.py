"""Rate limits per caller, tenant and address, each optional."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kbcore.errors import RateLimited
from kbcore.state.names import is_name
from kbplanner.syntax.diagnostics import counted
from kbserver.http.request import Request
from kbserver.http.request_context import DEFAULT
from kbserver.rate_headers import Rate
from kbserver.security.token_bucket import Buckets

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

_IPV6_PREFIX_BITS = 64


@dataclass(frozen=True, slots=True)
class _Counted:
    """The caller of a counted request, and the buckets that it took a token of."""

    key: str | None
    address: str
    buckets: list[tuple[Buckets, Hashable]]


class RateLimits:
    """The configured limits, checked in order: caller, tenant, address."""

    def __init__(self, runtime: Runtime) -> None:
        config, now = runtime.config, runtime.clock.monotonic
        self._caller = _buckets("default", config.rate_limit, now)
        self._tenant = _buckets("tenant", config.rate_limit_tenant, now)
        self._address = _buckets("address", config.rate_limit_address, now)
        self.active = any(
            limit is not None for limit in (self._caller, self._tenant, self._address)
        )

    def count(
        self, request: Request, key: str | None, address: str, implied: str | None = None
    ) -> None:
        """Count a request against every limit. Raises RateLimited, and counts nothing, if one is
        used up.

        `implied` is the tenant of a request that names none.
        """
        named = _tenant(request.environ, None)
        buckets = self._buckets(key, address, named, named or _tenant(request.environ, implied))
        request.counted = _Counted(key, address, buckets)
        _take(request, buckets)

    def count_part(self, request: Request, tenant: str, *, is_first: bool) -> None:
        """Count a part of a request that `count` admitted, as a request of its own for `tenant`.

        The first part is counted only against limits of that tenant that the request itself was
        not counted against. Raises RateLimited as `count` does.
        """
        counted: _Counted | None = request.counted
        if counted is None:
            return
        name = request.environ.get("HTTP_X_DATABASE") or DEFAULT, tenant
        buckets = self._buckets(counted.key, counted.address, name, name)
        before = counted.buckets if is_first else []
        _take(request, [pair for pair in buckets if pair not in before])

    def _buckets(
        self,
        key: str | None,
        address: str,
        named: tuple[str, str] | None,
        tenant: tuple[str, str] | None,
    ) -> list[tuple[Buckets, Hashable]]:
        """Return the limits of a request, and the name under which it counts against each; without
        a key the caller is the tenant that the request names, or else the address.
        """
        asked: list[tuple[Buckets, Hashable]] = []
        if self._caller is not None:
            asked.append((self._caller, ("key", key) if key else named or ("address", address)))
        if self._tenant is not None and tenant is not None:
            asked.append((self._tenant, tenant))
        if self._address is not None:
            asked.append((self._address, address))
        return asked


def _take(request: Request, asked: list[tuple[Buckets, Hashable]]) -> None:
    """Take a token of each bucket, or raise RateLimited and take none if one is empty."""
    for buckets, name in asked:
        seconds = buckets.wait(name)
        if seconds:
            request.rate = Rate(buckets.name, buckets.quota, buckets.window, 0, seconds)
            requests, window = counted(buckets.quota, "request"), counted(buckets.window, "second")
            message = f"more than {requests} in {window}"
            raise RateLimited(message, math.ceil(seconds), buckets.details())
    rates = [buckets.take(name) for buckets, name in asked]
    if rates:
        request.rate = min(rates, key=lambda rate: rate.left / rate.quota)


def _buckets(name: str, rate: tuple[int, ...], now: Callable[[], float]) -> Buckets | None:
    return Buckets(name, rate[0], rate[1], now) if rate else None


def address_of(environ: Mapping[str, Any], hops: int) -> str:
    """Return the client address: the peer, or the one reported by the last `hops` proxies.

    IPv6 addresses are reduced to the /64 network, because one client usually owns all addresses in
    it.
    """
    address = str(environ.get("REMOTE_ADDR") or "")
    if hops:
        forwarded = [
            part.strip()
            for part in environ.get("HTTP_X_FORWARDED_FOR", "").split(",")
            if part.strip()
        ]
        if len(forwarded) >= hops:
            address = forwarded[-hops]
    return network_of(address[:_MAX_ADDRESS_CHARS])


_MAX_ADDRESS_CHARS = 64


@lru_cache(maxsize=4096)
def network_of(text: str) -> str:
    """Return an address as it is counted: one of IPv6 as its /64 network."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(
        ipaddress.ip_network(
            (int(address) >> _IPV6_PREFIX_BITS << _IPV6_PREFIX_BITS, _IPV6_PREFIX_BITS)
        )
    )


def _tenant(environ: dict[str, Any], implied: str | None) -> tuple[str, str] | None:
    tenant = environ.get("HTTP_X_TENANT_ID") or implied
    database = environ.get("HTTP_X_DATABASE") or DEFAULT
    return (database, tenant) if tenant and is_name(tenant) and is_name(database) else None
