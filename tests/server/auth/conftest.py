"""Servers with managed keys, and with the one key of API_KEY."""

from __future__ import annotations

import pytest
from support.http import serve_in_memory
from support.keys import ONE, Keyed, keyed


@pytest.fixture
def node():
    with keyed() as found:
        yield found


@pytest.fixture
def single():
    with serve_in_memory(api_key=ONE) as served:
        yield Keyed(served)
