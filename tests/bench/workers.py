"""Two server processes beside one: requests a second over many tenants, and the price of
forwarding.

The client (`load.c`, built with the C compiler) is one thread with 64 connections. On a machine
with two cores it shares them with the servers, so its CPU time per request is printed as well: with
two processes and two busy cores, the rate is at most 2 / (CPU of the servers + CPU of the client).
A run is repeated if other programs used the CPUs as well.

Two loads: `kept` has one tenant on each connection, as most clients have; `mixed` has a random
tenant in each request, so that half of the requests are forwarded.

    python tests/bench/workers.py [--seconds 5] [--rounds 3] [--folder DIR] [--shards 2]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import http_routes

from kbcore.node.shard_layout import shard_of

SEED = 20
TENANTS = 64
CONNECTIONS = 64
REQUESTS = 100
"""Requests of a connection, which are sent again and again."""

MAX_OTHERS, TRIES = 0.05, 5
"""Share of the CPU time that other programs may use in a run, and how often a run is tried."""

WORKERS = 2
TICK = os.sysconf("SC_CLK_TCK")
SOURCE = Path(__file__).with_name("load.c")

Requests = Sequence[Sequence[bytes]]
"""The requests of each connection."""


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


@dataclass(frozen=True, slots=True)
class Load:
    """One run of the client: requests a second, CPU seconds per request, and latencies in seconds.

    `others` is the share of the CPU time that other programs used.
    """

    rate: float
    server_cpu: float
    client_cpu: float
    p50: float
    slots: list[float]
    others: float


def busy_seconds() -> float:
    """CPU time of all programs of this machine."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / TICK


class Client:
    """The client, built in a folder. Each run has numbers of its own, so that every fact is new."""

    def __init__(self, folder: str) -> None:
        self._program = f"{folder}/load"
        self._first = 0
        self.others = 0.0
        compiler = shutil.which("cc") or "gcc"
        subprocess.run([compiler, "-O2", "-o", self._program, str(SOURCE)], check=True)

    def run(self, server: Server, connections: Requests, seconds: float) -> Load:
        """Send requests for some seconds; every response must be 200."""
        for _ in range(TRIES):
            load = self._run(server, connections, seconds)
            if load.others < MAX_OTHERS:
                break
        self.others = max(self.others, load.others)
        return load

    def _run(self, server: Server, connections: Requests, seconds: float) -> Load:
        parts = [b"%d\n" % len(connections)]
        for requests in connections:
            parts.append(b"%d\n" % len(requests))
            parts += [b"%d\n%b" % (len(request), request) for request in requests]
        self._first += 10_000_000
        command = [self._program, str(server.port), str(seconds), str(1 << 40), str(self._first)]
        before, busy = server.cpu_seconds(), busy_seconds()
        done = subprocess.run(command, input=b"".join(parts), capture_output=True, check=False)
        used, busy = server.cpu_seconds() - before, busy_seconds() - busy
        if done.returncode:
            raise RuntimeError(done.stderr.decode())
        count, elapsed, cpu, p50, _, *slots = map(float, done.stdout.split())
        return Load(
            count / elapsed,
            used / count,
            cpu / count,
            p50 / 1e6,
            [each / 1e6 for each in slots],
            max(0.0, busy - used - cpu) / (elapsed * (os.cpu_count() or 1)),
        )


def message(path: str, tenant: str, body: str) -> bytes:
    """The bytes of a request of a tenant."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: {tenant}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def tell(rng: random.Random, tenant: str) -> bytes:
    """A new fact."""
    body = f'{{"predicate":"told","args":["a{rng.randrange(50)}","b##########"]}}'
    return message("/tell", tenant, body)


def ask(rng: random.Random, tenant: str) -> bytes:
    """A goal with a rule."""
    body = f'{{"predicate":"q","args":["a{rng.randrange(50)}","?y"]}}'
    return message("/ask", tenant, body)


def kept(make) -> Requests:
    """One tenant on each connection."""
    rng = random.Random(SEED)
    return [
        [make(rng, f"t{number % TENANTS}") for _ in range(REQUESTS)]
        for number in range(CONNECTIONS)
    ]


def mixed(make) -> Requests:
    """A random tenant in each request."""
    rng = random.Random(SEED)
    return [
        [make(rng, f"t{rng.randrange(TENANTS)}") for _ in range(REQUESTS)]
        for _ in range(CONNECTIONS)
    ]


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


def forwarding(client: Client, server: Server, seconds: float, shards: int) -> tuple[float, float]:
    """Return p50 in seconds of direct and of forwarded requests.

    One connection has requests for tenants of both workers in turn, so that it is never handed over
    and half of its requests are forwarded.
    """
    owners = [shard_of("default", f"t{n}", shards) % WORKERS for n in range(TENANTS)]
    body = '{"predicate":"p","args":["a1","?y"]}'
    pair = [message("/query", f"t{owners.index(owner)}", body) for owner in range(WORKERS)]
    slots = client.run(server, [pair], seconds).slots
    return min(slots), max(slots)


def compare(
    name: str,
    client: Client,
    servers: list[Server],
    connections: Requests,
    rounds: int,
    seconds: float,
) -> None:
    """Run both servers in turn, and print the medians."""
    loads: list[list[Load]] = [[], []]
    for _ in range(rounds):
        for server, results in zip(servers, loads, strict=True):
            results.append(client.run(server, connections, seconds))
    one, two = (
        [
            statistics.median(values)
            for values in zip(
                *((load.rate, load.server_cpu, load.client_cpu) for load in results), strict=True
            )
        ]
        for results in loads
    )
    print(
        f"{name}: 1 process {one[0]:.0f}/s, {WORKERS} processes {two[0]:.0f}/s, "
        f"ratio {two[0] / one[0]:.2f}; CPU per request: servers {one[1] * 1e6:.0f} and "
        f"{two[1] * 1e6:.0f} us, client {one[2] * 1e6:.0f} and {two[2] * 1e6:.0f} us",
        flush=True,
    )


def main() -> None:
    """Print requests a second, CPU time per request, and the price of forwarding."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=5)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--folder", default=os.environ.get("KB_BENCH_DIR"))
    arguments.add_argument("--shards", type=int, default=WORKERS)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        client = Client(folder)
        one = seeded(f"{folder}/one", 1)
        os.environ["STORAGE_SHARDS"] = str(options.shards)
        two = seeded(f"{folder}/two", WORKERS)
        try:
            for load in (kept, mixed):
                for path, make in (("/ask", ask), ("/tell", tell)):
                    compare(
                        f"{path}, {load.__name__}",
                        client,
                        [one, two],
                        load(make),
                        options.rounds,
                        options.seconds,
                    )
            direct, forwarded = forwarding(client, two, options.seconds, options.shards)
        finally:
            one.close()
            two.close()
    print(
        f"p50 direct {direct * 1e3:.3f} ms, forwarded {forwarded * 1e3:.3f} ms, "
        f"more {(forwarded - direct) * 1e3:.3f} ms"
    )
    print(f"other programs used up to {client.others:.0%} of the CPU time in a run")


if __name__ == "__main__":
    main()
