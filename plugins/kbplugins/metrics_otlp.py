"""Metrics sent to a collector of OpenTelemetry: METRICS_SINKS=otlp or OTEL_METRICS_EXPORTER=otlp.

The families are those of the catalogue, with their names; the `OTEL_*` variables say where they go
and how often. OpenTelemetry is imported when the sink is made: it is installed with the extra
`otel`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any

from kbcore import __version__
from kbcore.config import Config
from kbcore.config.settings import environment
from kbcore.errors import ConfigError
from kbcore.metrics import Kind, MetricSpec
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import MetricsSink
from kbplugins.metrics_prometheus import Series

INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
DEFAULT_INTERVAL_MS = 60_000

_log = logging.getLogger("kbplugins.metrics_otlp")


class Otlp:
    """Adds values up, and sends the sums at an interval, in seconds.

    `end_seconds` is the time that the last export may take.
    """

    pushes = True

    def __init__(
        self, specs: Sequence[MetricSpec], exporter: Any, interval: float, end_seconds: float
    ) -> None:
        self._families: dict[MetricSpec, dict[tuple[str, ...], Series]] = {
            spec: {} for spec in specs
        }
        self._exporter = exporter
        self._points = import_module("opentelemetry.sdk.metrics.export")
        self._resource = import_module("kbcore.tracing.otel").resource_of(environment())
        scope = import_module("opentelemetry.sdk.util.instrumentation").InstrumentationScope
        self._scope = scope("kbcore", __version__)
        self._interval, self._end_seconds = interval, end_seconds
        self._begun = time.time_ns()
        self._is_failing = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kbcore-otlp-metrics", daemon=True)
        self._thread.start()

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """Return a function that takes the values of a family with these labels."""
        series = self._families.setdefault(spec, {}).setdefault(labels, Series(spec))
        return series.set if spec.kind is Kind.GAUGE else series.recorder()

    def expose(self) -> bytes | None:
        """Return None: there is nothing to fetch."""
        return None

    def close(self) -> None:
        """Send the last values, and stop; a collector that hangs holds this up for a while only."""
        self._stop.set()
        self._thread.join(self._end_seconds)

    def send(self) -> None:
        """Send all sums as they are now; log the first of several failures."""
        data = self._points.MetricsData(
            [
                self._points.ResourceMetrics(
                    self._resource,
                    [self._points.ScopeMetrics(self._scope, list(self._metrics()), "")],
                    "",
                )
            ]
        )
        try:
            is_sent = self._exporter.export(data) is self._points.MetricExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - an exporter must not end the thread
            _log.debug("the exporter of metrics raised %s", type(error).__name__)
            is_sent = False
        if not is_sent and not self._is_failing:
            _log.warning("metrics cannot be exported; the next export has their sums too")
        self._is_failing = not is_sent

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.send()
        self.send()
        self._exporter.shutdown()

    def _metrics(self) -> Iterator[Any]:
        for spec, known in list(self._families.items()):
            points = [self._point(spec, *each) for each in sorted(known.items())]
            if points:
                yield self._points.Metric(spec.name, spec.help, "", self._data(spec, points))

    def _data(self, spec: MetricSpec, points: list[Any]) -> Any:
        cumulative = self._points.AggregationTemporality.CUMULATIVE
        if spec.kind is Kind.GAUGE:
            return self._points.Gauge(points)
        if spec.kind is Kind.HISTOGRAM:
            return self._points.Histogram(points, cumulative)
        return self._points.Sum(points, cumulative, True)

    def _point(self, spec: MetricSpec, labels: tuple[str, ...], series: Series) -> Any:
        series.fold()
        attributes = dict(zip(spec.labels, labels, strict=True))
        now = time.time_ns()
        if spec.kind is not Kind.HISTOGRAM:
            return self._points.NumberDataPoint(attributes, self._begun, now, float(series.sum))
        counts = list(series.counts)
        *_, count = accumulate(counts)
        return self._points.HistogramDataPoint(
            attributes, self._begun, now, count, series.sum, counts, spec.buckets, None, None
        )


def _made(specs: Sequence[MetricSpec], config: Config) -> Otlp:
    environ = environment()
    try:
        exporter = import_module("kbcore.tracing.otel").new_exporter("metrics", environ)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "METRICS_SINKS=otlp needs the extra: pip install 'kbcore[otel]'"
        ) from error
    text = environ.get(INTERVAL_VARIABLE, "").strip() or str(DEFAULT_INTERVAL_MS)
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"{INTERVAL_VARIABLE}={text!r}: must be a number of milliseconds")
    return Otlp(specs, exporter, int(text) / 1000, config.shutdown_timeout_ms / 1000)


@hookimpl
def kb_metrics_sinks(config: Config) -> Mapping[str, Callable[[Sequence[MetricSpec]], MetricsSink]]:
    """Offer the sink under the name `otlp`."""
    return {"otlp": lambda specs: _made(specs, config)}
