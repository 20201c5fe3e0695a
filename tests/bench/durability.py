"""What durability costs: how long requests wait for a snapshot at a million facts, and how long a
start takes.

    python tests/bench/durability.py

A workload of the table. Recovery is the wall time of `kbcore serve` from its call to its address,
from a snapshot and from the log alone; the stall is the longest of many small requests, one after
the other on two connections, while a snapshot is taken, beside the longest without one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from http_routes import HOST, Server, request
from measure import FULL, Effort, duration, percentile
from table import Row, table

BATCH = 50_000


def durability(effort: Effort, peers: object = None) -> Iterator[Row]:
    """Stall and recovery."""
    count = effort.pick(1_000_000, 10_000)
    size = f"{count:,} facts"
    with tempfile.TemporaryDirectory(dir=os.environ.get("KB_BENCH_DIR")) as scratch:
        folder = f"{scratch}/kb"
        os.environ["SNAPSHOT_LOG_MB"] = "100000"  # only those that are asked for
        server = Server(folder)
        try:
            load(server, count)
            log = sum(path.stat().st_size for path in Path(folder).glob("wal-*"))
            killed(server)
            started = time.monotonic()
            server = Server(folder)
            seconds = time.monotonic() - started
            yield recovery("from the log alone", f"{size}, {log >> 20} MiB of log", count, seconds)
            quiet = [*latencies(server, effort.pick(3, 1), snapshot=False)]
            stalled = [*latencies(server, 0, snapshot=True)]
            row = Row(
                "snapshot, concurrent requests",
                size,
                len(stalled),
                f"longest {duration(max(stalled))}",
            )
            row.ratio = f"p99 {duration(percentile(stalled, 0.99))}; without: longest {duration(max(quiet))}"
            row.floor, row.met = "longest ≤ 50 ms", max(stalled) <= 0.05
            yield row
        finally:
            killed(server)
        started = time.monotonic()
        server = Server(folder)
        try:
            yield recovery("from a snapshot", size, count, time.monotonic() - started)
        finally:
            server.close()
            del os.environ["SNAPSHOT_LOG_MB"]


def recovery(what: str, size: str, count: int, seconds: float) -> Row:
    row = Row(f"recovery, {what}", size, count, duration(seconds))
    row.floor, row.met = "≤ 10 s", seconds <= 10
    return row


def load(server: Server, count: int) -> None:
    sock = socket.create_connection((HOST, server.port))
    for start in range(0, count, BATCH):
        names = range(start, min(start + BATCH, count))
        facts = [
            {"predicate": f"edge{n % 4}", "args": [f"node{n % 99_991}", f"thing{n}"]} for n in names
        ]
        exchange(sock, request("POST", "/assert/facts", {"facts": facts}))
    sock.close()


def latencies(server: Server, seconds: float, *, snapshot: bool) -> list[float]:
    """Seconds of small writes and goals, for a time or while a snapshot is taken."""
    found: list[float] = []
    over = threading.Event()

    def ask(write: bool) -> None:
        sock = socket.create_connection((HOST, server.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = 0
        while not over.is_set():
            number += 1
            goal = request(
                "POST", "/ask", {"predicate": "edge1", "args": [f"node{number * 4 + 1}", "?x"]}
            )
            fact = request(
                "POST", "/tell", {"predicate": "edge1", "args": ["new", f"{snapshot}{number}"]}
            )
            started = time.monotonic()
            exchange(sock, fact if write else goal)
            found.append(time.monotonic() - started)
        sock.close()

    threads = [threading.Thread(target=ask, args=(write,)) for write in (False, True)]
    for thread in threads:
        thread.start()
    if snapshot:
        sock = socket.create_connection((HOST, server.port))
        exchange(sock, request("POST", "/admin/snapshot", {}))
        sock.close()
    else:
        over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join()
    return found


def exchange(sock: socket.socket, data: bytes) -> bytes:
    """Send a request and read its answer, which has a length."""
    sock.sendall(data)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += sock.recv(1 << 16)
    head, body = answer.split(b"\r\n\r\n", 1)
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise RuntimeError(answer[:500].decode())
    length = next(
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += sock.recv(1 << 16)
    return body


def killed(server: Server) -> None:
    """End it as a power switch would."""
    try:
        os.kill(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        server.close()
    except (ProcessLookupError, subprocess.TimeoutExpired):
        return


def main() -> int:
    print(table([*durability(FULL)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
