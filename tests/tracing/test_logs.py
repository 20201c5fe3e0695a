"""Logs over OTLP: what arrives, with which ids, and what is never sent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.collector import Collector, ReceivedLog
from support.http import Served
from support.servers import Server

from kbcore.errors import ConfigError
from kbserver import logs

FACT = {"predicate": "likes", "args": ["ann", "a-word-of-a-fact"]}
SECRET = "a-very-secret-value"


@pytest.fixture
def exporting(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """The log records of this process go to the collector."""
    for name, value in collector.settings(OTEL_LOGS_EXPORTER="otlp").items():
        monkeypatch.setenv(name, value)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.DEBUG)
    environ = collector.settings(OTEL_LOGS_EXPORTER="otlp")
    stop = logs.export(environ, lambda call: call(), "3", (SECRET,))
    assert stop is not None
    yield collector
    stop(60)
    logging.getLogger().setLevel(level)


def received(collector: Collector, body: str) -> ReceivedLog:
    collector.wait(lambda each: [log for log in each.logs if log.body == body])
    (received_log,) = (log for log in collector.logs if log.body == body)
    return received_log


def test_a_record_arrives_with_its_fields(exporting: Collector) -> None:
    log = logging.getLogger("kbserver.something")
    fields = {"count": 3, "ratio": 0.5, "is": True, "names": ["a", "b"], "none": None}
    log.warning("it happened %d times", 2, extra={"fields": fields})
    received_log = received(exporting, "it happened 2 times")
    assert (received_log.logger, received_log.severity) == ("kbserver.something", "WARN")
    assert received_log.attributes == {"count": 3, "ratio": 0.5, "is": True, "names": "['a', 'b']"}
    assert received_log.resource["service.name"] == "kbcore"
    assert received_log.resource["kbcore.worker"] == "3"
    assert (received_log.trace, received_log.span) == ("", "")
    assert received_log.time > 1_600_000_000_000_000_000


def test_a_record_in_a_span_has_its_ids(
    exporting: Collector, served: Served, traced: Collector
) -> None:
    served.client.post("/tell", FACT)
    received_log = received(exporting, "request")
    span = exporting.span("POST /tell")
    assert (received_log.trace, received_log.span) == (span.trace, span.id)
    assert received_log.attributes["traceId"] == span.trace
    assert received_log.attributes["path"] == "/tell"
    assert b"a-word-of-a-fact" not in b"".join(exporting.raw)


def test_secrets_texts_and_messages_of_exceptions_stay_here(exporting: Collector) -> None:
    log = logging.getLogger("kbserver.something")
    try:
        raise ValueError(FACT["args"][1])
    except ValueError:
        fields = {"token": "kb-1", "url": f"http://u:{SECRET}@h/", "other": SECRET}
        log.exception("failed with %s and Bearer abcdefgh", SECRET, extra={"fields": fields})
    log.debug("a-word-of-a-goal")
    logging.getLogger("urllib3.connectionpool").warning("a-word-of-the-export")
    log.info("the last one")
    received_log = received(exporting, "failed with (not shown) and Bearer (not shown)")
    assert received_log.attributes["exception.type"] == "ValueError"
    assert "test_logs.py" in received_log.attributes["exception.stacktrace"]
    received(exporting, "the last one")
    everything = b"".join(exporting.raw)
    for text in (SECRET, "kb-1", "a-word-of-a-fact", "a-word-of-a-goal", "a-word-of-the-export"):
        assert text.encode() not in everything, text


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_LOGS_EXPORTER": ""},
        {"OTEL_LOGS_EXPORTER": "none"},
        {"OTEL_LOGS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"},
    ],
)
def test_without_the_variable_nothing_is_sent(environ: dict[str, str]) -> None:
    handlers = list(logging.getLogger().handlers)
    assert logs.export(environ, lambda call: call(), "") is None
    assert logging.getLogger().handlers == handlers


def test_an_unknown_exporter_is_refused() -> None:
    with pytest.raises(ConfigError, match="no exporter of logs"):
        logs.export({"OTEL_LOGS_EXPORTER": "nowhere"}, lambda call: call(), "")


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=f"opentelemetry.{name}")

    monkeypatch.setattr(logs.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match="kbcore\\[otel\\]"):
        logs.export({"OTEL_LOGS_EXPORTER": "otlp"}, lambda call: call(), "")


def test_a_server_sends_its_log_until_its_end(tmp_path: Path, collector: Collector) -> None:
    settings = collector.settings(OTEL_LOGS_EXPORTER="otlp", LOG_LEVEL="INFO")
    with Server(tmp_path, log=tmp_path / "log", **settings) as server:
        assert server.post("/tell", FACT)[0] == 200
        received_log = received(collector, "request")
        assert (received_log.trace, received_log.span) == (
            collector.span("POST /tell").trace,
            collector.span("POST /tell").id,
        )
        assert server.stop() == 0
    assert {"started", "stopping"} <= {log.body for log in collector.logs}


def test_a_collector_that_hangs_holds_up_nothing(tmp_path: Path, collector: Collector) -> None:
    collector.hangs.set()
    settings = collector.settings(
        OTEL_TRACES_EXPORTER="none",
        OTEL_LOGS_EXPORTER="otlp",
        OTEL_EXPORTER_OTLP_TIMEOUT="3600",
        OTEL_BLRP_MAX_QUEUE_SIZE="20",
        OTEL_BLRP_MAX_EXPORT_BATCH_SIZE="10",
        LOG_LEVEL="INFO",
        SHUTDOWN_TIMEOUT_MS="200",
    )
    with Server(tmp_path / "kb", log=tmp_path / "log", **settings) as server:
        collector.wait(lambda received: received.requests == 1)
        for _ in range(50):
            assert server.post("/tell", FACT)[0] == 200
        assert server.stop() == 0
    assert not collector.go_on.is_set()
