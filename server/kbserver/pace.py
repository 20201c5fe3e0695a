"""The pace at which bodies are read and answers are written: other requests run in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from flask import current_app, has_app_context

from kbcore.reason.budget import Deadline
from kbplanner.pacing import current_rest, no_rest, resting

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

_RUNTIME: ContextVar[Runtime | None] = ContextVar("kbcore-runtime", default=None)


@contextmanager
def bodies_of(runtime: Runtime) -> Iterator[None]:
    """Read the bodies in this block, which is in no Flask request, at the pace of a node."""
    token = _RUNTIME.set(runtime)
    try:
        yield
    finally:
        _RUNTIME.reset(token)


def reading(data: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Return a block that reads a body within its deadline: `timeoutMs`, at most QUERY_TIMEOUT_MS.

    Inside, reading raises BudgetExceeded. The block of a part of a body is that of the body.
    """
    runtime = _runtime()
    if runtime is None:
        return _INSIDE
    timeout_ms, own = runtime.config.query_timeout_ms, data.get("timeoutMs")
    if type(own) is int and own > 0:
        timeout_ms = min(timeout_ms, own)
    return resting(Deadline(runtime.clock, timeout_ms, runtime.yield_now))


def writing() -> AbstractContextManager[None]:
    """Return a block that writes an answer. No deadline ends it, for the request was carried out."""
    runtime = _runtime()
    return _INSIDE if runtime is None else resting(runtime.yield_now)


def _runtime() -> Runtime | None:
    """Return the runtime whose pace a block gets; None inside another block, and outside a node."""
    if current_rest() is not no_rest:
        return None
    runtime = _RUNTIME.get()
    if runtime is None and has_app_context():
        runtime = current_app.extensions["kbcore"]
    return runtime


_INSIDE = nullcontext()
