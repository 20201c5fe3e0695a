"""Metrics for a Prometheus server to fetch: `METRICS_SINKS=prometheus`, `GET /metrics`.

prometheus-client writes the text format, but the values are stored here: the library takes a lock
for every value, which under gevent takes a microsecond or more. These series append to a deque and
add up its values on a scrape or when the deque is long.
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
"""Maximum number of values waiting to be added up, for each combination of labels."""


class Series:
    """The values of one combination of labels."""

    def __init__(self, spec: MetricSpec) -> None:
        self._bounds = spec.buckets
        self._waiting: deque[float] = deque()
        self._mutex = threading.Lock()
        self.sum = 0.0
        self.counts = [0] * (len(spec.buckets) + 1)

    def recorder(self) -> Callable[[float], None]:
        """Return a thread-safe function that takes a value; it locks only once in FOLD_AT
        values.
        """
        waiting = self._waiting
        append, fold = waiting.append, self.fold

        def record(value: float) -> None:
            append(value)
            if len(waiting) >= FOLD_AT:
                fold()

        return record

    def set(self, value: float) -> None:
        """Set the value of a gauge."""
        self.sum = value

    def fold(self) -> None:
        """Add up the waiting values."""
        with self._mutex:
            bounds, counts = self._bounds, self.counts
            for _ in range(len(self._waiting)):
                value = self._waiting.popleft()
                self.sum += value
                if bounds:
                    counts[bisect_left(bounds, value)] += 1


class Prometheus:
    """All series, written in the text format, version 0.0.4."""

    pushes = False

    def __init__(self, specs: Sequence[MetricSpec]) -> None:
        # Imported here because it takes 50 ms.
        from prometheus_client import core, exposition, utils

        self._core = core
        self._text = exposition.generate_latest
        self._number = cast(Any, utils).floatToGoString
        self._families: dict[MetricSpec, dict[tuple[str, ...], Series]] = {
            spec: {} for spec in specs
        }

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """Return a function that takes the values of a family with these labels."""
        series = self._families.setdefault(spec, {}).setdefault(labels, Series(spec))
        return series.set if spec.kind is Kind.GAUGE else series.recorder()

    def expose(self) -> bytes:
        """Return every family, including those without values."""
        text = self._text(self)
        for spec in self._families:
            if spec.kind is Kind.COUNTER and not spec.name.endswith("_total"):
                # The library requires the suffix `_total`, the text format does not.
                text = text.replace(
                    f"# TYPE {spec.name} gauge\n".encode(), f"# TYPE {spec.name} counter\n".encode()
                )
        return text

    def close(self) -> None:
        """Do nothing: there is nothing to send."""

    def collect(self) -> Iterator[Any]:
        """Yield the families in the form of the library, which calls this like a registry's
        method.
        """
        for spec, known in self._families.items():
            every = sorted(known.items())
            for _, series in every:
                series.fold()
            if spec.kind is Kind.HISTOGRAM:
                histogram = self._core.HistogramMetricFamily(
                    spec.name, spec.help, labels=spec.labels
                )
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
        buckets, below = [], 0
        for bound, count in zip((*spec.buckets, float("inf")), series.counts, strict=True):
            below += count
            buckets.append((str(self._number(bound)), float(below)))
        return buckets


@hookimpl
def kb_metrics_sinks() -> Mapping[str, Callable[[Sequence[MetricSpec]], MetricsSink]]:
    """Offer the sink under the name `prometheus`."""
    return {"prometheus": Prometheus}
