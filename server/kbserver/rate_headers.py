"""The `RateLimit` headers of a request that counts against a limit; without limits there are none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rate:
    """How a limit stands: `quota` requests in `window` seconds, of which `left` are left; it is full in `reset` seconds.

    `window` None: the quota is of what there may be at a time.
    """

    name: str
    quota: int
    window: int | None
    left: int
    reset: float


def rate_headers(rate: Rate | None) -> dict[str, str]:
    """The headers of an answer; none where nothing is limited."""
    if rate is None:
        return {}
    window = "" if rate.window is None else f";w={rate.window}"
    return {
        "RateLimit-Policy": f'"{rate.name}";q={rate.quota}{window}',
        "RateLimit": f'"{rate.name}";r={max(0, rate.left)};t={max(0, math.ceil(rate.reset))}',
    }


def used_up(details: Mapping[str, Any] | None, seconds: float) -> Rate:
    """The limit a RateLimited names in its details (`limit`; `value`, or `requests` and `seconds`); nothing of it is left.

    What a guest's error does not say, or says in other words, is left out.
    """
    fields = details or {}
    name, quota, window = fields.get("limit"), fields.get("requests", fields.get("value")), fields.get("seconds")
    return Rate(
        name if isinstance(name, str) and name.isascii() and name.isidentifier() else "default",
        quota if type(quota) is int else 0,
        window if type(window) is int else None,
        0,
        seconds,
    )
