"""Spans: the one place that code asks when it traces its work.

`tracer` is None while tracing is off; a caller then does nothing and allocates nothing. Otherwise
it is the adapter in `kbcore.tracing.otel`, the only module that imports OpenTelemetry, which is
loaded by name because it is an optional dependency.

A span without the consent of the operator (`shows_content`) has counts, names of predicates and
durations, and no constant, text or id of a fact.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol

Value = str | bool | int | float | Sequence[str] | Sequence[int]

INTERNAL, SERVER, CLIENT, PRODUCER = "INTERNAL", "SERVER", "CLIENT", "PRODUCER"
"""The kinds of spans, by their names in OpenTelemetry."""

MAX_TEXT_CHARS = 200
"""Longer names and texts are cut: a name of a predicate comes from a client."""


class TraceSpan(Protocol):
    """A span that has begun. As a context manager it ends with its block, which must not outlive
    the caller: spans that begin inside are its children.
    """

    @property
    def is_recorded(self) -> bool:
        """False if the trace is not sampled: attributes need not be computed."""

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""

    def rename(self, name: str) -> None:
        """Set the name, where it is known only later."""

    def fail(self, error: BaseException | str) -> None:
        """Mark the span as failed, with the class of the error; its message may quote a fact."""

    def end(self) -> None:
        """End the span, and make the one around it the current one again."""

    def __enter__(self) -> TraceSpan: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Tracer(Protocol):
    """Begins spans. No method raises because of an exporter, and none waits for one."""

    @property
    def shows_content(self) -> bool:
        """True if the operator wants texts of facts, goals and prompts in spans."""

    def begin(
        self,
        name: str,
        kind: str = INTERNAL,
        attributes: Mapping[str, Value] | None = None,
        *,
        causes: Sequence[object] = (),
    ) -> TraceSpan:
        """Begin a span below the current one. `causes` are results of `cause`, to be linked."""

    def begin_request(self, environ: Mapping[str, Any]) -> TraceSpan:
        """Begin the span of a WSGI request, below that of its client if the client has one."""

    def begin_remote(
        self,
        name: str,
        kind: str,
        traceparent: str | None,
        tracestate: str | None = None,
        attributes: Mapping[str, Value] | None = None,
    ) -> TraceSpan:
        """Begin a span below that of another process (W3C Trace Context), with a link to the
        current one if there is one; without a usable `traceparent` as `begin` does.
        """

    def add(
        self,
        name: str,
        begun_ns: int,
        ended_ns: int,
        attributes: Mapping[str, Value] | None = None,
        *,
        error: BaseException | None = None,
    ) -> None:
        """Add a span of the past below the current one, with times in epoch nanoseconds."""

    def headers(self) -> dict[str, str]:
        """Return the headers that continue the current trace in another process."""

    def trace_id(self) -> str | None:
        """Return the id of the current trace if it is recorded."""

    def cause(self) -> object | None:
        """Return what later spans can be linked to: the current span, if it is recorded."""


class UnrecordedSpan:
    """A span that is not sampled: the whole trace, or one inside of such a trace."""

    __slots__ = ()

    is_recorded = False

    def set(self, name: str, value: Value) -> None:
        """Do nothing."""

    def rename(self, name: str) -> None:
        """Do nothing."""

    def fail(self, error: BaseException | str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing: the current span stays as it is."""

    def __enter__(self) -> TraceSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class _Dropped(UnrecordedSpan):
    """A trace that began in this process and is not sampled; its id is drawn when it is needed."""

    __slots__ = ()

    def end(self) -> None:
        """Go back to no span: one like this is the outermost."""
        CURRENT.set(None)


INSIDE = UnrecordedSpan()
"""Any span inside of a trace that is not sampled."""

DROPPED = _Dropped()
"""Any trace that began here and is not sampled: one object, because most requests have one."""

CURRENT: ContextVar[TraceSpan | None] = ContextVar("kbcore-span", default=None)
"""The span that work belongs to; a thread that goes on with the work of another sets it."""

tracer: Tracer | None = None
"""The tracer of this process, None while tracing is off."""

_OFF: AbstractContextManager[None] = nullcontext()
_NO_HEADERS: dict[str, str] = {}


def span(
    name: str, kind: str = INTERNAL, attributes: Mapping[str, Value] | None = None
) -> AbstractContextManager[TraceSpan | None]:
    """Return a block that is a span, which it gets if it is recorded, else None."""
    return _OFF if tracer is None else _Recorded(tracer.begin(name, kind, attributes))


class _Recorded:
    """A block whose span is None where it is not recorded."""

    __slots__ = ("_span",)

    def __init__(self, span: TraceSpan) -> None:
        self._span = span

    def __enter__(self) -> TraceSpan | None:
        return self._span if self._span.is_recorded else None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._span.__exit__(kind, error, trace)


def trace_headers() -> dict[str, str]:
    """Return the headers that continue the current trace in another process."""
    return _NO_HEADERS if tracer is None else tracer.headers()


def shortened(text: str) -> str:
    """Return a text that is short enough for an attribute."""
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 3] + "..."


def use_tracer(new: Tracer | None) -> None:
    """Trace with `new` from now on; None turns tracing off."""
    global tracer
    tracer = new


def turn_on(
    environ: Mapping[str, str], offload: Callable[[Callable[[], Any]], Any], instance: str
) -> Callable[[float], None] | None:
    """Trace as the `OTEL_*` variables say, for a process that has no provider of its own.

    `offload` runs an export outside of the event loop. `instance` tells the processes of a server
    apart. Return the function that sends what is left, within a number of seconds, and ends
    tracing; None if the variables name no exporter or the extra `otel` is not installed.
    """
    if not is_wanted(environ):
        return None
    adapter = _adapter()
    if adapter is None:
        return None
    stop: Callable[[float], None] = adapter.configure(environ, offload, instance)
    return stop


def join_program(environ: Mapping[str, str]) -> None:
    """Use the tracer provider of the program that this process runs, if it has set one."""
    if tracer is None and "opentelemetry.sdk.trace" in sys.modules:
        adapter = _adapter()
        if adapter is not None:
            use_tracer(adapter.of_program(environ))


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return True if the variables of OpenTelemetry name an exporter of traces."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    return bool(
        exporter
        or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    )


def _adapter() -> Any:
    """Return the module that knows OpenTelemetry; None if the extra is not installed."""
    try:
        return importlib.import_module("kbcore.tracing.otel")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        return None
