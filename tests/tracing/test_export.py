"""Exports of real servers: several workers, an exporter that hangs or fails, no exporter."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.collector import Collector
from support.http import serve_in_memory
from support.servers import Server
from support.workers import SHARDS, tenants_of

from kbcore.errors import ConfigError
from kbcore.tracing import spans
from kbcore.tracing.spans import is_wanted, turn_on

FACT = {"predicate": "likes", "args": ["ann", "tea"]}


def test_two_workers_have_one_trace(tmp_path: Path, collector: Collector) -> None:
    settings = collector.settings(STORAGE_SHARDS=str(SHARDS))
    tenants = [tenants_of(0, 1)[0], tenants_of(1, 1)[0]]
    with Server(tmp_path / "data", "--workers", "2", **settings) as server:
        connection = server.connect()
        for tenant in tenants * 2:  # of one connection, so that some are forwarded
            assert server.post("/tell", FACT, connection, X_Tenant_ID=tenant)[0] == 200
        connection.close()
        forward = collector.wait(lambda received: received.named("forward"))[0]
        request = collector.wait(lambda received: received.children(forward))[0]
        assert request.name == "POST /tell"
        assert (request.trace, forward.parent) == (forward.trace, "")
        workers = {each.resource["kbcore.worker"] for each in (request, forward)}
        assert workers == {"0", "1"}
        instances = {each.resource["service.instance.id"] for each in (request, forward)}
        assert len(instances) == 2


def test_spans_of_concurrent_requests_do_not_mix(tmp_path: Path, collector: Collector) -> None:
    """Greenlets take turns while the log is synced, and share batches of it."""
    threads, each = 8, 12
    with Server(tmp_path, **collector.settings()) as server:

        def write(thread: int) -> None:
            connection = server.connect()
            for number in range(each):
                fact = {"predicate": "p", "args": [str(thread), str(number)]}
                assert server.post("/tell", fact, connection)[0] == 200
            connection.close()

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, range(threads)))
        count = threads * each
        collector.wait(lambda received: len(received.named("POST /tell")) == count)
        assert server.stop() == 0
    tree = ["POST /tell", ["commit", ["log append"], ["log sync"]]]
    requests = collector.named("POST /tell")
    assert [collector.tree(request) for request in requests] == [tree] * count
    assert len({request.trace for request in requests}) == count


def test_an_event_is_linked_to_the_write_that_caused_it(
    tmp_path: Path, collector: Collector
) -> None:
    with Server(tmp_path, **collector.settings()) as server:
        body = {"goal": "likes(?who, tea)"}
        goal = json.loads(server.post("/goals/subscribe", body)[1])["id"]
        connection = server.connect()
        connection.request("GET", f"/goals/{goal}/events", headers={"X-Tenant-ID": "t"})
        stream = connection.getresponse()
        assert stream.status == 200
        assert server.post("/tell", FACT)[0] == 200
        lines = iter(stream.readline, b"")
        assert any(line.startswith(b"event: changed") for line in lines)
        connection.close()
        event = collector.span("event")
        (link,) = event.links
        (commit,) = (each for each in collector.named("commit") if each.id == link)
        assert commit.parent == collector.span("POST /tell").id
        assert event.kind == "PRODUCER"


def test_a_collector_that_hangs_holds_up_neither_requests_nor_the_end(
    tmp_path: Path, collector: Collector
) -> None:
    """Nothing here could end by a timeout of the exporter: it would wait for an hour."""
    collector.hangs.set()
    settings = collector.settings(
        OTEL_EXPORTER_OTLP_TIMEOUT="3600",
        OTEL_BSP_MAX_QUEUE_SIZE="20",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="10",
        SHUTDOWN_TIMEOUT_MS="200",
    )
    with Server(tmp_path, **settings) as server:
        connection = server.connect()
        assert server.post("/tell", FACT, connection)[0] == 200
        collector.wait(lambda received: received.requests == 1)
        for _ in range(50):  # more spans than the queue has room for
            assert server.post("/tell", FACT, connection)[0] == 200
        assert (collector.requests, collector.spans) == (1, [])
        connection.close()
        assert server.stop() == 0
    assert not collector.go_on.is_set()


def test_the_end_sends_what_is_left(tmp_path: Path, collector: Collector) -> None:
    settings = collector.settings(OTEL_BSP_SCHEDULE_DELAY="3600000")
    with Server(tmp_path, **settings) as server:
        assert server.post("/tell", FACT)[0] == 200
        assert server.stop() == 0
    assert "POST /tell" in collector.names()


def test_a_failing_export_is_logged_once(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    for name, value in collector.settings().items():
        monkeypatch.setenv(name, value)
    caplog.set_level(logging.INFO)
    stop = turn_on(os.environ, lambda call: call(), "")
    assert stop is not None
    with serve_in_memory() as served:
        for number in range(1, 4):
            served.client.tell("p", str(number))
            collector.wait(lambda received, number=number: received.requests >= number)
        collector.status = 200
        served.client.tell("p", "last")
        collector.wait(lambda received: received.spans)
    stop(60)
    lines = [each.getMessage() for each in caplog.records if "export" in each.getMessage()]
    assert lines == [
        "traces cannot be exported (no success): spans are dropped until an export succeeds",
        "traces are exported again",
    ]


def test_a_trace_is_exported_whole_or_not_at_all(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    for name, value in collector.settings(**sampler).items():
        monkeypatch.setenv(name, value)
    stop = turn_on(os.environ, lambda call: call(), "")
    assert stop is not None
    with serve_in_memory() as served:
        for number in range(200):
            served.client.tell("p", str(number))
    stop(60)
    requests = collector.named("POST /tell")
    assert 50 < len(requests) < 150
    assert len(collector.named("log sync")) == len(requests)
    ids = {each.id for each in collector.spans}
    assert {each.parent for each in collector.spans} <= {"", *ids}


def test_what_is_not_sampled_is_passed_on_as_such(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
    for name, value in collector.settings(**sampler).items():
        monkeypatch.setenv(name, value)
    stop = turn_on(os.environ, lambda call: call(), "")
    assert stop is not None
    assert spans.tracer is not None
    with spans.tracer.begin("a"), spans.tracer.begin("b"):
        assert spans.trace_headers()["traceparent"].endswith("-00")
    assert spans.trace_headers() == {}
    stop(60)
    assert collector.spans == []


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
    ],
)
def test_when_traces_are_on(variables: dict[str, str], wanted: bool) -> None:
    assert is_wanted(variables) is wanted


def test_an_unknown_exporter_prevents_the_start() -> None:
    with pytest.raises(ConfigError, match="no exporter of traces is installed under the name 'x'"):
        turn_on({"OTEL_TRACES_EXPORTER": "x"}, lambda call: call(), "")
    assert spans.tracer is None


NOTHING_LOADED = """
import sys
import kbcore, kbserver.serve
with kbcore.open_kb() as kb:
    kb.tell("p(a)")
    list(kb.ask("p(?x)"))
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def run_program(source: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", source], env=environ, text=True, capture_output=True, check=True
    ).stdout


def test_nothing_is_loaded_without_the_variables() -> None:
    assert run_program(NOTHING_LOADED) == "[]\n"


EMBEDDED = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
import kbcore
with kbcore.open_kb() as kb:
    with trace.get_tracer("program").start_as_current_span("program"):
        kb.tell("p(a)")
        list(kb.ask("p(?x)"))
    list(kb.ask("p(?x)"))
names = {span.context.span_id: span.name for span in exporter.get_finished_spans()}
print(json.dumps([
    [span.name, names.get(span.parent.span_id) if span.parent else None]
    for span in exporter.get_finished_spans()
]))
"""


def test_an_embedded_knowledge_base_uses_the_provider_of_its_program() -> None:
    assert json.loads(run_program(EMBEDDED)) == [
        ["log append", "commit"],
        ["log sync", "commit"],
        ["commit", "program"],
        ["ask", "program"],
        ["program", None],
        ["ask", None],
    ]
