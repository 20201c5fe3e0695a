"""Log records sent to a collector of OpenTelemetry: OTEL_LOGS_EXPORTER.

Records below INFO are not sent, because only those may have texts of goals.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

from kbcore import __version__
from kbcore.tracing.otel import OffloadedExporter, RecordedSpan, new_exporter, resource_of
from kbcore.tracing.spans import CURRENT, Value

Read = Callable[[logging.LogRecord], tuple[str, Mapping[str, Value]]]
"""Returns the message and the fields of a record, without secrets."""

_SEVERITIES = (
    (logging.ERROR, SeverityNumber.ERROR, "ERROR"),
    (logging.WARNING, SeverityNumber.WARN, "WARN"),
    (logging.INFO, SeverityNumber.INFO, "INFO"),
)

_OF_EXPORTS = frozenset(("opentelemetry", "requests", "urllib3"))
"""Loggers of the export itself: each of their records would cause another export."""


class OtelHandler(logging.Handler):
    """Sends log records with the ids of the current span. What does not fit into the queue is
    dropped.
    """

    def __init__(self, provider: LoggerProvider, read: Read) -> None:
        super().__init__(logging.INFO)
        self._provider = provider
        self._read = read

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; what is wrong with it is reported as by all handlers."""
        if record.name.partition(".")[0] in _OF_EXPORTS:
            return
        try:
            message, fields = self._read(record)
            severity, text = next(
                (number, name) for level, number, name in _SEVERITIES if record.levelno >= level
            )
            span = CURRENT.get()
            context = span.context if isinstance(span, RecordedSpan) else None
            self._provider.get_logger(record.name, __version__).emit(
                timestamp=int(record.created * 1e9),
                context=Context() if context is None else context,
                severity_number=severity,
                severity_text=text,
                body=message,
                attributes={**fields, **_exception(record)},
            )
        except Exception:  # noqa: BLE001 - `logging` wants this, so that a log line breaks nothing
            self.handleError(record)


def configure(
    environ: Mapping[str, str],
    offload: Callable[[Callable[[], Any]], Any],
    instance: str,
    read: Read,
) -> Callable[[float], None]:
    """Send the records of all loggers as the `OTEL_*` variables describe.

    Return the function that ends this. Raises ConfigError for an exporter that does not exist.
    """
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    provider = LoggerProvider(resource=resource_of(environ, instance), shutdown_on_exit=False)
    for name in environ.get("OTEL_LOGS_EXPORTER", "").split(","):
        inner = new_exporter("logs", environ, name.strip())
        exporter: Any = OffloadedExporter(inner, offload, name.strip(), "logs")
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    handler = OtelHandler(provider, read)
    logging.getLogger().addHandler(handler)

    def stop(seconds: float) -> None:
        logging.getLogger().removeHandler(handler)
        # In a thread, because an exporter may take longer than there is time.
        ending = threading.Thread(target=provider.shutdown, name="kbcore-logs-end", daemon=True)
        ending.start()
        ending.join(max(seconds, 0))

    return stop


def _exception(record: logging.LogRecord) -> dict[str, Value]:
    """Return the class and the lines of code of an exception; its message may have any text."""
    if not record.exc_info or record.exc_info[0] is None:
        return {}
    return {
        "exception.type": record.exc_info[0].__name__,
        "exception.stacktrace": "".join(traceback.format_tb(record.exc_info[2])),
    }
