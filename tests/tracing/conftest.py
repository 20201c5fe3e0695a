"""A collector, and this process traced to it; left out without the extra `otel`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from support.http import Served, serve_in_memory
from support.optional import ignored

from kbcore.tracing.spans import turn_on

if TYPE_CHECKING:
    from support.collector import Collector

collect_ignore_glob = ignored(
    "tracing", "the extra otel", is_installed=find_spec("opentelemetry.exporter") is not None
)


@pytest.fixture
def collector() -> Iterator[Collector]:
    collecting = pytest.importorskip("support.collector").collecting
    with collecting() as running:
        yield running


@pytest.fixture
def traced(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Traces of this process go to the collector."""
    for name, value in collector.settings().items():
        monkeypatch.setenv(name, value)
    stop = turn_on(os.environ, lambda call: call(), "")
    assert stop is not None
    yield collector
    stop(60)


@pytest.fixture
def served(traced: Collector) -> Iterator[Served]:
    with serve_in_memory() as running:
        yield running
