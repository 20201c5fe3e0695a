"""Request ids: the caller's if it is safe in a header and a log line, else a new one."""

from __future__ import annotations

import os
import re
import time

from kbcore import __version__

_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,128}")
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_NO_TRACE = "0" * 32
_NO_SNIFFING = ("X-Content-Type-Options", "nosniff")


def request_id(offered: str | None) -> str:
    """Return the caller's `X-Request-ID` if well-formed, else a new UUID version 7.

    UUIDs of version 7 sort by time.
    """
    if offered is not None and _ACCEPTED.fullmatch(offered):
        return offered
    digits = f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
    return f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"


def identity_headers(id: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of every response: the request id, the version of the server, and that
    browsers must not guess another content type, such as a script.
    """
    return ("X-Request-ID", id), ("X-KB-Version", __version__), _NO_SNIFFING


def trace_id(offered: str | None) -> str | None:
    """Return the trace id of a well-formed `traceparent` (W3C Trace Context), else None."""
    if offered is None:
        return None
    match = _TRACE.fullmatch(offered)
    return match[1] if match and match[1] != _NO_TRACE else None
