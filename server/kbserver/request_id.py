"""The number of a request: the caller's, when it can stand in a header and a log line as it is, else a new one."""

from __future__ import annotations

import re
import uuid

_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,128}")


def request_id(offered: str | None) -> str:
    """Give the caller's `X-Request-ID` back if it is well-formed, else a new UUID."""
    if offered is not None and _ACCEPTED.fullmatch(offered):
        return offered
    return str(uuid.uuid4())
