"""A node for transactions."""

from __future__ import annotations

import pytest
from support.transactions import Node


@pytest.fixture
def node():
    made = Node()
    yield made
    made.runtime.close()
