"""Expensive goals from several clients at once: they end at their limits, and other requests are
served.

These tests measure no times; `tests/bench/bombs.py` does.
"""

from __future__ import annotations

import json
import signal
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Authority, served_with
from support.servers import Server

PAIRS = "pairs(?a, ?b, ?c) :- edge(?a, _), edge(?b, _), edge(?c, _)."
TICK = "tick(?n) :- tick(?m), ?n = ?m + 1."
REACH = "reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z)."
NEVER = "never(?a) :- edge(?a, _), edge(?b, _), edge(?c, _), edge(?d, _), ?a < ?b, ?b < ?c, ?c < ?d, ?d < ?a."
RULES = "\n".join(
    [
        PAIRS,
        "tick(0) :- edge(_, _).",
        TICK,
        "reach(?x, ?y) :- edge(?x, ?y).",
        REACH,
        NEVER,
        "total(sum(?c)) :- pairs(?a, ?b, ?c).",
    ]
)
NODES = 2300  # a closure of more than five million pairs

wires = pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])


def wire(folder: Path, is_tls: bool) -> dict[str, Any]:
    """The options of a server, with a certificate if it is to have one."""
    return served_with(Authority(folder)) if is_tls else {}


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def taught(server: Server, nodes: int = NODES) -> None:
    edges = [
        {"predicate": "edge", "args": [str(n), str((n * 7 + k) % nodes)]}
        for n in range(nodes)
        for k in (1, 2, 3)
    ]
    assert server.post("/assert/facts", {"facts": edges})[0] == 200
    assert server.post("/teach", {"text": RULES})[0] == 200
    assert server.post("/tell", {"predicate": "p", "args": ["a"]}, X_Tenant_ID="u")[0] == 200
    assert server.post("/teach", {"text": "q(?x) :- p(?x)."}, X_Tenant_ID="u")[0] == 200


def neighbour(server: Server, connection: Any) -> None:
    """Send the requests of another client: health, a goal, a write."""
    connection.request("GET", "/health")
    assert connection.getresponse().read().startswith(b'{"status":"healthy"')
    status, body = server.post(
        "/ask", {"predicate": "q", "args": ["?x"]}, connection, X_Tenant_ID="u"
    )
    assert (status, [row["args"] for row in json.loads(body)]) == (200, [["a"]])
    assert (
        server.post("/tell", {"predicate": "p", "args": ["a"]}, connection, X_Tenant_ID="u")[0]
        == 200
    )


def goal(predicate: str, arity: int, **more: Any) -> dict[str, Any]:
    return {"predicate": predicate, "args": [f"?v{place}" for place in range(arity)], **more}


BOMBS = {
    "a product": (goal("pairs", 3, maxRows=500_000), "derivedRows", PAIRS),
    "a counter": (goal("tick", 1, maxSteps=5_000_000), "steps", TICK),
    "a closure by rows": (goal("reach", 2, maxRows=1_000_000), "derivedRows", REACH),
    "a closure by bytes": (goal("reach", 2, maxBytes=8 << 20), "memoryBytes", REACH),
    "a closure by answers": (goal("reach", 2), "answers", None),
    "proofs of a closure": (
        goal("reach", 2, withProof=True, limit=64, maxRows=1_000_000),
        "derivedRows",
        None,
    ),
    "an aggregate": (goal("total", 1, maxRows=500_000), "derivedRows", PAIRS),
}


@linux
def test_expensive_goals_end_at_their_limit_while_others_are_served(
    tmp_path: Path,
) -> None:
    with Server(tmp_path, "--storage-backend", "memory", QUERY_TIMEOUT_MS="600000") as server:
        taught(server)
        before = server.peak_bytes()
        connection = server.connect()
        for name, (body, limit, rule) in BOMBS.items():
            answers, clients = _asking(server, body)
            for client in clients:
                client.start()
            while any(client.is_alive() for client in clients):
                neighbour(server, connection)
            assert len(answers) == 3, name
            for status, text in answers:
                found = json.loads(text)
                assert (status, found["code"], found["details"]["limit"]) == (
                    422,
                    "BUDGET_EXCEEDED",
                    limit,
                ), (name, found)
                if rule is not None:
                    assert found["details"]["rule"] == rule, name
        assert server.peak_bytes() - before < 512 << 20
        connection.close()


@wires
def test_endless_goals_do_not_block_others_and_end_on_disconnect(
    tmp_path: Path, is_tls: bool
) -> None:
    """Six goals that would take hours, two of them queued: other requests are served."""
    with Server(
        tmp_path / "data",
        log=tmp_path / "log",
        QUERY_TIMEOUT_MS="3600000",
        QUERY_MAX_STEPS=str(1 << 40),
        **wire(tmp_path, is_tls),
    ) as server:
        taught(server)
        sockets = [_sent(server, "/ask", goal("never", 1)) for _ in range(6)]
        connection = server.connect()
        for _ in range(30):
            neighbour(server, connection)
            status, body = server.post(
                "/ask", {"predicate": "reach", "args": ["5", "36"]}, connection
            )
            assert (status, len(json.loads(body))) == (200, 1)  # a short goal of the same tenant
        for sock in sockets:
            sock.setblocking(False)
            with pytest.raises((BlockingIOError, ssl.SSLWantReadError)):
                sock.recv(1)  # no answer, no end
            sock.close()
        _until(server, connection, lambda log: log.count("client disconnected") == 6)
        assert server.post("/tell", {"predicate": "edge", "args": ["x", "y"]}, connection)[0] == 200
        connection.close()


@wires
def test_a_client_that_sends_its_next_request_has_not_left(tmp_path: Path, is_tls: bool) -> None:
    settings = wire(tmp_path, is_tls)
    with Server(
        tmp_path / "data", "--storage-backend", "memory", log=tmp_path / "log", **settings
    ) as server:
        taught(server)
        with _sent(server, "/ask", goal("pairs", 3, maxRows=4_000_000)) as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            found = b""
            while part := sock.recv(1 << 16):
                found += part
        assert found.startswith(b"HTTP/1.1 422")
        assert b'"limit":"derivedRows"' in found
        assert found.count(b"HTTP/1.1 ") == 2
        assert b'{"status":"healthy"' in found
        assert "client disconnected" not in (tmp_path / "log").read_text()


@wires
def test_a_long_goal_ends_when_the_server_stops(tmp_path: Path, is_tls: bool) -> None:
    settings = {
        "QUERY_TIMEOUT_MS": "3600000",
        "QUERY_MAX_STEPS": str(1 << 40),
        "SHUTDOWN_TIMEOUT_MS": "100",
        **wire(tmp_path, is_tls),
    }
    with Server(tmp_path / "data", log=tmp_path / "log", **settings) as server:
        taught(server)
        with _sent(server, "/ask", goal("never", 1)) as sock:
            connection = server.connect()
            neighbour(server, connection)
            connection.close()
            server.process.send_signal(signal.SIGTERM)
            found = b""
            while part := sock.recv(1 << 16):
                found += part
        assert found.startswith(b"HTTP/1.1 503")
        assert b'"code":"NOT_READY"' in found
        assert b"Retry-After: 1" in found
        assert server.process.wait(60) == 0


def _asking(
    server: Server, body: dict[str, Any]
) -> tuple[list[tuple[int, bytes]], list[threading.Thread]]:
    """Three clients that will ask the same, and where their answers will be."""
    answers: list[tuple[int, bytes]] = []

    def ask() -> None:
        answers.append(server.post("/ask", body))

    return answers, [threading.Thread(target=ask) for _ in range(3)]


def _sent(server: Server, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection on which a request was sent, and no answer read."""
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: t\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(text)}\r\n"
    sock = server.socket()
    sock.sendall(head.encode() + b"\r\n" + text)
    return sock


def _until(server: Server, connection: Any, seen: Any) -> None:
    """Wait for something in the log; requests pass the time."""
    assert server.log is not None
    end = time.monotonic() + 60
    while not seen(server.log.read_text()):
        assert time.monotonic() < end, server.log.read_text()[-2000:]
        neighbour(server, connection)
