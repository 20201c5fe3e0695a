"""The adapter of spans to OpenTelemetry, which no other package imports.

The conventions for names and attributes are those of version 1.41.1, see
`docs/operations/monitoring.md`.

A request that is not sampled must cost next to nothing. The sampler of most settings takes the
traces whose id is below a bound, so chance decides here first, and only for a trace in the sample
a span is begun, with an id below the bound (`_DrawnIds`). The spans inside of a trace that is not
sampled are not begun at all.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from types import TracebackType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kbcore import __version__
from kbcore.errors import ConfigError
from kbcore.tracing import spans
from kbcore.tracing.spans import (
    CURRENT,
    DROPPED,
    INSIDE,
    INTERNAL,
    SERVER,
    UnrecordedSpan,
    Value,
    shortened,
    use_tracer,
)

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.1"

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable of the conventions that allows texts in spans."""

_SHOWS_CONTENT = frozenset(("true", "1", "span_only", "span_and_event"))

_KINDS = {kind.name: kind for kind in SpanKind}
_PROPAGATOR = TraceContextTextMapPropagator()
_ID_LIMIT = float(TraceIdRatioBased.TRACE_ID_LIMIT + 1)
_chance = random.random  # of the module, which is seeded again in a fork

_log = logging.getLogger("kbcore.tracing")


class RecordedSpan:
    """A span that is recorded, and the current one until it ends."""

    __slots__ = ("_outer", "_span", "_token", "context")

    is_recorded = True

    def __init__(self, span: trace.Span, context: Context | None) -> None:
        self._span = span
        self.context = trace.set_span_in_context(span, context)
        self._outer = CURRENT.get()
        self._token = contexts.attach(self.context)
        CURRENT.set(self)

    @property
    def span_context(self) -> SpanContext:
        """The ids of the span."""
        return self._span.get_span_context()

    def set(self, name: str, value: Value) -> None:
        """Set an attribute; a long text is cut unless it is content, which the operator wants."""
        self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Set the name."""
        self._span.update_name(name)

    def fail(self, error: BaseException | str) -> None:
        """Mark the span as failed."""
        self._span.set_attribute("error.type", _error_type(error))
        self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        """End the span, and make the one around it the current one again."""
        self._span.end()
        contexts.detach(self._token)
        CURRENT.set(self._outer)

    def __enter__(self) -> RecordedSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.fail(error)
        self.end()


class ForeignSpan(UnrecordedSpan):
    """The first span in this process of a trace of another one, or of a host, that is not sampled.

    It remembers the trace for further processes.
    """

    __slots__ = ("_outer", "trace_id", "trace_state")

    def __init__(self, trace_id: int, trace_state: str) -> None:
        self.trace_id = trace_id
        self.trace_state = trace_state
        self._outer = CURRENT.get()
        CURRENT.set(self)

    def end(self) -> None:
        """Make the span around it the current one again."""
        CURRENT.set(self._outer)


class _DrawnIds(RandomIdGenerator):
    """Gives the next trace of a thread the id that was drawn for it."""

    def __init__(self) -> None:
        self._drawn = threading.local()

    def use(self, trace_id: int) -> None:
        """Give the next trace of this thread this id."""
        self._drawn.trace_id = trace_id

    def generate_trace_id(self) -> int:
        """Return the id that was drawn, or a new one."""
        drawn: int = getattr(self._drawn, "trace_id", 0)
        self._drawn.trace_id = 0
        return drawn or super().generate_trace_id()


class OtelTracer:
    """Begins spans of one provider.

    `is_hosted`: the provider is that of a program, whose current span is the parent of ours. `ids`
    and `sampler` are those of a provider that was made here.
    """

    def __init__(
        self,
        tracer: trace.Tracer,
        *,
        is_hosted: bool,
        shows_content: bool,
        ids: _DrawnIds | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        self._tracer = tracer
        self._is_hosted = is_hosted
        self.shows_content = shows_content
        self._ids = ids
        self._bound = None if sampler is None else _bound_of(sampler)
        self._rate = None if self._bound is None else self._bound / _ID_LIMIT

    def begin(
        self,
        name: str,
        kind: str = INTERNAL,
        attributes: Mapping[str, Value] | None = None,
        *,
        causes: Sequence[object] = (),
    ) -> spans.TraceSpan:
        """Begin a span below the current one."""
        outer = CURRENT.get()
        if outer is None:
            if self._is_hosted:
                return self._begun(name, kind, attributes, causes, None)
            return self._root(name, kind, attributes, causes)
        if not outer.is_recorded:
            return INSIDE
        # A host may have begun a span of its own since.
        parent = outer.context if isinstance(outer, RecordedSpan) and not self._is_hosted else None
        return self._begun(name, kind, attributes, causes, parent)

    def begin_request(self, environ: Mapping[str, Any]) -> spans.TraceSpan:
        """Begin the span of a WSGI request; most are not sampled, and end here."""
        rate = self._rate
        if rate is not None and "HTTP_TRACEPARENT" not in environ and CURRENT.get() is None:
            if _chance() >= rate:
                CURRENT.set(DROPPED)
                return DROPPED
            self._draw()
            return self._begun("HTTP", SERVER, None, (), Context())
        return self.begin_remote(
            "HTTP", SERVER, environ.get("HTTP_TRACEPARENT"), environ.get("HTTP_TRACESTATE")
        )

    def begin_remote(
        self,
        name: str,
        kind: str,
        traceparent: str | None,
        tracestate: str | None = None,
        attributes: Mapping[str, Value] | None = None,
    ) -> spans.TraceSpan:
        """Begin a span below that of another process."""
        if traceparent is None:
            return self.begin(name, kind, attributes)
        outer = CURRENT.get()
        if outer is None and self._is_hosted and _is_in_span():
            return self.begin(name, kind, attributes)  # the host has read the same header
        carrier = {"traceparent": traceparent}
        if tracestate:
            carrier["tracestate"] = tracestate
        remote = _PROPAGATOR.extract(carrier, Context())
        if not trace.get_current_span(remote).get_span_context().is_valid:
            return self.begin(name, kind, attributes)
        causes = [outer.span_context] if isinstance(outer, RecordedSpan) else []
        return self._begun(name, kind, attributes, causes, remote)

    def add(
        self,
        name: str,
        begun_ns: int,
        ended_ns: int,
        attributes: Mapping[str, Value] | None = None,
        *,
        error: BaseException | None = None,
    ) -> None:
        """Add a span of the past below the current one."""
        outer = CURRENT.get()
        if not isinstance(outer, RecordedSpan):
            return
        span = self._tracer.start_span(
            name, outer.context, attributes=attributes, start_time=begun_ns
        )
        if error is not None:
            span.set_attribute("error.type", _error_type(error))
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended_ns)

    def headers(self) -> dict[str, str]:
        """Return `traceparent` and `tracestate` of the current trace."""
        outer = CURRENT.get()
        if isinstance(outer, ForeignSpan):
            return _headers(outer.trace_id, _bits(64) or 1, 0, outer.trace_state)
        if outer is DROPPED:
            return _headers(_bits(128) or 1, _bits(64) or 1, 0, "")
        if isinstance(outer, RecordedSpan):
            own = outer.span_context
        elif self._is_hosted and _is_in_span():
            own = trace.get_current_span().get_span_context()
        else:
            return {}
        return _headers(own.trace_id, own.span_id, own.trace_flags, own.trace_state.to_header())

    def trace_id(self) -> str | None:
        """Return the id of the current trace if it is recorded."""
        outer = CURRENT.get()
        if not isinstance(outer, RecordedSpan):
            return None
        return trace.format_trace_id(outer.span_context.trace_id)

    def cause(self) -> object | None:
        """Return the ids of the current span, if it is recorded."""
        outer = CURRENT.get()
        return outer.span_context if isinstance(outer, RecordedSpan) else None

    def _root(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Value] | None,
        causes: Sequence[object],
    ) -> spans.TraceSpan:
        """Begin a trace, if the sampler takes it."""
        if self._rate is not None:
            if _chance() >= self._rate:
                CURRENT.set(DROPPED)
                return DROPPED
            self._draw()
        return self._begun(name, kind, attributes, causes, Context())

    def _draw(self) -> None:
        """Draw the id of the next trace among those that the sampler takes."""
        if self._ids is not None and self._bound:
            low = random.randrange(self._bound)  # noqa: S311 - no secret  # nosec B311
            self._ids.use(_bits(64) << 64 | low)

    def _begun(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Value] | None,
        causes: Sequence[object],
        context: Context | None,
    ) -> spans.TraceSpan:
        links = [Link(each) for each in causes if isinstance(each, SpanContext)]
        span = self._tracer.start_span(name, context, _KINDS[kind], attributes, links)
        if span.is_recording():
            return RecordedSpan(span, context)
        own = span.get_span_context()
        return ForeignSpan(own.trace_id, own.trace_state.to_header())


class OffloadedExporter:
    """Exports "traces" or "logs" outside of the event loop, and says once that an export failed.

    What cannot be exported is dropped: the queue before it is bounded.
    """

    def __init__(
        self,
        exporter: Any,
        offload: Callable[[Callable[[], Any]], Any],
        name: str,
        signal: str,
    ) -> None:
        self._exporter = exporter
        self._offload = offload
        self._name = name
        self._signal = signal
        self._is_failing = False

    def export(self, batch: Sequence[Any]) -> Any:
        """Export some spans or log records."""
        try:
            result = self._offload(lambda: self._exporter.export(batch))
        except Exception as error:  # noqa: BLE001 - an exporter must not end the thread that calls it
            self._note(type(error).__name__)
            return SpanExportResult.FAILURE
        self._note("" if result.name == SpanExportResult.SUCCESS.name else "no success")
        return result

    def _note(self, problem: str) -> None:
        if problem and not self._is_failing:
            _log.warning(
                "%s cannot be exported (%s): %s are dropped until an export succeeds",
                self._signal,
                problem,
                {"traces": "spans", "logs": "lines"}[self._signal],
                extra={"fields": {"exporter": self._name}},
            )
        elif self._is_failing and not problem:
            _log.info(
                "%s are exported again", self._signal, extra={"fields": {"exporter": self._name}}
            )
        self._is_failing = bool(problem)

    def shutdown(self) -> None:
        """End the exporter, which makes an export that waits give up."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return True: nothing waits here."""
        return True


def configure(
    environ: Mapping[str, str], offload: Callable[[Callable[[], Any]], Any], instance: str
) -> Callable[[float], None]:
    """Trace with a provider of this process, which the `OTEL_*` variables describe.

    Return the function that ends tracing. Raises ConfigError for an exporter that does not exist.
    """
    # Their lines come with every span and every export; `OffloadedExporter` writes one instead.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    ids = _DrawnIds()
    provider = TracerProvider(resource=resource_of(environ, instance), id_generator=ids)
    for name in (environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        inner = new_exporter("traces", environ, name.strip())
        exporter: Any = OffloadedExporter(inner, offload, name.strip(), "traces")
        provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = OtelTracer(
        provider.get_tracer("kbcore", __version__, SCHEMA_URL),
        is_hosted=False,
        shows_content=_shows_content(environ),
        ids=ids,
        sampler=provider.sampler,
    )
    use_tracer(tracer)

    def stop(seconds: float) -> None:
        use_tracer(None)
        # In a thread, because an exporter may take longer than there is time.
        ending = threading.Thread(target=provider.shutdown, name="kbcore-traces-end", daemon=True)
        ending.start()
        ending.join(max(seconds, 0))

    return stop


def of_program(environ: Mapping[str, str]) -> OtelTracer | None:
    """Return a tracer of the provider that the program has set, None if it has not set any."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    tracer = trace.get_tracer("kbcore", __version__, schema_url=SCHEMA_URL)
    return OtelTracer(tracer, is_hosted=True, shows_content=_shows_content(environ))


def new_exporter(signal: str, environ: Mapping[str, str], name: str = "otlp") -> Any:
    """Return a new exporter of "traces", "metrics" or "logs"; `otlp` is that of the protocol in the
    variables. Raises ConfigError if none has this name.
    """
    if name == "otlp":
        protocol = (
            environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
            or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            or "http/protobuf"
        )
        name = "otlp_proto_grpc" if protocol.strip() == "grpc" else "otlp_proto_http"
    for point in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return point.load()()
    raise ConfigError(f"no exporter of {signal} is installed under the name {name!r}")


@cache
def _instance() -> str:
    return str(uuid.uuid4())


def resource_of(environ: Mapping[str, str], instance: str = "") -> Resource:
    """Return what describes this process in its traces and metrics."""
    own = {"service.version": __version__, "service.instance.id": _instance()}
    if instance:
        own["kbcore.worker"] = instance
    own_name = environ.get("OTEL_SERVICE_NAME") or (
        SERVICE_NAME + "=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    )
    if not own_name:
        own[SERVICE_NAME] = "kbcore"
    return Resource.create(own)


def _bits(number: int) -> int:
    """Return random bits of an id: it is no secret."""
    return random.getrandbits(number)  # nosec B311


def _bound_of(sampler: Sampler) -> int | None:
    """Return the bound of the trace ids that a sampler takes, None if it decides otherwise.

    The sampler below a parent-based one has no public name; without it each trace asks the sampler.
    """
    root = getattr(sampler, "_root", None) if isinstance(sampler, ParentBased) else sampler
    return root.bound if type(root) is TraceIdRatioBased else None


def _shows_content(environ: Mapping[str, str]) -> bool:
    return environ.get(CONTENT_VARIABLE, "").strip().lower() in _SHOWS_CONTENT


def _is_in_span() -> bool:
    return trace.get_current_span().get_span_context().is_valid


def _headers(trace_id: int, span_id: int, flags: int, state: str) -> dict[str, str]:
    headers = {"traceparent": f"00-{trace_id:032x}-{span_id:016x}-{flags & TraceFlags.SAMPLED:02x}"}
    if state:
        headers["tracestate"] = state
    return headers


def _error_type(error: BaseException | str) -> str:
    return shortened(error) if isinstance(error, str) else type(error).__name__
