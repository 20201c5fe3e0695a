"""The spans of recent writes, by the change that they made, for links from its deliveries."""

from __future__ import annotations

import threading
from collections import OrderedDict

MAX_CAUSES = 4096
"""Writes that are remembered; a later delivery has no link."""

_causes: OrderedDict[tuple[str, str, int], object] = OrderedDict()
_mutex = threading.Lock()


def note_cause(database: str, tenant: str, seq: int, cause: object) -> None:
    """Remember the span of the write of a change."""
    with _mutex:
        _causes[database, tenant, seq] = cause
        if len(_causes) > MAX_CAUSES:
            _causes.popitem(last=False)


def cause_of(database: str, tenant: str, seq: int) -> list[object]:
    """Return the span of the write of a change, in a list; an empty one if it is not known."""
    cause = _causes.get((database, tenant, seq))
    return [] if cause is None else [cause]
