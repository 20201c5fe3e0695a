"""Requests of a server with TLS beside one without, in random order of a fixed seed.

    PYTHONPATH=tests python tests/bench/tls.py [ROUNDS] [REQUESTS]

Two servers answer the same requests over a kept connection: small reads, and answers of 1 MB. Shown
are the CPU time of the servers, and the time of the client with the cost of its own TLS. At the
end, full handshakes on new connections.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from support.certificates import Authority, served_with
from support.servers import Server

SEED = 20_260
WIDE = 4000
TICKS = os.sysconf("SC_CLK_TCK")
NAMES = ("plain", "tls")


def cpu_seconds(server: Server) -> float:
    """Return the CPU time of a server so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def send(connection: http.client.HTTPConnection, path: str, body: object) -> int:
    """Send a request and read its answer; return its size."""
    headers = {"Content-Type": "application/json", "X-Tenant-ID": "t"}
    connection.request("POST", path, json.dumps(body).encode(), headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return len(text)


def main(rounds: int = 40, requests: int = 500) -> None:
    """Print requests per second of both servers, and their ratio."""
    chosen = random.Random(SEED)
    small = [
        {"predicate": "p", "args": [str(chosen.randrange(WIDE)), "?y"]} for _ in range(requests)
    ]
    large = [{"predicate": "p", "args": ["?x", "?y"]}] * max(1, requests // 100)
    kinds = {"small reads": small, "answers of 1 MB": large}
    spent: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = Authority(folder / "certificates")
        options = {"plain": {}, "tls": served_with(authority)}
        servers = {
            name: stack.enter_context(Server(folder / name, **options[name])) for name in NAMES
        }
        connections = {
            name: stack.enter_context(closing(servers[name].connect())) for name in NAMES
        }
        facts = [{"predicate": "p", "args": [str(n), "x" * 100]} for n in range(WIDE)]
        for connection in connections.values():
            send(connection, "/assert/facts", {"facts": facts})
        for number in range(rounds + 1):
            for kind, bodies in kinds.items():
                for name in chosen.sample(NAMES, 2):
                    cpu, begun = cpu_seconds(servers[name]), time.perf_counter()
                    size = max(send(connections[name], "/query", body) for body in bodies)
                    times = time.perf_counter() - begun, cpu_seconds(servers[name]) - cpu
                    if number:  # the first round compiles the plans
                        spent.setdefault((kind, name), []).append(times)
                assert kind == "small reads" or size > 500_000, size
        for kind, bodies in kinds.items():
            rates = []
            for name in NAMES:
                wall, cpu = map(sum, zip(*spent[kind, name], strict=True))
                count = len(bodies) * rounds
                rates.append((count / wall, count / max(cpu, 1 / TICKS)))
            (plain, plain_cpu), (tls, tls_cpu) = rates
            print(
                f"{kind}: plain {plain:,.0f}/s, TLS {tls:,.0f}/s, ratio {tls / plain:.2f};"
                f" per second of server CPU {plain_cpu:,.0f} and {tls_cpu:,.0f},"
                f" ratio {tls_cpu / plain_cpu:.2f}"
            )
        for name in NAMES:
            cpu, begun = cpu_seconds(servers[name]), time.perf_counter()
            for _ in range(requests):
                with closing(servers[name].connect()) as connection:
                    send(connection, "/query", small[0])
            wall, used = time.perf_counter() - begun, cpu_seconds(servers[name]) - cpu
            print(
                f"new connections, {name}: {requests / wall:,.0f}/s,"
                f" {1000 * used / requests:.2f} ms of server CPU each"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
