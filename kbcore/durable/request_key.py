"""The current request: its change sets carry its idempotency key and its API key into the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from kbcore.state.changes import ChangeSet
from kbcore.state.idempotency import RequestKey

_current: ContextVar[tuple[str, str, RequestKey] | None] = ContextVar(
    "kbcore-request", default=None
)

API_KEY: ContextVar[str | None] = ContextVar("kbcore-api-key", default=None)
"""The id of the API key of the current request; each request sets it."""


def own_key(caller: str, key: str) -> str:
    """Return an idempotency key as it is stored if it belongs to one caller.

    A key has no section sign, so that no caller can name that of another one.
    """
    return f"\N{SECTION SIGN}{caller}\N{SECTION SIGN}{key}"


@contextmanager
def carrying_out(database: str, tenant: str, request: RequestKey) -> Iterator[None]:
    """Mark change sets committed to a tenant in this context as part of a request."""
    token = _current.set((database, tenant, request))
    try:
        yield
    finally:
        _current.reset(token)


def marked(changes: ChangeSet) -> ChangeSet:
    """Return a change set with the keys of the request it belongs to, if any."""
    if (key := API_KEY.get()) is not None:
        changes = replace(changes, key=key)
    current = _current.get()
    if (
        current is None
        or changes.request is not None
        or current[:2] != (changes.database, changes.tenant)
    ):
        return changes
    return replace(changes, request=current[2])
