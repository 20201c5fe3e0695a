"""Two server processes beside one: requests a second over many tenants, and the price of forwarding.

The client is one process of its own with 32 connections and needs a core as well: on a machine with
two cores it competes with the servers. The CPU time of the servers per request does not depend on
that, and says what the processes could do on free cores.

    python tests/bench/workers.py [--seconds 5] [--rounds 3] [--folder DIR] [--shards 16]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import http_routes
from http_routes import Load, drive

from kbcore.node.placement import WORKER_SHARDS, shard_of

SEED = 20
TENANTS = 64
CONNECTIONS = 32
WORKERS = 2
TICK = os.sysconf("SC_CLK_TCK")


class Server(http_routes.Server):
    """`kbcore serve --workers N` on a free port over a folder."""

    def __init__(self, folder: str, workers: int) -> None:
        super().__init__(folder, ["--workers", str(workers)])

    def cpu_seconds(self) -> float:
        """CPU time of all its processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        total = 0
        for pid in (str(self.pid), *children):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICK


def message(path: str, tenant: str, body: str) -> bytes:
    """The bytes of a request of a tenant."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Tenant-ID: {tenant}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def tells(seed: int) -> Iterator[bytes]:
    """Facts for random tenants."""
    rng = random.Random(seed)
    while True:
        number = rng.randrange(1 << 30)
        body = f'{{"predicate":"p","args":["a{number % 50}","b{number}"]}}'
        yield message("/tell", f"t{rng.randrange(TENANTS)}", body)


def asks(seed: int) -> Iterator[bytes]:
    """Goals with a rule, for random tenants."""
    rng = random.Random(seed)
    while True:
        body = f'{{"predicate":"q","args":["a{rng.randrange(50)}","?y"]}}'
        yield message("/ask", f"t{rng.randrange(TENANTS)}", body)


def seeded(folder: str, workers: int) -> Server:
    """Start a server and give each tenant a rule and twenty facts."""
    server = Server(folder, workers)
    rng = random.Random(SEED)
    for tenant in range(TENANTS):
        rule = '{"text":"q(?x, ?y) :- p(?x, ?y)."}'
        http_routes.one(server, message("/teach", f"t{tenant}", rule))
        rows = ",".join(
            f'{{"predicate":"p","args":["a{rng.randrange(50)}","c{row}"]}}' for row in range(20)
        )
        http_routes.one(server, message("/assert/facts", f"t{tenant}", f'{{"facts":[{rows}]}}'))
    return server


def alternating(shards: int) -> tuple[str, str]:
    """Two tenants of different workers."""
    owners = [shard_of("default", f"t{n}", shards) % WORKERS for n in range(TENANTS)]
    return f"t{owners.index(0)}", f"t{owners.index(1)}"


def forwarding(server: Server, requests: int, shards: int) -> tuple[float, float]:
    """Return p50 in seconds of direct and of forwarded requests.

    One connection has requests for two tenants in turn, of which one is forwarded.
    """
    tenants = alternating(shards)
    body = '{"predicate":"p","args":["a1","?y"]}'
    stream = (message("/query", tenants[n % 2], body) for n in range(1 << 30))
    latencies = drive(server, stream, 1, 60, requests).latencies
    halves = [statistics.median(latencies[start::2]) for start in (0, 1)]
    return min(halves), max(halves)


def main() -> None:
    """Print requests a second, CPU time per request, and the price of forwarding."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=5)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--folder", default=os.environ.get("KB_BENCH_DIR"))
    arguments.add_argument("--shards", type=int, default=WORKER_SHARDS)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        one = seeded(f"{folder}/one", 1)
        os.environ["STORAGE_SHARDS"] = str(options.shards)
        two = seeded(f"{folder}/two", WORKERS)
        try:
            for name, stream in (("/tell", tells), ("/ask", asks)):
                compare(name, [one, two], stream, options.rounds, options.seconds)
            direct, forwarded = forwarding(two, int(1000 * options.seconds), options.shards)
        finally:
            one.close()
            two.close()
    print(
        f"p50 direct {direct * 1e3:.3f} ms, forwarded {forwarded * 1e3:.3f} ms, "
        f"more {(forwarded - direct) * 1e3:.3f} ms"
    )


def compare(name: str, servers: list[Server], stream, rounds: int, seconds: float) -> None:
    """Run both servers in turn, and print the medians."""
    loads: list[list[Load]] = [[], []]
    for number in range(rounds):
        for server, results in zip(servers, loads, strict=True):
            results.append(drive(server, stream(SEED + number), CONNECTIONS, seconds, 1 << 30))
    rates = [statistics.median(load.rate for load in results) for results in loads]
    cpu = [
        statistics.median(load.server_cpu / len(load.latencies) for load in results)
        for results in loads
    ]
    print(
        f"{name}: 1 process {rates[0]:.0f}/s, {WORKERS} processes {rates[1]:.0f}/s, "
        f"ratio {rates[1] / rates[0]:.2f}; CPU of the servers per request "
        f"{cpu[0] * 1e6:.0f} and {cpu[1] * 1e6:.0f} us, so up to "
        f"{WORKERS * cpu[0] / cpu[1]:.2f} times on free cores"
    )


if __name__ == "__main__":
    main()
