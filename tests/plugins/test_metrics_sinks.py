"""The built-in metrics sinks meet the contract of sinks and report all values."""

from __future__ import annotations

import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kbcore import metrics as m
from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.metrics import DOCUMENTED, FAMILIES, Kind
from kbcore.node.metric_sinks import MAX_SERIES, Metrics
from kbcore.plug.conformance import MergeStrategyConformance
from kbcore.plug.conformance.metrics_sink import MetricsSinkConformance
from kbcore.plug.ports import MergeStrategy, MetricsSink
from kbplugins import conflict_basic, metrics_none, metrics_prometheus, metrics_statsd


class TestPrometheus(MetricsSinkConformance):
    def make_sink(self) -> MetricsSink:
        return metrics_prometheus.kb_metrics_sinks()["prometheus"](FAMILIES)


class TestNone(MetricsSinkConformance):
    def make_sink(self) -> MetricsSink:
        return metrics_none.kb_metrics_sinks()["none"](FAMILIES)


class TestStatsd(MetricsSinkConformance):
    def make_sink(self) -> MetricsSink:
        return metrics_statsd.kb_metrics_sinks(config=Config(statsd_address="127.0.0.1:9"))[
            "statsd"
        ](FAMILIES)


class TestKeepBoth(MergeStrategyConformance):
    def make_strategy(self) -> MergeStrategy:
        return conflict_basic.kb_conflict_strategies()["KEEP_BOTH"]


class TestConfidence(MergeStrategyConformance):
    def make_strategy(self) -> MergeStrategy:
        return conflict_basic.kb_conflict_strategies()["CONFIDENCE"]


def exposed(sink: MetricsSink) -> str:
    found = Metrics([sink]).expose()
    assert found is not None
    return found.decode()


def test_the_metric_catalogue_is_consistent():
    names = [spec.name for spec in FAMILIES]
    assert len(set(names)) == len(names) > 30
    assert set(DOCUMENTED) <= set(names)
    assert len(DOCUMENTED) == 10
    bare = {"svc_llm_tokens_used", "svc_memory_decay_evicted"}
    for spec in FAMILIES:
        assert spec.help
        assert bool(spec.buckets) == (spec.kind is Kind.HISTOGRAM)
        assert list(spec.buckets) == sorted(set(spec.buckets))
        if spec.kind is Kind.COUNTER:
            assert spec.name.endswith("_total") != (spec.name in bare)
        assert not {"tenant", "path", "predicate", "key"} & set(spec.labels)


def test_every_family_is_exposed_with_its_kind_and_help_by_its_very_name():
    text = exposed(metrics_prometheus.Prometheus(FAMILIES))
    for spec in FAMILIES:
        assert f"# TYPE {spec.name} {spec.kind.value}\n" in text
        assert f"# HELP {spec.name} {spec.help}\n" in text
    assert "_created" not in text


def test_values_come_out_as_they_went_in():
    metrics = Metrics([metrics_prometheus.Prometheus(FAMILIES)])
    metrics.observe(m.LLM_TOKENS, 7, ("local", "prompt"))
    metrics.observe(m.LLM_TOKENS, 5, ("local", "prompt"))
    metrics.observe(m.FACTS_STORED, 9)
    for seconds in (0.0001, 0.002, 100):
        metrics.observe(m.INFERENCE_SECONDS, seconds, ("ask",))
    text = (metrics.expose() or b"").decode()
    assert 'svc_llm_tokens_used{kind="prompt",provider="local"} 12.0\n' in text
    assert "\nsvc_memory_facts_total 9.0\n" in text
    assert 'svc_inference_duration_seconds_bucket{kind="ask",le="0.0001"} 1.0\n' in text
    assert 'svc_inference_duration_seconds_bucket{kind="ask",le="30.0"} 2.0\n' in text
    assert 'svc_inference_duration_seconds_bucket{kind="ask",le="+Inf"} 3.0\n' in text
    assert 'svc_inference_duration_seconds_count{kind="ask"} 3.0\n' in text
    families = {family.name for family in text_string_to_metric_families(text)}
    assert len(families) == len(FAMILIES)


def test_labels_are_bounded():
    metrics = Metrics([metrics_prometheus.Prometheus(FAMILIES)])
    for number in range(MAX_SERIES + 50):
        metrics.observe(m.ERRORS, 1, (f"E{number}",))
    text = (metrics.expose() or b"").decode()
    more = 50 + len(m.ERRORS.known)  # these have a series each from the start
    assert f'svc_errors_total{{code="other"}} {more}.0\n' in text
    with pytest.raises(ValueError, match="labels"):
        metrics.observe(m.ERRORS, 1, ())


class Broken:
    pushes = True

    def bind(self, spec, labels):
        def tell(value):
            raise OSError("no")

        return tell

    def expose(self):
        raise OSError("no")

    def close(self):
        raise OSError("no")


def test_a_failing_sink_is_counted_and_has_no_effect(caplog):
    metrics = Metrics([Broken(), metrics_prometheus.Prometheus(FAMILIES)])
    metrics.observe(m.FACTS_ASSERTED, 3)
    metrics.observe(m.FACTS_ASSERTED, 3)
    text = (metrics.expose() or b"").decode()
    assert "svc_facts_asserted_total 6.0\n" in text
    assert 'svc_plugin_failures_total{hook="kb_metrics_sinks"} 3.0\n' in text
    assert sum("Broken" in record.getMessage() for record in caplog.records) == 1
    metrics.close()


def test_totals_of_collectors_are_added_once():
    totals = iter([5, 8, 8])
    metrics = Metrics([metrics_prometheus.Prometheus(FAMILIES)])
    metrics.on_collect(lambda: [(m.LOG_RECORDS, (), next(totals))])
    for wanted in (5, 8, 8):
        assert f"svc_log_records_total {wanted}.0\n" in (metrics.expose() or b"").decode()


def test_statsd_sends_batches_by_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("127.0.0.1", 0))
        daemon.settimeout(10)
        sink = metrics_statsd.Statsd(daemon.getsockname())
        metrics = Metrics([sink])
        assert metrics.expose() is None
        for _ in range(3):
            metrics.observe(m.FACTS_ASSERTED, 2)
        metrics.observe(m.HTTP_SECONDS, 0.25, ("GET", "/a|b#c"))
        metrics.observe(m.TENANTS, 4)
        metrics.close()
        lines = daemon.recv(2000).decode().split("\n")
    assert lines == [
        "svc_facts_asserted_total:6|c",
        "svc_tenants:4|g",
        "svc_http_request_duration_ms:250|ms|#method:GET,route:/a_b_c",
    ]


@pytest.mark.parametrize(
    "text", ["nowhere", "127.0.0.1:0", "127.0.0.1:70000", ":8125", "127.0.0.1:x"]
)
def test_an_unresolvable_daemon_address_is_refused(text):
    with pytest.raises(ConfigError, match="STATSD_ADDRESS"):
        metrics_statsd.address_of(text)
