"""HTTP: a server in a process of its own, this process as the client, over 1 and 32 keep-alive
connections.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from measure import Effort, duration, percentile
from table import Row

HOST = "127.0.0.1"
TENANT = "bench"
PEOPLE = 1000
RULES = """
near(?x, ?y) :- knows(?x, ?y).
near(?x, ?y) :- knows(?x, ?z), near(?z, ?y).
"""


class Server:
    """`kbcore serve` on a free port over a folder."""

    def __init__(
        self, folder: str, flags: Sequence[str] = (), env: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        command = [
            sys.executable,
            "-m",
            "kbserver.cli",
            "serve",
            "--port",
            "0",
            "--host",
            HOST,
            "--storage-dir",
            folder,
        ]
        self._text = Path(f"{folder}.log")
        self._log = self._text.open("w")
        self._process = subprocess.Popen(
            [*command, "--log-level", "WARN", *flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **env},
        )
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if "listens on" not in first:
            self.close()
            raise RuntimeError(f"the server did not start: {first} {self._text.read_text()}")
        self.port = int(first.strip().rsplit(":", 1)[1])

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """CPU time the server has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Stop it as an administrator would."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()


def request(method: str, path: str, body: object = None) -> bytes:
    """The bytes of a request."""
    payload = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nX-Tenant-ID: {TENANT}\r\n"
    if payload:
        head += f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
    return head.encode() + b"\r\n" + payload


@dataclass(slots=True)
class Load:
    """What a run of requests came to: seconds of each, the whole time, bytes of the bodies by
    request.
    """

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    server_cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds


@dataclass(slots=True)
class Connection:
    """A keep-alive connection with at most one request under way."""

    sock: socket.socket
    started: float = 0.0
    received: bytes = b""
    wanted: int = 0


def drive(
    server: Server, requests: Iterator[bytes], connections: int, seconds: float, most: int
) -> Load:
    """Keep one request under way on each connection for `seconds` or `most` requests; every answer
    must be 200.
    """
    load = Load()
    selector = selectors.DefaultSelector()
    opened = []
    for _ in range(connections):
        sock = socket.create_connection((HOST, server.port), timeout=10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock)
        selector.register(sock, selectors.EVENT_READ, connection)
        opened.append(connection)
    now = time.perf_counter
    cpu = server.cpu_seconds()
    begun = now()
    under_way = sent = 0
    for connection in opened:
        connection.started = now()
        connection.sock.sendall(next(requests))
        under_way, sent = under_way + 1, sent + 1
    end = begun + seconds
    while under_way:
        ready = selector.select(10)
        if not ready:
            raise RuntimeError("the server did not answer for ten seconds")
        for key, _ in ready:
            connection = key.data
            part = connection.sock.recv(1 << 16)
            if not part:
                raise RuntimeError("the server closed a connection")
            connection.received += part
            if not connection.wanted:
                head = connection.received.find(b"\r\n\r\n")
                if head < 0:
                    continue
                if not connection.received.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(connection.received[:300].decode())
                place = connection.received.lower().index(b"content-length:", 0, head) + 15
                connection.wanted = (
                    head
                    + 4
                    + int(connection.received[place : connection.received.index(b"\r", place)])
                )
            if len(connection.received) < connection.wanted:
                continue
            at = now()
            load.latencies.append(at - connection.started)
            connection.received, connection.wanted = b"", 0
            if at < end and sent < most:
                connection.started = now()
                connection.sock.sendall(next(requests))
                sent += 1
            else:
                under_way -= 1
    load.seconds = now() - begun
    load.server_cpu = server.cpu_seconds() - cpu
    selector.close()
    for connection in opened:
        connection.sock.close()
    return load


def one(server: Server, message: bytes) -> object:
    """One request by the library's own client; the answer read as JSON where it is JSON."""
    head, _, body = message.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    method, path, _ = lines[0].split()
    client = http.client.HTTPConnection(HOST, server.port, timeout=60)
    client.request(method, path, body or None, dict(line.split(": ", 1) for line in lines[1:]))
    answer = client.getresponse()
    text = answer.read()
    client.close()
    if answer.status != 200:
        raise RuntimeError(text.decode())
    return json.loads(text) if "json" in answer.headers["Content-Type"] else text.decode()


def sync_rate(folder: str, seconds: float, more: Callable[[], object] = lambda: None) -> float:
    """How many times a second the disk takes a single write of 200 bytes and a sync of it, and
    `more`.
    """
    path = Path(folder, "syncs")
    times: list[float] = []
    end = time.perf_counter() + seconds
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        while time.perf_counter() < end and len(times) < 5000:
            start = time.perf_counter()
            os.write(descriptor, b"x" * 199 + b"\n")
            os.fdatasync(descriptor)
            more()
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        path.unlink()
    return 1 / statistics.mean(times)


def tells() -> Iterator[bytes]:
    """New facts without end."""
    number = 0
    while True:
        yield request(
            "POST", "/tell", {"predicate": "seen", "args": [f"n{number}", f"n{number % 97}"]}
        )
        number += 1


def in_turn(messages: list[bytes]) -> Iterator[bytes]:
    """The same requests over and over."""
    while True:
        yield from messages


@dataclass(slots=True)
class Route:
    """A route under load: its requests, and what the rounds came to."""

    path: str
    requests: Iterator[bytes]
    answers: int | None = None
    rounds: list[Load] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests a second in the middle round."""
        return statistics.median(load.rate for load in self.rounds)

    def row(self, connections: int) -> Row:
        """Return the figures that need no comparison."""
        latencies = [latency for load in self.rounds for latency in load.latencies]
        size = f"{len(latencies):,} requests"
        row = Row(
            f"http {self.path}, {connections} conn", size, self.answers, f"{self.rate:,.0f} /s"
        )
        half, most = (duration(percentile(latencies, share)) for share in (0.5, 0.99))
        cpu = duration(sum(load.server_cpu for load in self.rounds) / len(latencies))
        row.ratio = f"p50 {half}, p99 {most}, server CPU {cpu} each"
        return row


def over_http(effort: Effort, peers: object) -> Iterator[Row]:
    """Each route over 1 and 32 connections in turn, beside the empty route and the disk's rate of
    single syncs.
    """
    rounds, seconds = (1, 0.1) if effort.small else (5, 1.0)
    with tempfile.TemporaryDirectory(
        prefix="kbcore-bench-", dir=os.environ.get("KB_BENCH_DIR")
    ) as folder:
        server = Server(f"{folder}/data")
        try:
            facts = [
                {"predicate": "knows", "args": [f"p{i}", f"p{i + 1}"]}
                for i in range(PEOPLE)
                if i % 10 != 9
            ]
            one(server, request("POST", "/assert/facts", {"facts": facts}))
            one(server, request("POST", "/teach", {"text": RULES}))
            starts = range(0, PEOPLE, 20)
            asks = [
                request("POST", "/ask", {"predicate": "near", "args": [f"p{i}", "?x"]})
                for i in starts
            ]
            queries = [
                request("POST", "/query", {"predicate": "knows", "args": [f"p{i}", "?x"]})
                for i in starts
            ]
            counts = check(server, queries, 1), check(server, asks, 9)
            told = tells()
            for connections in (1, 32):
                empty = Route("/health (empty)", in_turn([request("GET", "/health")]))
                tell = Route("/tell", told)
                routes = [
                    empty,
                    Route("/query", in_turn(queries), counts[0]),
                    Route("/ask, two rules", in_turn(asks), counts[1]),
                    tell,
                ]
                syncs = []
                for route in routes:
                    drive(server, route.requests, connections, seconds / 2, 1_000_000)
                for _ in range(rounds):
                    for route in routes:
                        route.rounds.append(
                            drive(server, route.requests, connections, seconds, 1_000_000)
                        )
                    syncs.append(sync_rate(folder, seconds / 2))
                yield from judged(routes, empty, tell, connections, statistics.median(syncs))
            found = one(
                server, request("POST", "/query", {"predicate": "seen", "args": ["n0", "?x"]})
            )
            if not isinstance(found, list) or len(found) != 1:
                raise RuntimeError("an asserted fact is missing")
        finally:
            server.close()


def judged(
    routes: list[Route], empty: Route, tell: Route, connections: int, disk: float
) -> Iterator[Row]:
    """A row for each route, with its floor."""
    for route in routes:
        row = route.row(connections)
        half = percentile([latency for load in route.rounds for latency in load.latencies], 0.5)
        if route is tell:
            row.ratio = (
                f"{route.rate / disk:.3g} × the disk's {disk:,.0f} single syncs/s; {row.ratio}"
            )
            if connections > 1:
                row.floor, row.met = "≥ 10 × single syncs", route.rate >= 10 * disk
            else:
                row.floor, row.met = "p50 < 1 ms + sync", half < 1e-3 + 1 / disk
        elif route is not empty:
            pairs = zip(
                route.rounds, empty.rounds, strict=True
            )  # of the same round, when the machine was the same
            share = statistics.median(mine.rate / other.rate for mine, other in pairs)
            row.ratio = f"{share:.0%} of the empty route; {row.ratio}"
            row.floor, row.met = "≥ 70 % of empty", share >= 0.7
            if connections == 1:
                row.floor, row.met = row.floor + ", p50 < 1 ms", row.met and half < 1e-3
        yield row


def check(server: Server, messages: list[bytes], count: int) -> int:
    """Every one of these requests has `count` rows in its answer."""
    for message in messages:
        found = one(server, message)
        if not isinstance(found, list) or len(found) != count:
            raise RuntimeError(f"{message!r}: {found}")
    return count
