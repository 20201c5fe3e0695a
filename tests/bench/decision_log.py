"""CPU of a server for /ask with and without DECISION_LOG, on and off in random order.

    PYTHONPATH=tests python tests/bench/decision_log.py [ROUNDS] [REQUESTS]

Two servers answer the same goals over a kept connection, one of them with a log. What counts is the
CPU time of their processes, including the thread that writes; the client and other work of the
machine do not count.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from support.servers import Server

RULES = "can_read(?w, ?d) :- owner(?d, ?w). can_read(?w, ?d) :- shared(?d, ?g), member(?w, ?g)."
FACTS = [
    *({"predicate": "owner", "args": [f"d{n}", f"u{n % 100}"]} for n in range(1000)),
    *({"predicate": "shared", "args": [f"d{n}", f"g{n % 10}"]} for n in range(0, 1000, 3)),
    *({"predicate": "member", "args": [f"u{n}", f"g{n % 10}"]} for n in range(100)),
]
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(server: Server) -> float:
    """Return the CPU time of a server so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def send(connection: http.client.HTTPConnection, path: str, body: bytes) -> None:
    """Send a request and read its answer."""
    headers = {"Content-Type": "application/json", "X-Tenant-ID": "t"}
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status


def main(rounds: int = 100, requests: int = 400) -> None:
    """Print requests per CPU second without and with the log, and the share it takes.

    Rounds are short: what else the machine does changes within seconds.
    """
    goals = [
        json.dumps({"predicate": "can_read", "args": [f"u{n % 100}", f"d{n * 7 % 1000}"]}).encode()
        for n in range(requests)
    ]
    seconds: dict[str, list[float]] = {"off": [], "on": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = f"file:{folder}/decisions.jsonl"
        servers = {
            "off": stack.enter_context(Server(folder / "off", LOG_LEVEL="ERROR")),
            "on": stack.enter_context(Server(folder / "on", LOG_LEVEL="ERROR", DECISION_LOG=log)),
        }
        connections = {
            name: http.client.HTTPConnection(*server.address) for name, server in servers.items()
        }
        for connection in connections.values():
            send(connection, "/teach", json.dumps({"text": RULES}).encode())
            send(connection, "/assert/facts", json.dumps({"facts": FACTS}).encode())
        for number in range(rounds + 1):
            for name in random.sample(sorted(servers), 2):
                begun = cpu_seconds(servers[name])
                for goal in goals:
                    send(connections[name], "/ask", goal)
                if number:  # the first round compiles the plans
                    seconds[name].append(cpu_seconds(servers[name]) - begun)
    off, on = (requests * rounds / sum(seconds[name]) for name in ("off", "on"))
    print(f"off {off:,.0f}/s of CPU, on {on:,.0f}/s of CPU, {100 * (1 - on / off):.1f} % less")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
