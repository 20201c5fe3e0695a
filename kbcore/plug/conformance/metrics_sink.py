"""Tests of metrics sinks, for their authors to subclass; see `kbcore.plug.conformance.strategies`."""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator

import pytest

from kbcore.metrics.catalogue import FAMILIES, Kind, MetricSpec
from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import MetricsSink

VALUES = (0, 1, 0.5, 1e-9, 1e9, 3)


class MetricsSinkConformance(Conformance, abstract=True):
    """What every `MetricsSink` does. Subclass it, name it `Test...`, and implement `make_sink`."""

    factory = "make_sink"

    @abstractmethod
    def make_sink(self) -> MetricsSink:
        """The sink under test, for all families there are."""

    @pytest.fixture
    def sink(self) -> Iterator[MetricsSink]:
        """The sink under test, closed at the end."""
        made = self.make_sink()
        yield made
        made.close()

    @pytest.mark.parametrize("spec", FAMILIES, ids=lambda spec: spec.name)
    def test_it_takes_values_of_every_family(self, sink: MetricsSink, spec: MetricSpec) -> None:
        """Whatever the kind, the labels and the value."""
        for labels in (tuple("x" for _ in spec.labels), tuple('a "b"\n\\{},|#:é' for _ in spec.labels)):
            tell = sink.bind(spec, labels)
            for value in VALUES:
                tell(value)
        assert isinstance(sink.pushes, bool)

    def test_the_same_labels_are_the_same_series(self, sink: MetricsSink) -> None:
        """Bound twice, what is told to both adds up; what comes out is text, or nothing."""
        for spec in FAMILIES:
            if not spec.labels and spec.kind is Kind.COUNTER:
                sink.bind(spec, ())(1)
                sink.bind(spec, ())(2)
                text = sink.expose()
                assert text is None or f"{spec.name} 3.0\n".encode() in text

    def test_it_takes_values_from_many_threads(self, sink: MetricsSink) -> None:
        """None is lost where they can be seen."""
        spec = next(spec for spec in FAMILIES if not spec.labels and spec.kind is Kind.COUNTER)
        tell = sink.bind(spec, ())
        threads = [threading.Thread(target=lambda: [tell(1) for _ in range(2000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        text = sink.expose()
        assert text is None or f"{spec.name} 8000.0\n".encode() in text

    def test_it_may_be_closed_twice(self) -> None:
        """And what comes too late harms nobody."""
        sink = self.make_sink()
        tell = sink.bind(FAMILIES[0], ())
        sink.close()
        sink.close()
        tell(1)
