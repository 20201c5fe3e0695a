"""The `RateLimit` headers of a request that counts against a limit; without limits there are none."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """How a limit stands: `quota` requests in `window` seconds, of which `left` are left; it is full in `reset` seconds."""

    name: str
    quota: int
    window: int
    left: int
    reset: float


def rate_headers(rate: Rate | None) -> dict[str, str]:
    """The headers of an answer; none where nothing is limited."""
    if rate is None:
        return {}
    return {
        "RateLimit-Policy": f'"{rate.name}";q={rate.quota};w={rate.window}',
        "RateLimit": f'"{rate.name}";r={max(0, rate.left)};t={max(0, math.ceil(rate.reset))}',
    }
