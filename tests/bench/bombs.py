"""Goals that would take for ever, from four clients at once, beside a server's signs of life and a
neighbour's goals.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from http_routes import HOST, Server, drive, one, request
from measure import Effort, duration, percentile
from table import Row

CLIENTS = 4
HEALTH, NEIGHBOUR = 0.1, 3.0
"""Seconds that the slowest percent of the signs of life, and any goal of a neighbour, may take."""

GROWTH = 512 << 20
"""Bytes that the server may grow by."""

RULES = """
pairs(?a, ?b, ?c) :- edge(?a, _), edge(?b, _), edge(?c, _).
tick(0) :- edge(_, _).
tick(?n) :- tick(?m), ?n = ?m + 1.
reach(?x, ?y) :- edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).
total(sum(?c)) :- pairs(?a, ?b, ?c).
never(?a) :- edge(?a, _), edge(?b, _), edge(?c, _), edge(?d, _), ?a < ?b, ?b < ?c, ?c < ?d, ?d < ?a.
"""

BOMBS: dict[str, dict[str, Any]] = {
    "a product": {"predicate": "pairs", "args": ["?a", "?b", "?c"]},
    "a product without answers": {"predicate": "never", "args": ["?a"]},
    "a counter": {"predicate": "tick", "args": ["?n"]},
    "a closure": {"predicate": "reach", "args": ["?a", "?b"]},
    "a closure, sorted": {"predicate": "reach", "args": ["?a", "?b"], "limit": 10},
    "proofs": {"predicate": "reach", "args": ["?a", "?b"], "withProof": True, "limit": 2000},
    "an aggregate": {"predicate": "total", "args": ["?n"]},
    "rows with confidence": {"predicate": "reach", "args": ["?a", "?b"], "minConfidence": 0.5},
}


@dataclass(slots=True)
class Beside:
    """What was going on while the bombs were: seconds of each, and how the bombs ended."""

    health: list[float] = field(default_factory=list)
    neighbour: list[float] = field(default_factory=list)
    bombs: list[float] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    grown: int = 0


def bombs(effort: Effort, peers: object) -> Iterator[Row]:
    """A row for each bomb, in a server of its own, so that each starts from the same memory."""
    nodes, wait = effort.pick(2300, 200), effort.pick(5, 1)
    edges = [
        {"predicate": "edge", "args": [str(n), str((n * 7 + k) % nodes)]}
        for n in range(nodes)
        for k in (1, 2, 3)
    ]
    for name, goal in BOMBS.items():
        with tempfile.TemporaryDirectory(
            prefix="kbcore-bench-", dir=os.environ.get("KB_BENCH_DIR")
        ) as folder:
            server = Server(f"{folder}/data")
            try:
                one(server, request("POST", "/assert/facts", {"facts": edges}))
                one(server, request("POST", "/teach", {"text": RULES}))
                yield _row(name, wait, f"{nodes:,} nodes", _beside(server, goal, wait))
            finally:
                server.close()


def _beside(server: Server, goal: dict[str, Any], wait: int) -> Beside:
    found = Beside()
    before = _resident(server, "VmRSS")
    clients = [
        threading.Thread(target=_bomb, args=(server, goal, wait, found)) for _ in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    health = iter(lambda: request("GET", "/health"), None)
    ask = request("POST", "/ask", {"predicate": "p", "args": ["a"]}).replace(
        b"X-Tenant-ID: bench", b"X-Tenant-ID: other"
    )
    goals = iter(lambda: ask, None)
    while any(client.is_alive() for client in clients):
        found.health += drive(server, health, 1, 0, 1).latencies
        found.neighbour += drive(server, goals, 1, 0, 1).latencies
    found.grown = _resident(server, "VmHWM") - before
    return found


def _bomb(server: Server, goal: dict[str, Any], wait: int, found: Beside) -> None:
    message = request("POST", "/ask", {**goal, "timeoutMs": wait * 1000})
    started = time.perf_counter()
    answer = b""
    with socket.create_connection((HOST, server.port), timeout=120) as sock:
        sock.sendall(message.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        while part := sock.recv(1 << 16):
            answer += part
    found.bombs.append(time.perf_counter() - started)
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head[9:12].decode()
    details = json.loads(body)["details"] if status in ("422", "429") else {}
    found.ends.append(f"{status} {details.get('limit', '')}".strip())


def _row(name: str, wait: int, size: str, found: Beside) -> Row:
    health = [percentile(found.health, share) for share in (0.5, 0.99, 1.0)]
    slowest, neighbour = max(found.bombs), max(found.neighbour)
    row = Row(
        f"bomb: {name}, {CLIENTS} clients",
        size,
        None,
        f"/health {' / '.join(map(duration, health))}",
    )
    ends = ", ".join(dict.fromkeys(found.ends))
    row.ratio = (
        f"p50, p99, most of {len(found.health):,}; neighbour at most {duration(neighbour)}; bombs end with {ends} in at "
        f"most {duration(slowest)}; {found.grown >> 20:,} MiB more"
    )
    row.floor = f"/health p99 ≤ {duration(HEALTH)}, bombs ≤ {2 * wait} s, ≤ {GROWTH >> 20} MiB"
    row.met = (
        health[1] <= HEALTH
        and slowest <= 2 * wait
        and neighbour <= NEIGHBOUR
        and found.grown <= GROWTH
    )
    unsound = [end for end in found.ends if end[:3] not in ("200", "422", "429")]
    if unsound:
        row.wrong = f"{row.workload}: answered {unsound}"
    return row


def _resident(server: Server, name: str) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    match = re.search(rf"{name}:\s+(\d+) kB", status)
    if match is None:
        raise RuntimeError(f"no {name}")
    return int(match[1]) << 10
