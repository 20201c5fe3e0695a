"""A server application over a runtime without a disk."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("kbplanner.jsonform") is None:  # the routes wait for it; what does not need them is tested all the same
    collect_ignore_glob = ["test_*.py"]
else:
    from support.http import Client, Served, serve_in_memory

    @pytest.fixture
    def served() -> Iterator[Served]:
        with serve_in_memory() as found:
            yield found

    @pytest.fixture
    def client(served: Served) -> Client:
        return served.client
