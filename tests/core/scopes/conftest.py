"""A knowledge base under each engine."""

from __future__ import annotations

import pytest
from support.engines import clock
from support.runtimes import runtime_on

__all__ = ["clock", "kb"]


@pytest.fixture(params=["c", "python"])
def kb(request, clock):
    with runtime_on(request.param, clock=clock) as node:
        yield node.knowledge_base()
