"""A collector of OpenTelemetry: a local HTTP server that takes OTLP in protobuf."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

WAIT_S = 60


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it was received; ids are in hexadecimal digits, `links` are ids of spans."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: tuple[str, ...]
    failed: bool
    begun: int
    ended: int


@dataclass(frozen=True)
class ReceivedLog:
    """A log record as it was received; ids are in hexadecimal digits, empty without a span."""

    logger: str
    severity: str
    body: str
    trace: str
    span: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    time: int


@dataclass
class Collector:
    """The spans that a collector has received; `raw` are the bodies, decompressed."""

    url: str = ""
    raw: list[bytes] = field(default_factory=list)
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    logs: list[ReceivedLog] = field(default_factory=list)
    requests: int = 0
    hangs: threading.Event = field(default_factory=threading.Event)
    """Set once a request is to wait until `go_on` is set."""
    go_on: threading.Event = field(default_factory=threading.Event)
    status: int = 200
    changed: threading.Condition = field(default_factory=threading.Condition)

    def settings(self, **more: str) -> dict[str, str]:
        """The variables with which a process exports to this collector soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "20",
            "OTEL_BLRP_SCHEDULE_DELAY": "20",
            **more,
        }

    def wait(self, condition: Callable[[Collector], Any]) -> Any:
        """Wait until a condition holds, and return its value."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), WAIT_S), self.names()
            return condition(self)

    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def span(self, name: str) -> ReceivedSpan:
        """Wait for the only span of this name."""
        self.wait(lambda collector: collector.named(name))
        (span,) = self.named(name)
        return span

    def children(self, span: ReceivedSpan) -> list[ReceivedSpan]:
        return sorted((s for s in self.spans if s.parent == span.id), key=lambda s: s.begun)

    def tree(self, root: ReceivedSpan) -> list[Any]:
        """The names of a span and of those below it, as nested lists."""
        return [root.name, *(self.tree(child) for child in self.children(root))]

    def take(self, path: str, body: bytes) -> bytes:
        """Keep what was received; return the answer."""
        with self.changed:
            self.raw.append(body)
            if path == "/v1/traces":
                self.spans += _spans(ExportTraceServiceRequest.FromString(body))
                answer: Any = ExportTraceServiceResponse()
            elif path == "/v1/logs":
                self.logs += _logs(ExportLogsServiceRequest.FromString(body))
                answer = ExportLogsServiceResponse()
            else:
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scope in resource.scope_metrics:
                        self.metrics.update({metric.name: metric for metric in scope.metrics})
                answer = ExportMetricsServiceResponse()
            self.changed.notify_all()
        content: bytes = answer.SerializeToString()
        return content


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with collector.changed:
                collector.requests += 1
                collector.changed.notify_all()
            if collector.hangs.is_set():
                collector.go_on.wait(WAIT_S)
            answer = collector.take(self.path, body) if collector.status == 200 else b""
            self.send_response(collector.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def handle(self) -> None:
            with suppress(OSError):  # the process was ended
                super().handle()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        collector.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _spans(request: Any) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        of_resource = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    span.name,
                    OtlpSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    _attributes(span.attributes),
                    of_resource,
                    tuple(link.span_id.hex() for link in span.links),
                    span.status.code == 2,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )


def _logs(request: Any) -> Iterator[ReceivedLog]:
    for resource in request.resource_logs:
        of_resource = _attributes(resource.resource.attributes)
        for scope in resource.scope_logs:
            for record in scope.log_records:
                yield ReceivedLog(
                    scope.scope.name,
                    record.severity_text,
                    record.body.string_value,
                    record.trace_id.hex(),
                    record.span_id.hex(),
                    _attributes(record.attributes),
                    of_resource,
                    record.time_unix_nano,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
