"""gzip compression of large responses for clients that accept it.

Event streams are never compressed, because compression would delay events in a buffer.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

MIN_BYTES = 1024
LARGE_BYTES = 256 * 1024
"""Responses from this size on are compressed in a thread, so that they do not block the event
loop.
"""

LEVEL = 2
_GZIP = 31
_KINDS = (
    "application/json",
    "text/plain",
    "text/html",
    "text/css",
    "text/javascript",
    "application/manifest+json",
    "application/problem+json",
)
_REFUSED = re.compile(r"0(?:\.0{0,3})?")

VARY = "Accept-Encoding"


@lru_cache(maxsize=256)
def takes_gzip(accepted: str) -> bool:
    """Return True if an `Accept-Encoding` header allows gzip."""
    wishes: dict[str, bool] = {}
    for part in accepted.lower().split(","):
        coding, _, parameter = part.partition(";")
        name, _, value = parameter.partition("=")
        wishes[coding.strip()] = not (name.strip() == "q" and _REFUSED.fullmatch(value.strip()))
    return wishes.get("gzip", wishes.get("x-gzip", wishes.get("*", False)))


def compressible(kind: str, size: int) -> bool:
    """Return True if a response of this content type and size in bytes is worth compressing."""
    return size >= MIN_BYTES and kind.startswith(_KINDS)


def compressed(
    parts: list[bytes], size: int, offload: Callable[[Callable[[], bytes]], bytes]
) -> bytes:
    """Return the parts of a response of `size` bytes as one gzip member.

    `offload` runs the compression of large responses in a thread.
    """
    return offload(lambda: _gzip(parts)) if size >= LARGE_BYTES else _gzip(parts)


def _gzip(parts: list[bytes]) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
    return b"".join([*map(packer.compress, parts), packer.flush()])


def wanted_by(environ: Mapping[str, Any]) -> bool:
    """Return True if the client of a request accepts gzip."""
    accepted = environ.get("HTTP_ACCEPT_ENCODING")
    return bool(accepted) and takes_gzip(accepted)
