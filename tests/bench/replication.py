"""What replication costs: how far a follower is behind under load, how fast it catches up, how long
it takes to begin.

    python tests/bench/replication.py [--small]

Two `kbcore serve` on one machine. Lag is the time from the acknowledgement of a write to the moment
the follower answers a read with its `X-Min-Seq`, while the leader takes 1,000 writes a second.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from durability import exchange, killed, load
from http_routes import HOST, Server, request
from measure import FULL, SMALL, Effort, duration, percentile
from table import Row, table

TOKEN = "0123456789-secret-of-the-bench"
RATE = 1000
WRITERS = 20


def replication(effort: Effort, peers: object = None) -> Iterator[Row]:
    """Lag, catching up, beginning."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("KB_BENCH_DIR")) as scratch:
        leader = started(f"{scratch}/leader", REPLICATION_MODE="LEADER")
        follows = {"REPLICATION_MODE": "FOLLOWER", "LEADER_URL": f"http://{HOST}:{leader.port}"}
        try:
            follower = started(f"{scratch}/follower", **follows)
            seconds = effort.pick(15, 1)
            lags, rate = under_load(leader, follower, seconds)
            row = Row(
                "lag of a follower",
                f"{rate:,.0f} writes/s",
                len(lags),
                f"p50 {duration(percentile(lags, 0.5))}",
            )
            row.ratio, row.floor = (
                f"p99 {duration(percentile(lags, 0.99))}",
                "p99 ≤ 250 ms at 1,000/s",
            )
            row.met = percentile(lags, 0.99) <= 0.25
            yield row

            killed(follower)
            before = head(leader)
            under_load(leader, None, effort.pick(20, 1), rate=1e9)
            records = head(leader) - before
            begun = time.monotonic()
            follower = started(f"{scratch}/follower", **follows)
            wait_for(follower, head(leader))
            took = time.monotonic() - begun
            yield Row(
                "catching up, start included",
                f"{records:,} records",
                records,
                f"{records / took:,.0f} records/s",
            )

            killed(follower)
            count = effort.pick(1_000_000, 10_000)
            load(leader, count)
            sock = socket.create_connection((HOST, leader.port))
            exchange(sock, request("POST", "/admin/snapshot", {}))
            sock.close()
            begun = time.monotonic()
            follower = started(f"{scratch}/new", **follows)
            wait_for(follower, head(leader))
            yield Row(
                "beginning, start included",
                f"{count:,} facts",
                count,
                duration(time.monotonic() - begun),
            )
            killed(follower)
        finally:
            killed(leader)


def started(folder: str, **settings: str) -> Server:
    os.environ.update(settings, REPLICATION_TOKEN=TOKEN)
    try:
        return Server(folder)
    finally:
        for name in settings:
            del os.environ[name]


def head(server: Server) -> int:
    """The last record of a node."""
    sock = socket.create_connection((HOST, server.port))
    asked = request("GET", "/replication/status").replace(
        b"\r\n", f"\r\nAuthorization: Bearer {TOKEN}\r\n".encode(), 1
    )
    body = exchange(sock, asked)
    sock.close()
    return int(body.split(b'"head":', 1)[1].split(b",", 1)[0])


def wait_for(server: Server, seq: int) -> None:
    """Until a follower has a record, or for ten minutes."""
    end = time.monotonic() + 600
    pace = threading.Event()
    while head(server) < seq:
        if time.monotonic() > end:
            raise RuntimeError("the follower does not catch up")
        pace.wait(0.02)


def under_load(
    leader: Server, follower: Server | None, seconds: float, rate: float = RATE
) -> tuple[list[float], float]:
    """Write to the leader at a rate; how long the follower took to show some of the writes, and the
    rate that came about.
    """
    stop = time.monotonic() + seconds
    lags: list[float] = []
    counts = [0] * WRITERS
    newest: list[tuple[int, float]] = [(0, 0.0)]
    over = threading.Event()

    def write(worker: int) -> None:
        sock = connection(leader)
        began = time.monotonic()
        while time.monotonic() < stop:
            name = f"{worker}-{counts[worker]}-{began}"
            answer = head_of(
                sock, request("POST", "/tell", {"predicate": "edge0", "args": ["load", name]})
            )
            seq = int(answer.lower().split(b"x-commit-seq: ", 1)[1].split(b"\r\n", 1)[0])
            newest[0] = max(newest[0], (seq, time.monotonic()))
            counts[worker] += 1
            over.wait(max(0.0, began + counts[worker] * WRITERS / rate - time.monotonic()))
        sock.close()

    def read(server: Server) -> None:
        sock, last = connection(server), 0
        while time.monotonic() < stop:
            seq, acknowledged = newest[0]
            if seq <= last:
                over.wait(0.001)
                continue
            asked = request("POST", "/query", {"predicate": "none", "args": ["?x"]})
            head_of(sock, asked.replace(b"\r\n", f"\r\nX-Min-Seq: {seq}\r\n".encode(), 1))
            lags.append(time.monotonic() - acknowledged)
            last = seq
        sock.close()

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(WRITERS)]
    if follower is not None:
        threads.append(threading.Thread(target=read, args=(follower,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return lags, sum(counts) / seconds


def connection(server: Server) -> socket.socket:
    sock = socket.create_connection((HOST, server.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def head_of(sock: socket.socket, data: bytes) -> bytes:
    """Send a request; the head of its answer, which is small enough to come whole."""
    sock.sendall(data)
    answer = sock.recv(1 << 16)
    if b" 200 " not in answer.split(b"\r\n", 1)[0]:
        raise RuntimeError(answer[:500].decode())
    return answer


def main() -> int:
    print(table([*replication(SMALL if "--small" in sys.argv else FULL)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
