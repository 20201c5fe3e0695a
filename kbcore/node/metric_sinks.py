"""Distribution of metric values to the sinks; code that counts does not know which sinks there are.

A family with labels is bound once to its label values; the resulting function is called for each
value and is fast, so hot paths hold it. Values that are expensive to determine come from
collectors, when a sink is read or pushes.
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
"""Family, label values, and current value: of a counter the total so far."""

MAX_SERIES = 1000
"""Maximum number of label combinations per family; further ones are counted together, as
`other`."""

OTHER = "other"

_log = logging.getLogger("kbcore.metrics")


class Metrics:
    """The sinks of a node. No method raises because of a sink.

    A sink that raises is logged once and counted.
    """

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
            for labels in spec.known if spec.labels else ((),):
                self.bind(spec, *labels)

    def bind(self, spec: MetricSpec, *labels: str) -> Tell:
        """Return the function for each value of a family.

        An amount to add, the value of a gauge, or an observation.

        Raises ValueError if the number of labels is not that of the family.
        """
        function = self._bound.get((spec, labels))
        return self._bind(spec, labels) if function is None else function

    def observe(self, spec: MetricSpec, value: float = 1, labels: Labels = ()) -> None:
        """Record one value; use `bind` for frequent values."""
        self.bind(spec, *labels)(value)

    def on_collect(self, collector: Callable[[], Collected]) -> None:
        """Register a collector, to be called whenever collected values are read."""
        self._collectors.append(collector)

    def collect(self) -> None:
        """Pass the collected values to the sinks."""
        with self._collecting:
            for collector in self._collectors:
                for spec, labels, value in collector():
                    if spec.kind is Kind.COUNTER:
                        before = self._totals.get((spec, labels), 0.0)
                        self._totals[spec, labels] = value
                        value = max(0.0, value - before)
                    self.bind(spec, *labels)(value)

    def expose(self) -> bytes | None:
        """Return the text exposition of the first sink that has one, up to date.

        None if no sink has one.
        """
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
        """Pass the collected values to sinks that send by themselves."""
        if any(sink.pushes for sink in self._sinks):
            self.collect()

    def close(self) -> None:
        """Let the sinks send pending values."""
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
            function = self._bound.get((spec, labels))
            if function is None:
                self._series[spec] = self._series.get(spec, 0) + 1
                function = self._bound[spec, labels] = self._fan_out(spec, labels)
            return function

    def _fan_out(self, spec: MetricSpec, labels: Labels) -> Tell:
        targets = []
        for sink in self._sinks:
            try:
                targets.append((sink, sink.bind(spec, labels)))
            except Exception as error:  # noqa: BLE001 - see above
                self._complain(sink, error)
        if not targets:
            return _nowhere

        if len(targets) == 1:
            sink, only = targets[0]

            def tell_one(value: float) -> None:
                try:
                    only(value)
                except Exception as error:  # noqa: BLE001 - see above
                    self._failed(sink, error)

            return tell_one

        def tell(value: float) -> None:
            for sink, target in targets:
                try:
                    target(value)
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
            _log.warning("metrics sink %s fails (logged once): %r", type(sink).__name__, error)


def _nowhere(value: float) -> None:
    """Discard a value: there is no sink."""
