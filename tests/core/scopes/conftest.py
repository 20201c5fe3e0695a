"""A knowledge base under each engine."""

from __future__ import annotations

import pytest
from support.engines import clock
from support.runtimes import runtime

__all__ = ["clock", "kb"]


@pytest.fixture(params=["c", "python"])
def kb(request, clock):
    with runtime(clock=clock, engine=request.param) as node:
        yield node.knowledge_base()
