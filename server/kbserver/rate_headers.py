"""`RateLimit` headers of requests that count against a limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rate:
    """State of a limit: `quota` requests per `window` seconds, `left` remaining, full again in
    `reset` seconds.

    With `window` None the quota limits concurrent requests.
    """

    name: str
    quota: int
    window: int | None
    left: int
    reset: float


def rate_headers(rate: Rate | None) -> dict[str, str]:
    """Return the headers of a response; none without a limit."""
    if rate is None:
        return {}
    window = "" if rate.window is None else f";w={rate.window}"
    return {
        "RateLimit-Policy": f'"{rate.name}";q={rate.quota}{window}',
        "RateLimit": f'"{rate.name}";r={max(0, rate.left)};t={max(0, math.ceil(rate.reset))}',
    }


def used_up(details: Mapping[str, Any] | None, seconds: float) -> Rate:
    """Return the exhausted limit in the details of RateLimited (`limit`; `value`, or `requests` and
    `seconds`).

    Errors of plugins may lack these details; defaults replace them.
    """
    fields = details or {}
    name, quota, window = (
        fields.get("limit"),
        fields.get("requests", fields.get("value")),
        fields.get("seconds"),
    )
    return Rate(
        name if isinstance(name, str) and name.isascii() and name.isidentifier() else "default",
        quota if type(quota) is int else 0,
        window if type(window) is int else None,
        0,
        seconds,
    )
