"""Fixtures: a node with each engine, on a clock that is fixed at T0."""

from __future__ import annotations

import pytest

from kbcore.clock import ManualClock
from kbcore.state.facts import Fact
from support.runtimes import runtime_on

T0 = 1_700_000_000_000
HOUR = 3_600_000


@pytest.fixture
def clock():
    return ManualClock(T0)


@pytest.fixture(params=["c", "python"])
def node(clock, request):
    with runtime_on(request.param, clock=clock, engine_verify=True) as found:
        yield found


@pytest.fixture
def kb(node):
    return node.knowledge_base()


def tell(kb, predicate, *args, **more):
    kb.assert_facts([Fact(predicate, args, **more)])
