"""Log lines: one event per line, as text or JSON.

Lines are ASCII: line breaks, control characters and bidirectional marks of clients are escaped.
Only three headers of a request are logged: its id, tenant and trace; never its query or body.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, TextIO

import orjson

from kbcore.errors import ConfigError
from kbcore.operations.slow_log import REQUEST
from kbcore.tracing import spans
from kbplanner.syntax.diagnostics import printable
from kbserver.http.request_id import trace_id
from kbserver.security.redact import field, redactor

LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
}

_NAMES = {"WARNING": "WARN", "CRITICAL": "ERROR"}
_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")
_UNSAFE = re.compile(r"[^\x20-\x7e]")

MAX_PATH_CHARS = 256
"""Logged length of a path, in characters."""

WARNING_PREFIX = "WARNING: "
"""Beginning of a line of the start that is a warning."""

access = logging.getLogger("kbserver.access")


def configure(
    level: str,
    form: str,
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
    worker: int | None = None,
) -> None:
    """Write log records of `level` (DEBUG, INFO, WARN, ERROR) or higher to `stream`, as `text` or
    `json`.

    `secrets` are removed from all lines. `worker` is the number of this process, of several, which
    each line then has.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    kind = JsonFormatter if form == "json" else TextFormatter
    handler.setFormatter(kind(secrets, worker))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    logging.getLogger("kbserver.audit").setLevel(logging.INFO)  # at every level
    # httpx logs every request of a follower at INFO.
    logging.getLogger("httpx").setLevel(max(LEVELS[level], logging.WARNING))
    # The formatters do not use these fields, which cost time for every record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def export(
    environ: Mapping[str, str],
    offload: Callable[[Callable[[], Any]], Any],
    instance: str,
    secrets: Iterable[str] = (),
) -> Callable[[float], None] | None:
    """Send log records to a collector too, if OTEL_LOGS_EXPORTER names an exporter.

    Call it after `configure`. `offload` runs an export outside of the event loop, `instance` tells
    the processes of a server apart. Return the function that sends what is left, within a number
    of seconds, and ends this. Raises ConfigError if there is no such exporter.
    """
    exporter = environ.get("OTEL_LOGS_EXPORTER", "").strip().lower()
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if exporter in ("", "none") or is_disabled:
        return None
    try:
        adapter = importlib.import_module("kbcore.tracing.otel_logs")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise ConfigError(
            f"OTEL_LOGS_EXPORTER={exporter} needs the extra: pip install 'kbcore[otel]'"
        ) from error
    redacted = redactor(secrets)

    def read(record: logging.LogRecord) -> tuple[str, Mapping[str, Any]]:
        fields = {
            name: value if isinstance(value, (bool, int, float)) else redacted(str(value))
            for name, value in _fields(record, None).items()
            if value is not None
        }
        return redacted(record.getMessage()), fields

    stop: Callable[[float], None] = adapter.configure(environ, offload, instance, read)
    return stop


def announcer(form: str, secrets: Iterable[str] = ()) -> Callable[[str], None]:
    """Return the function that prints a line of the start on standard output, as `text` or `json`.

    Each line is flushed, so that a program that reads the address through a pipe gets it at once.
    """

    def announce(text: str) -> None:
        is_warning = text.startswith(WARNING_PREFIX)
        level = logging.WARNING if is_warning else logging.INFO
        if form == "json":
            text = start_line(level, text.removeprefix(WARNING_PREFIX), secrets)
        sys.stdout.write(f"{printable(text)}\n")
        sys.stdout.flush()

    return announce


def start_line(level: int, message: str, secrets: Iterable[str] = ()) -> str:
    """Return a message of the start as a JSON log line."""
    record = logging.LogRecord("kbserver.start", level, "", 0, message, None, None)
    return JsonFormatter(secrets).format(record)


def log_request(fields: Mapping[str, Any]) -> None:
    """Write the line of one request."""
    access.info("request", extra={"fields": fields})


def trace_field(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return the field with the trace id of a request, if its `traceparent` header has one."""
    trace_number = None if spans.tracer is None else spans.tracer.trace_id()
    trace_number = trace_number or trace_id(environ.get("HTTP_TRACEPARENT"))
    return {"traceId": trace_number} if trace_number else {}


def _when(record: logging.LogRecord) -> str:
    second, milliseconds = divmod(int(record.created * 1000), 1000)
    return f"{_second(second)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelname, record.levelname)


def _fields(record: logging.LogRecord, worker: int | None) -> Mapping[str, Any]:
    raw: Mapping[str, Any] = getattr(record, "fields", {})
    if worker is not None:
        raw = {**raw, "worker": worker}
    fields = {name: field(name, value) for name, value in raw.items()}
    if "path" in fields:
        fields["path"] = str(fields["path"])[:MAX_PATH_CHARS]
    if "id" not in fields and (number := REQUEST.get()):
        fields["id"] = number
    return fields


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    return (
        formatter.formatException(record.exc_info)
        if record.exc_info and record.exc_info[0]
        else None
    )


class _Formatter(logging.Formatter):
    """Base of the formatters: removes secrets, and adds the number of the worker, if any."""

    def __init__(self, secrets: Iterable[str] = (), worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker
        self._redacted: Callable[[str], str] = redactor(secrets)


class TextFormatter(_Formatter):
    """`2026-01-01T00:00:00.000Z INFO kbserver.access request method=POST path=/tell ...`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; line breaks and control characters are escaped."""
        parts = [_when(record), _level(record), record.name, _escaped(record.getMessage())]
        parts.extend(
            f"{name}={_value(value)}" for name, value in _fields(record, self._worker).items()
        )
        trace = _trace(self, record)
        if trace:
            parts.append(f"trace={_value(trace)}")
        return self._redacted(" ".join(parts))


class JsonFormatter(_Formatter):
    """One JSON object per line: time, level, logger, message, then the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": _when(record),
            "level": _level(record),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(_fields(record, self._worker))
        trace = _trace(self, record)
        if trace:
            line["trace"] = trace
        try:
            written = orjson.dumps(line, default=str).decode()
        except TypeError:
            written = orjson.dumps(
                {key: _escaped(str(value)) for key, value in line.items()}
            ).decode()
        if not (written.isascii() and written.isprintable()):
            written = _UNSAFE.sub(_json_escape, written)
        return self._redacted(written)


def _json_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


def _value(value: Any) -> str:
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(
        lambda match: match.group().encode("unicode_escape", "backslashreplace").decode(), text
    )
