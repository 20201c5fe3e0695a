"""Metrics over OTLP: the families of the catalogue, with their values."""

from __future__ import annotations

import pytest
from support.collector import Collector

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.metrics import FAMILIES, catalogue
from kbcore.node.metric_sinks import Metrics
from kbcore.plug.conformance.metrics_sink import MetricsSinkConformance
from kbcore.plug.ports import MetricsSink
from kbplugins import metrics_otlp
from kbserver.serve import with_otlp_metrics


@pytest.fixture(autouse=True)
def exporting(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics go to the collector when a sink is closed."""
    for name, value in collector.settings(OTEL_METRIC_EXPORT_INTERVAL="3600000").items():
        monkeypatch.setenv(name, value)


def new_sink() -> MetricsSink:
    return metrics_otlp.kb_metrics_sinks(Config())["otlp"](FAMILIES)


class TestOtlp(MetricsSinkConformance):
    def make_sink(self) -> MetricsSink:
        return new_sink()


def test_each_family_arrives_with_its_kind_and_values(collector: Collector) -> None:
    metrics = Metrics([new_sink()])
    for spec in FAMILIES:
        metrics.observe(spec, 0.5, tuple(f"l{n}" for n in range(len(spec.labels))))
        metrics.observe(spec, 2, tuple(f"l{n}" for n in range(len(spec.labels))))
    metrics.close()
    assert set(collector.metrics) == {spec.name for spec in FAMILIES}
    counter = collector.metrics[catalogue.ERRORS.name].sum
    assert counter.is_monotonic
    assert sorted(point.as_double for point in counter.data_points)[-1] == 2.5
    (point,) = collector.metrics[catalogue.UPTIME.name].gauge.data_points
    assert point.as_double == 2
    (timed,) = collector.metrics[catalogue.LOG_SYNC_SECONDS.name].histogram.data_points
    assert (timed.count, timed.sum, sum(timed.bucket_counts)) == (2, 2.5, 2)
    assert list(timed.explicit_bounds) == list(catalogue.LOG_SYNC_SECONDS.buckets)
    assert len(timed.bucket_counts) == len(timed.explicit_bounds) + 1


def test_the_variable_of_opentelemetry_adds_the_sink() -> None:
    assert with_otlp_metrics(Config(), {}) == Config()
    config = with_otlp_metrics(Config(), {"OTEL_METRICS_EXPORTER": "otlp"})
    assert config.metrics_sinks == ("prometheus", "otlp")


def test_a_wrong_interval_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")
    with pytest.raises(ConfigError, match="OTEL_METRIC_EXPORT_INTERVAL='soon'"):
        new_sink()
