"""Log lines: one event a line, as text or JSON, with nothing from outside able to break a line or a field."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, TextIO

import orjson

LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}

_NAMES = {"WARNING": "WARN", "CRITICAL": "ERROR"}
_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")
_UNSAFE = re.compile(r"[^\x20-\x7e]")

access = logging.getLogger("kbserver.access")


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send everything logged at `level` (DEBUG, INFO, WARN, ERROR) or over it to `stream`, as `text` or `json`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # looked up for every line, never shown


def log_request(fields: Mapping[str, Any]) -> None:
    """Write the line of one request."""
    access.info("request", extra={"fields": fields})


def _when(record: logging.LogRecord) -> str:
    second, milliseconds = divmod(int(record.created * 1000), 1000)
    return f"{_second(second)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelname, record.levelname)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else None


class TextFormatter(logging.Formatter):
    """`2026-01-01T00:00:00.000Z INFO kbserver.access request method=POST path=/tell ...`."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line of a record; line breaks and control characters are escaped."""
        parts = [_when(record), _level(record), record.name, _escaped(record.getMessage())]
        parts.extend(f"{name}={_value(value)}" for name, value in _fields(record).items())
        trace = _trace(self, record)
        if trace:
            parts.append(f"trace={_value(trace)}")
        return " ".join(parts)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line of a record."""
        line = {"time": _when(record), "level": _level(record), "logger": record.name, "message": record.getMessage()}
        line.update(_fields(record))
        trace = _trace(self, record)
        if trace:
            line["trace"] = trace
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:
            return orjson.dumps({key: _escaped(str(value)) for key, value in line.items()}).decode()


def _value(value: Any) -> str:
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape", "backslashreplace").decode(), text)
