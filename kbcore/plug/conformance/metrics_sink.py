"""Conformance tests of metrics sinks; plugin authors import them from `kbcore.plug.conformance`."""

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
    """Tests of the contract of `MetricsSink`.

    Subclass it, name it `Test...`, and implement `make_sink`.
    """

    factory = "make_sink"

    @abstractmethod
    def make_sink(self) -> MetricsSink:
        """Return the sink under test, for all families."""

    @pytest.fixture
    def sink(self) -> Iterator[MetricsSink]:
        """Yield the sink under test, and close it at the end."""
        sink = self.make_sink()
        yield sink
        sink.close()

    @pytest.mark.parametrize("spec", FAMILIES, ids=lambda spec: spec.name)
    def test_it_takes_values_of_every_family(self, sink: MetricsSink, spec: MetricSpec) -> None:
        """Check values of every kind, with usual and unusual labels."""
        for labels in (
            tuple("x" for _ in spec.labels),
            tuple('a "b"\n\\{},|#:é' for _ in spec.labels),
        ):
            tell = sink.bind(spec, labels)
            for value in VALUES:
                tell(value)
        assert isinstance(sink.pushes, bool)

    def test_the_same_labels_are_the_same_series(self, sink: MetricsSink) -> None:
        """Check that values of a series bound twice add up; the exposition is text, or None."""
        for spec in FAMILIES:
            if not spec.labels and spec.kind is Kind.COUNTER:
                sink.bind(spec, ())(1)
                sink.bind(spec, ())(2)
                text = sink.expose()
                assert text is None or f"{spec.name} 3.0\n".encode() in text

    def test_it_takes_values_from_many_threads(self, sink: MetricsSink) -> None:
        """Check that no value is lost, if the sink shows values."""
        spec = next(spec for spec in FAMILIES if not spec.labels and spec.kind is Kind.COUNTER)
        tell = sink.bind(spec, ())
        threads = [
            threading.Thread(target=lambda: [tell(1) for _ in range(2000)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        text = sink.expose()
        assert text is None or f"{spec.name} 8000.0\n".encode() in text

    def test_it_may_be_closed_twice(self) -> None:
        """Check that a second close and a late value do nothing."""
        sink = self.make_sink()
        tell = sink.bind(FAMILIES[0], ())
        sink.close()
        sink.close()
        tell(1)
