"""How often anybody may ask: limits of a caller, of a tenant and of an address, each if it is set."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kbcore.errors import RateLimited
from kbserver.http.request_context import DEFAULT, is_name
from kbserver.rate_headers import Rate, rate_headers
from kbserver.security.token_bucket import Buckets

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

RATE = "kbcore.rate"
"""Where a request's Rate is left in the WSGI environment, for the headers of its answer."""

_V6_BITS = 64


class RateLimits:
    """The limits that are set, in the order in which they are looked at."""

    def __init__(self, runtime: Runtime) -> None:
        config, now = runtime.config, runtime.clock.monotonic
        self._caller = _buckets("default", config.rate_limit, now)
        self._tenant = _buckets("tenant", config.rate_limit_tenant, now)
        self._address = _buckets("address", config.rate_limit_address, now)
        self.active = any(limit is not None for limit in (self._caller, self._tenant, self._address))

    def count(self, environ: dict[str, Any], key: str | None, address: str) -> None:
        """Count a request against every limit, or against none where one is used up: raises RateLimited then."""
        tenant = _tenant(environ)
        asked: list[tuple[Buckets, Hashable]] = []
        if self._caller is not None:
            asked.append((self._caller, ("key", key) if key else tenant or ("address", address)))
        if self._tenant is not None and tenant is not None:
            asked.append((self._tenant, tenant))
        if self._address is not None:
            asked.append((self._address, address))
        for buckets, name in asked:
            seconds = buckets.wait(name)
            if seconds:
                environ[RATE] = Rate(buckets.name, buckets.quota, buckets.window, 0, seconds)
                limit = {"limit": buckets.name, "requests": buckets.quota, "seconds": buckets.window}
                said = f"more than {buckets.quota} requests in {buckets.window} seconds"
                raise RateLimited(said, math.ceil(seconds), limit)
        rates = [buckets.take(name) for buckets, name in asked]
        if rates:
            environ[RATE] = min(rates, key=lambda rate: rate.left / rate.quota)


def _buckets(name: str, rate: tuple[int, ...], now: Callable[[], float]) -> Buckets | None:
    return Buckets(name, rate[0], rate[1], now) if rate else None


def headers_of(environ: dict[str, Any]) -> dict[str, str]:
    """The headers that say how the limits of a request stand."""
    return rate_headers(environ.get(RATE))


def address_of(environ: dict[str, Any], hops: int) -> str:
    """Where a request comes from: who is connected, or what the last `hops` proxies say.

    Of an IPv6 address the first half: who has one has as many of the other halves as they like.
    """
    found = str(environ.get("REMOTE_ADDR") or "")
    if hops:
        said = [part.strip() for part in environ.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
        if len(said) >= hops:
            found = said[-hops]
    return _network(found[:_LONGEST])


_LONGEST = 64


@lru_cache(maxsize=4096)
def _network(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> _V6_BITS << _V6_BITS, _V6_BITS)))


def _tenant(environ: dict[str, Any]) -> tuple[str, str] | None:
    tenant, database = environ.get("HTTP_X_TENANT_ID"), environ.get("HTTP_X_DATABASE") or DEFAULT
    return (database, tenant) if tenant and is_name(tenant) and is_name(database) else None
