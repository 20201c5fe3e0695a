"""Values on their way to the sinks. What counts calls this; which sinks listen is nobody's business there.

A family with labels is bound once to their values; the function that gives is called for each value and is quick: a hot path
holds it. What must be walked to be known is not counted on the way: collectors give it when a sink is asked or pushes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kbcore.metrics.catalogue import FAMILIES, PLUGIN_FAILURES, Kind, MetricSpec

if TYPE_CHECKING:
    from kbcore.plug.ports import MetricsSink

Labels = tuple[str, ...]
Tell = Callable[[float], None]
Collected = Iterable[tuple[MetricSpec, Labels, float]]
"""Family, values of its labels, and where it stands: of a counter the total so far."""

MAX_SERIES = 1000
"""Combinations of label values of one family; those beyond are counted together, as `other`."""

OTHER = "other"

_log = logging.getLogger("kbcore.metrics")


class Metrics:
    """The sinks of a node. No method raises because of a sink: a sink that raises is logged once and counted."""

    def __init__(self, sinks: Sequence[MetricsSink] = ()) -> None:
        self._sinks = tuple(sinks)
        self._mutex = threading.Lock()
        self._bound: dict[tuple[MetricSpec, Labels], Tell] = {}
        self._series: dict[MetricSpec, int] = {}
        self._collectors: list[Callable[[], Collected]] = []
        self._collecting = threading.Lock()
        self._totals: dict[tuple[MetricSpec, Labels], float] = {}
        self._complained: set[int] = set()
        for spec in FAMILIES:
            if not spec.labels:
                self.bind(spec)

    def bind(self, spec: MetricSpec, *labels: str) -> Tell:
        """What to call with each value of a family: an amount to add, where a gauge stands, or what was observed.

        Raises ValueError where the number of labels is not that of the family.
        """
        found = self._bound.get((spec, labels))
        return self._bind(spec, labels) if found is None else found

    def observe(self, spec: MetricSpec, value: float = 1, labels: Labels = ()) -> None:
        """Tell one value; `bind` is for what is told often."""
        self.bind(spec, *labels)(value)

    def on_collect(self, collector: Callable[[], Collected]) -> None:
        """Ask `collector` whenever values are wanted that nobody counts on the way."""
        self._collectors.append(collector)

    def collect(self) -> None:
        """Bring to the sinks what the collectors know."""
        with self._collecting:
            for collector in self._collectors:
                for spec, labels, value in collector():
                    if spec.kind is Kind.COUNTER:
                        before = self._totals.get((spec, labels), 0.0)
                        self._totals[spec, labels] = value
                        value = max(0.0, value - before)
                    self.bind(spec, *labels)(value)

    def expose(self) -> bytes | None:
        """The text exposition of the first sink that has one, brought to now; None where none has."""
        if not self._sinks:
            return None
        self.collect()
        for sink in self._sinks:
            try:
                text = sink.expose()
            except Exception as error:  # noqa: BLE001 - a sink's failure is never the client's
                self._failed(sink, error)
                continue
            if text is not None:
                return text
        return None

    def push(self) -> None:
        """Bring what the collectors know to sinks that send by themselves."""
        if any(sink.pushes for sink in self._sinks):
            self.collect()

    def close(self) -> None:
        """Let the sinks send what they hold."""
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 - a sink's failure must not keep the log from being closed
                self._failed(sink, error)

    def _bind(self, spec: MetricSpec, labels: Labels) -> Tell:
        if len(labels) != len(spec.labels):
            raise ValueError(f"{spec.name} has the labels {spec.labels}, not {labels}")
        with self._mutex:
            if labels and self._series.get(spec, 0) >= MAX_SERIES:
                labels = (OTHER,) * len(labels)
            found = self._bound.get((spec, labels))
            if found is None:
                self._series[spec] = self._series.get(spec, 0) + 1
                found = self._bound[spec, labels] = self._made(spec, labels)
            return found

    def _made(self, spec: MetricSpec, labels: Labels) -> Tell:
        told = []
        for sink in self._sinks:
            try:
                told.append((sink, sink.bind(spec, labels)))
            except Exception as error:  # noqa: BLE001 - see above
                self._complain(sink, error)
        if not told:
            return _nowhere

        if len(told) == 1:
            sink, only = told[0]

            def tell_one(value: float) -> None:
                try:
                    only(value)
                except Exception as error:  # noqa: BLE001 - see above
                    self._failed(sink, error)

            return tell_one

        def tell(value: float) -> None:
            for sink, one in told:
                try:
                    one(value)
                except Exception as error:  # noqa: BLE001 - see above
                    self._failed(sink, error)

        return tell

    def _failed(self, sink: MetricsSink, error: Exception) -> None:
        self._complain(sink, error)
        others = [each for each in self._sinks if each is not sink]
        for other in others:
            try:
                other.bind(PLUGIN_FAILURES, ("kb_metrics_sinks",))(1)
            except Exception as second:  # noqa: BLE001 - see above
                self._complain(other, second)

    def _complain(self, sink: MetricsSink, error: Exception) -> None:
        if id(sink) not in self._complained:
            self._complained.add(id(sink))
            _log.warning("metrics sink %s fails, which is told once: %r", type(sink).__name__, error)


def _nowhere(value: float) -> None:
    """Nobody listens."""
