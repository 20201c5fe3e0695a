"""A server that manages API keys, and requests to try keys with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from werkzeug.test import TestResponse

from kbcore.node.api_keys import KeyWanted, NewKey
from support.http import Served, serve_in_memory

BOOTSTRAP = "a-token-for-the-first-key"
ONE = "the-one-key-of-this-server"

GOAL = {"predicate": "p", "args": ["?x"]}
TOLD = {"predicate": "p", "args": ["x"]}


class Keyed:
    """A server in memory with AUTH_ENABLED; each request comes from an address of its own unless it
    says another.
    """

    def __init__(self, served: Served) -> None:
        self.served = served
        self._client = served.app.test_client()
        self._numbers = itertools.count()

    def make(
        self, role: str, databases: Sequence[str] = (), tenants: Sequence[str] = (), **more: Any
    ) -> NewKey:
        """Make a key as the machine's owner does."""
        wanted = KeyWanted(role, role, tuple(databases), tuple(tenants), **more)
        return self.served.runtime.keys().create(wanted)

    def send(
        self,
        method: str,
        path: str,
        key: str | None = None,
        body: Any = None,
        *,
        tenant: str | None = "a",
        database: str | None = None,
        address: str | None = None,
        **headers: str,
    ) -> TestResponse:
        """Send a request; a name of a header has _ for -."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        if tenant is not None:
            sent["X-Tenant-ID"] = tenant
        if database is not None:
            sent["X-Database"] = database
        number = next(self._numbers)
        found = address or f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        more = {} if method in ("GET", "HEAD", "DELETE") else {"json": {} if body is None else body}
        return self._client.open(
            path, method=method, headers=sent, environ_overrides={"REMOTE_ADDR": found}, **more
        )


@contextmanager
def keyed(**settings: Any) -> Iterator[Keyed]:
    """Serve with managed keys."""
    with serve_in_memory(auth_enabled=True, bootstrap_token=BOOTSTRAP, **settings) as served:
        yield Keyed(served)
