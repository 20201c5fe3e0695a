"""The pace at which bodies are read and answers are written: other requests run in between."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import Token
from typing import TYPE_CHECKING, Any

from flask import current_app, has_app_context

from kbcore.reason.budget import Deadline
from kbplanner.pacing import YieldNow, begin_yielding, current_yield, go_on, yielding
from kbserver.http.request import CURRENT

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


def begin_reading(data: Mapping[str, Any]) -> Token[YieldNow] | None:
    """Begin to read a body as `reading` does, without a block; give the result to `end_yielding`.

    None if the body is part of one that is being read, and outside a node.
    """
    deadline = _deadline(data)
    return None if deadline is None else begin_yielding(deadline)


def reading(data: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Return a block that reads a body within its deadline: `timeoutMs`, at most QUERY_TIMEOUT_MS.

    Inside, reading raises BudgetExceeded. The block of a part of a body is that of the body.
    """
    deadline = _deadline(data)
    return _INSIDE if deadline is None else yielding(deadline)


def _deadline(data: Mapping[str, Any]) -> Deadline | None:
    runtime = _runtime()
    if runtime is None:
        return None
    timeout_ms, own = runtime.config.query_timeout_ms, data.get("timeoutMs")
    if type(own) is int and own > 0:
        timeout_ms = min(timeout_ms, own)
    return Deadline(runtime.clock, timeout_ms, runtime.yield_now)


def writing() -> AbstractContextManager[None]:
    """Return a block that writes an answer. No deadline ends it, for the request was carried
    out.
    """
    runtime = _runtime()
    return _INSIDE if runtime is None else yielding(runtime.yield_now)


def _runtime() -> Runtime | None:
    """Return the runtime whose pace a block gets; None inside another block, and outside a node."""
    if current_yield() is not go_on:
        return None
    request = CURRENT.get()
    if request is not None:
        return request.runtime
    return current_app.extensions["kbcore"] if has_app_context() else None


_INSIDE = nullcontext()
