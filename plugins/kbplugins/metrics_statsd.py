"""Metrics sent to a StatsD daemon by UDP: `METRICS_SINKS=statsd`, `STATSD_ADDRESS`.

Counters are added up and gauges stored until the next second; durations are sent one by one. Labels
become tags in the DogStatsD format. Values that do not fit into the queue or the socket are
dropped, so no request waits for the daemon.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.metrics import Kind, MetricSpec
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import MetricsSink

SEND_INTERVAL_S = 1.0
"""Seconds between two sends."""

MAX_PACKET_BYTES = 1400
"""Maximum bytes of a datagram, which fits into an Ethernet frame."""

MAX_WAITING = 20_000
"""Maximum number of values waiting to be sent; the oldest are dropped."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_./{}<>-]")


class Statsd:
    """Sends the values since the last send, once a second."""

    pushes = True

    def __init__(self, address: tuple[str, int]) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._address = address
        self._waiting: deque[tuple[str, Kind, str, float]] = deque(maxlen=MAX_WAITING)
        self._mutex = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kbcore-statsd", daemon=True)
        self._thread.start()

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """Return a function that takes the values of a family with these labels."""
        pairs = zip(spec.labels, labels, strict=True)
        tags = ",".join(f"{name}:{_UNSAFE.sub('_', value)}" for name, value in pairs)
        name, kind, append = spec.name, spec.kind, self._waiting.append
        suffix = f"|#{tags}" if tags else ""
        if kind is Kind.HISTOGRAM and name.endswith("_seconds"):
            name, factor = name.removesuffix("_seconds") + "_ms", 1000.0
            return lambda value: append((name, kind, suffix, value * factor))
        return lambda value: append((name, kind, suffix, value))

    def expose(self) -> bytes | None:
        """Return None: there is nothing to fetch."""
        return None

    def send(self) -> int:
        """Send the waiting values; return the number of datagrams."""
        sent = 0
        with self._mutex:
            for packet in _packets(self._lines()):
                try:
                    self._socket.sendto(packet, self._address)
                    sent += 1
                except OSError:  # no daemon, or the socket is full: the values are dropped
                    continue
        return sent

    def close(self) -> None:
        """Send the last values and stop."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        self.send()
        self._socket.close()

    def _run(self) -> None:
        while not self._stop.wait(SEND_INTERVAL_S):
            self.send()

    def _lines(self) -> list[str]:
        counters: dict[tuple[str, str], float] = {}
        gauges: dict[tuple[str, str], float] = {}
        durations: list[str] = []
        for _ in range(len(self._waiting)):
            name, kind, suffix, value = self._waiting.popleft()
            if kind is Kind.COUNTER:
                counters[name, suffix] = counters.get((name, suffix), 0.0) + value
            elif kind is Kind.GAUGE:
                gauges[name, suffix] = value
            else:
                durations.append(
                    f"{name}:{value:.6g}|{'ms' if name.endswith('_ms') else 'h'}{suffix}"
                )
        lines = [
            f"{name}:{value:.15g}|c{suffix}" for (name, suffix), value in counters.items() if value
        ]
        for (name, suffix), value in gauges.items():
            if value < 0:  # StatsD takes a signed value for a change, so set 0 first
                lines.append(f"{name}:0|g{suffix}")
            lines.append(f"{name}:{value:.15g}|g{suffix}")
        return lines + durations


def _packets(lines: Sequence[str]) -> Iterator[bytes]:
    packet = b""
    for line in lines:
        more = line.encode()
        if packet and len(packet) + len(more) + 1 > MAX_PACKET_BYTES:
            yield packet
            packet = b""
        packet = packet + b"\n" + more if packet else more
    if packet:
        yield packet


def address_of(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT` or `[V6]:PORT`; raises ConfigError. A name is resolved once, here."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"STATSD_ADDRESS={text!r}: must be HOST:PORT")
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    except OSError as error:
        raise ConfigError(f"STATSD_ADDRESS={text!r}: {error}") from error
    return str(addresses[0][4][0]), int(port)


@hookimpl
def kb_metrics_sinks(config: Config) -> Mapping[str, Callable[[Sequence[MetricSpec]], MetricsSink]]:
    """Offer the sink under the name `statsd`."""
    return {"statsd": lambda specs: Statsd(address_of(config.statsd_address))}
