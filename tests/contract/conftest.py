"""A server application over a runtime without a disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.http import Client, Served, serve_in_memory


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory() as found:
        yield found


@pytest.fixture
def client(served: Served) -> Client:
    return served.client
