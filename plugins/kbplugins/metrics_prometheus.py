"""Metrics for a Prometheus server to fetch: `METRICS_SINKS=prometheus`, `GET /metrics`.

The library writes the exposition. The numbers are kept here: its own children take a lock for every value, which under
gevent is a microsecond or more; these append to a deque, and add up when somebody asks or when there is enough of it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from kbcore.metrics import Kind, MetricSpec
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import MetricsSink

FOLD_AT = 512
"""Values that wait to be added up, at most, for each combination of labels."""


class Series:
    """The values of one combination of labels."""

    def __init__(self, spec: MetricSpec) -> None:
        self._bounds = spec.buckets
        self._waiting: deque[float] = deque()
        self._mutex = threading.Lock()
        self.sum = 0.0
        self.counts = [0] * (len(spec.buckets) + 1)

    def teller(self) -> Callable[[float], None]:
        """What takes a value; safe between threads, and without a lock but for one value in many."""
        waiting = self._waiting
        append, fold = waiting.append, self.fold

        def tell(value: float) -> None:
            append(value)
            if len(waiting) >= FOLD_AT:
                fold()

        return tell

    def set(self, value: float) -> None:
        """Where a gauge stands."""
        self.sum = value

    def fold(self) -> None:
        """Add up what waits."""
        with self._mutex:
            bounds, counts = self._bounds, self.counts
            for _ in range(len(self._waiting)):
                value = self._waiting.popleft()
                self.sum += value
                if bounds:
                    counts[bisect_left(bounds, value)] += 1


class Prometheus:
    """Keeps every series, and writes them in the text format, version 0.0.4."""

    pushes = False

    def __init__(self, specs: Sequence[MetricSpec]) -> None:
        from prometheus_client import core, exposition, utils  # 50 ms that only those who use it spend

        self._core, self._text, self._written = core, exposition.generate_latest, cast(Any, utils).floatToGoString
        self._families: dict[MetricSpec, dict[tuple[str, ...], Series]] = {spec: {} for spec in specs}

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """What takes the values of a family with these labels."""
        series = self._families.setdefault(spec, {}).setdefault(labels, Series(spec))
        return series.set if spec.kind is Kind.GAUGE else series.teller()

    def expose(self) -> bytes:
        """Return every family, also those nothing was told of."""
        text = self._text(self)
        for spec in self._families:
            if spec.kind is Kind.COUNTER and not spec.name.endswith("_total"):
                # The library has no counter of such a name; the format has.
                text = text.replace(f"# TYPE {spec.name} gauge\n".encode(), f"# TYPE {spec.name} counter\n".encode())
        return text

    def close(self) -> None:
        """Nothing is sent from here."""

    def collect(self) -> Iterator[Any]:
        """Yield the families as the library has them; it calls this as it does with a registry."""
        for spec, known in self._families.items():
            every = sorted(known.items())
            for _, series in every:
                series.fold()
            if spec.kind is Kind.HISTOGRAM:
                histogram = self._core.HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
                for labels, series in every:
                    histogram.add_metric(labels, self._buckets(spec, series), series.sum)
                yield histogram
                continue
            named = spec.kind is Kind.COUNTER and spec.name.endswith("_total")
            kind = self._core.CounterMetricFamily if named else self._core.GaugeMetricFamily
            family = kind(spec.name, spec.help, labels=spec.labels)
            for labels, series in every:
                family.add_metric(labels, series.sum)
            yield family

    def _buckets(self, spec: MetricSpec, series: Series) -> list[tuple[str, float]]:
        found, below = [], 0
        for bound, count in zip((*spec.buckets, float("inf")), series.counts, strict=True):
            below += count
            found.append((str(self._written(bound)), float(below)))
        return found


@hookimpl
def kb_metrics_sinks() -> Mapping[str, Callable[[Sequence[MetricSpec]], MetricsSink]]:
    """Offer the sink under the name `prometheus`."""
    return {"prometheus": Prometheus}
