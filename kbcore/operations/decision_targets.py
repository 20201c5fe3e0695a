"""Targets of the decision log: a file, a StatsD daemon, and a webhook."""

from __future__ import annotations

import os
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Protocol

import orjson

from kbcore.clock import Clock
from kbcore.config.parsers import WEBHOOK
from kbcore.errors import ConfigError, InvalidInput
from kbcore.operations.subscriptions.deliveries import Circuit
from kbcore.plug.webhooks import DeliveryOutcome, WebhookMessage, WebhookSender
from kbcore.scheduling import Offload
from kbcore.state.subscriptions import Webhook

FILE, STATSD = "file:", "statsd:"
"""Beginnings of the values of DECISION_LOG, beside WEBHOOK."""

STATSD_COUNTER = "svc_decisions_total"

MESSAGE_KIND = "decisions.made"

MAX_MESSAGE_BYTES = 1 << 20
"""Maximum size of the lines in one message to a webhook; a longer line is alone in a message."""


class NotWritten(Exception):
    """Lines that could not be written, and why. `is_kept` is True if they are to be written again,
    in the same order, by the next call.
    """

    def __init__(self, reason: str, *, is_kept: bool = False) -> None:
        super().__init__(reason)
        self.is_kept = is_kept


class DecisionTarget(Protocol):
    """Writes decisions. `needs_lines` is False if `write` takes outcomes in place of lines: "true",
    "false" or "error".
    """

    needs_lines: bool

    def write(self, lines: Sequence[bytes]) -> int:
        """Write the first of some lines, and return how many; raises NotWritten."""

    def close(self) -> None:
        """Release the resources."""


class FileTarget:
    """Appends to a file, which several processes may write to. Raises ConfigError for an unusable
    path.
    """

    needs_lines = True

    def __init__(self, path: str, offload: Offload) -> None:
        self._path = path
        self._offload = offload
        self._file: int | None = None
        self._is_torn = False
        try:
            self._open()
        except OSError as error:
            raise ConfigError(f"DECISION_LOG=file:{path}: {error.strerror}") from error

    def write(self, lines: Sequence[bytes]) -> int:
        """Append all lines."""
        try:
            self._offload(lambda: self._append(b"".join(lines)))
        except OSError as error:
            raise NotWritten(str(error.strerror)) from error
        return len(lines)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, data: bytes) -> None:
        self._reopen()
        file = self._open() if self._file is None else self._file
        data = b"\n" + data if self._is_torn else data
        while data:
            written = os.write(file, data)
            self._is_torn = not data[:written].endswith(b"\n")
            data = data[written:]

    def _reopen(self) -> None:
        """Close the file if another one, or none, has its name now."""
        if self._file is None:
            return
        opened = os.fstat(self._file)
        with suppress(FileNotFoundError):
            current = os.stat(self._path)
            if (current.st_ino, current.st_dev) == (opened.st_ino, opened.st_dev):
                return
        os.close(self._file)
        self._file, self._is_torn = None, False

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        return self._file


class StatsdTarget:
    """Sends the numbers of decisions by their outcome, as a tag in the DogStatsD format, by UDP.
    Raises ConfigError for a host that cannot be resolved; its name is resolved once.
    """

    needs_lines = False

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            entries = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        except OSError as error:
            raise ConfigError(f"DECISION_LOG=statsd:{address}: {error}") from error
        self._address = entries[0][4]
        self._socket = socket.socket(entries[0][0], socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def write(self, lines: Sequence[bytes]) -> int:
        """Send the counts of all outcomes in one packet."""
        counts = Counter(lines)
        packet = b"\n".join(
            b"%b:%d|c|#decision:%b" % (STATSD_COUNTER.encode(), counts[each], each)
            for each in sorted(counts)
        )
        try:
            self._socket.sendto(packet, self._address)
        except OSError as error:  # no daemon, or the socket is full: the counts are dropped
            raise NotWritten(error.strerror or type(error).__name__) from error
        return len(lines)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class WebhookTarget:
    """Sends lines in signed messages to an address that WEBHOOK_URLS allows; after a failure the
    same message is sent again, later each time. Raises ConfigError for another address.
    """

    needs_lines = True

    def __init__(
        self, url: str, sender: WebhookSender | None, clock: Clock, offload: Offload
    ) -> None:
        if sender is None:
            raise ConfigError("DECISION_LOG=webhook:URL needs WEBHOOK_URLS, which allows the URL")
        try:
            sender.check(url, "")
        except InvalidInput as error:
            sender.close()
            raise ConfigError(f"DECISION_LOG=webhook:URL: {error.message}") from error
        self._webhook = Webhook(url, "")
        self._sender = sender
        self._clock = clock
        self._offload = offload
        self._circuit = Circuit()
        self._unsent: tuple[WebhookMessage, int] | None = None

    def write(self, lines: Sequence[bytes]) -> int:
        """Send the first lines in one message, or the message again that failed."""
        if not self._circuit.admits(self._clock.monotonic()):
            raise NotWritten("the receiver failed before", is_kept=True)
        message, count = self._unsent or self._message(lines)
        url = self._webhook.url
        sent = self._offload(lambda: self._sender.send(url, "", message))
        if sent.outcome is DeliveryOutcome.DELIVERED:
            self._circuit.failures, self._unsent = 0, None
            return count
        self._unsent = message, count
        self._circuit.failed(self._clock.monotonic(), sent.retry_after)
        reason = sent.reason.replace(url, self._webhook.public_url)
        raise NotWritten(reason or sent.outcome.value, is_kept=True)

    def close(self) -> None:
        """Close idle connections."""
        self._sender.close()

    def _message(self, lines: Sequence[bytes]) -> tuple[WebhookMessage, int]:
        size = count = 0
        for line in lines:
            if count and size + len(line) > MAX_MESSAGE_BYTES:
                break
            size, count = size + len(line), count + 1
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, timezone.utc)
        decisions = b",".join(line[:-1] for line in lines[:count])
        body = b'{"type":"%b","timestamp":%b,"data":{"decisions":[%b]}}' % (
            MESSAGE_KIND.encode(),
            orjson.dumps(at.isoformat(timespec="milliseconds")),
            decisions,
        )
        return WebhookMessage(f"msg_{uuid.uuid4().hex}", body), count


def decision_target(
    value: str,
    clock: Clock,
    offload_disk: Offload,
    offload_wait: Offload,
    webhook_sender: Callable[[], WebhookSender | None],
) -> DecisionTarget:
    """Return the target that a value of DECISION_LOG names; raises ConfigError."""
    if value.startswith(FILE):
        return FileTarget(value.removeprefix(FILE), offload_disk)
    if value.startswith(STATSD):
        return StatsdTarget(value.removeprefix(STATSD))
    return WebhookTarget(value.removeprefix(WEBHOOK), webhook_sender(), clock, offload_wait)
