"""Connections that a worker hands to the owner of their tenant, under everything a client can
do.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.servers import Server
from support.workers import children, holders, other_end, paused, tenants_of, until, watchers

from kbcore.config import Config
from kbcore.offline.migrate import check_storage
from kbserver.workers.handover import MOVE_AFTER, Affinity, resumed


def post(path: str, tenant: str, body: Any, *more: str) -> bytes:
    """The bytes of a request."""
    text = json.dumps(body).encode()
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"X-Tenant-ID: {tenant}",
        "Content-Type: application/json",
        f"Content-Length: {len(text)}",
        *more,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


def tell(tenant: str, value: object) -> bytes:
    """A request that stores a fact."""
    return post("/tell", tenant, {"predicate": "p", "args": [value]})


def answer(stream: io.BufferedReader) -> tuple[int, bytes]:
    """Status and body of the next response."""
    status = int(stream.readline().split()[1])
    length = 0
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, stream.read(length)


class Connection:
    """A connection whose bytes the test decides."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sock = socket.create_connection(server.address, timeout=60)
        self.port = self.sock.getsockname()[1]
        self.stream = self.sock.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both directions."""
        self.stream.close()
        self.sock.close()

    def ask(self, message: bytes) -> tuple[int, bytes]:
        """Send a request and return its response."""
        self.sock.sendall(message)
        return answer(self.stream)

    def held_by(self, index: int) -> None:
        """Wait until one worker, and no other, has the connection."""
        until(lambda: holders(self.server, self.port) == [index], f"worker {index} has it")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("handover")
    with Server(folder / "data", "--workers", "2", AUTH_ENABLED="", LOG_LEVEL="WARN") as running:
        yield running


def rows(server: Server, tenant: str, predicate: str = "p") -> list[str]:
    """The values of a predicate with one argument."""
    body = {"predicate": predicate, "args": ["?x"]}
    return [
        row["args"][0] for row in json.loads(server.post("/query", body, X_Tenant_ID=tenant)[1])
    ]


def accepted(server: Server, index: int, message: bytes) -> Connection:
    """A connection that a worker accepted and handed to the other one with its first bytes."""
    with paused(children(server)[1 - index]):
        connection = Connection(server)
        until(lambda: watchers(server, connection.port) == [index], "it waits for a request")
        connection.sock.sendall(message)
        until(lambda: holders(server, connection.port) == [], "the connection is handed over")
        assert watchers(server, connection.port) == []
    return connection


def test_a_connection_goes_to_the_owner_of_its_first_request_and_stays_there(server) -> None:
    for index in (0, 1):
        tenant = tenants_of(index)[0]
        with accepted(server, 1 - index, tell(tenant, "first")) as connection:
            assert answer(connection.stream)[0] == 200
            for number in range(3):
                assert connection.ask(tell(tenant, number))[0] == 200
            connection.held_by(index)
        assert {"first", "0", "1", "2"} <= set(rows(server, tenant))


def test_a_connection_that_alternates_stays_and_one_that_changes_for_good_moves(server) -> None:
    here, there = tenants_of(0)[1], tenants_of(1)[1]
    with Connection(server) as connection:
        assert connection.ask(tell(here, "x"))[0] == 200
        connection.held_by(0)
        for number in range(3 * MOVE_AFTER):
            assert connection.ask(tell((there, here)[number % 2], number))[0] == 200
        connection.held_by(0)
        for number in range(MOVE_AFTER):
            assert connection.ask(tell(there, -number))[0] == 200
        connection.held_by(1)
        for number in range(MOVE_AFTER):
            assert connection.ask(tell(here, -number))[0] == 200
        connection.held_by(0)
        assert connection.ask(post("/query", "a b", {"predicate": "p"}))[0] == 400


def test_pipelined_requests_are_answered_in_order_by_their_owners(server) -> None:
    tenants = [*tenants_of(0), *tenants_of(1)]
    order = [tenants[number * number % len(tenants)] for number in range(40)]
    order += [tenants[0]] * 2 * MOVE_AFTER + [tenants[-1]] * 2 * MOVE_AFTER
    for first in (tenants[0], tenants[-1]):
        names = [first, *order]
        messages = [
            post("/tell", tenant, {"predicate": "pipe", "args": [f"n{number}"]})
            for number, tenant in enumerate(names)
        ]
        with Connection(server) as connection:
            sender = threading.Thread(target=connection.sock.sendall, args=(b"".join(messages),))
            sender.start()
            texts = [answer(connection.stream) for _ in names]
            sender.join()
        assert texts == [
            (200, f"Fact Asserted: pipe(n{number})".encode()) for number in range(len(names))
        ]


def test_large_bodies_reach_the_owner_whole(server) -> None:
    facts = [{"predicate": "large", "args": [f"{number:060}"]} for number in range(4000)]
    for index in (0, 1):
        tenant = tenants_of(index)[2]
        message = post("/assert/facts", tenant, {"facts": facts})
        head = message.index(b"\r\n\r\n") + 4
        for split in (head - 2, head, head + 1, 5000):  # where the first packet ends
            with Connection(server) as connection:
                connection.sock.sendall(message[:split])
                until(lambda c=connection: "0" not in other_end(c.port), "it is accepted")
                assert connection.ask(message[split:])[0] == 200
                assert connection.ask(tell(tenant, split))[0] == 200
        with Connection(server) as connection:  # the body waits for permission
            request = post("/assert/facts", tenant, {"facts": facts}, "Expect: 100-continue")
            body = request.index(b"\r\n\r\n") + 4
            connection.sock.sendall(request[:body])
            assert connection.stream.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert connection.stream.readline() == b"\r\n"
            assert connection.ask(request[body:])[0] == 200
        assert len(rows(server, tenant, "large")) == len(facts)


def test_a_client_that_disconnects_leaves_nothing_open_and_ends_its_goal(server) -> None:
    rules = "far(?a, ?b, ?c) :- e(?a), e(?b), e(?c), ?a > ?b, ?b > ?c, ?c > ?a."
    for index in (0, 1):
        tenant = tenants_of(index)[3]
        facts = [{"predicate": "e", "args": [number]} for number in range(3000)]
        assert server.post("/assert/facts", {"facts": facts}, X_Tenant_ID=tenant)[0] == 200
        assert server.post("/teach", {"text": rules}, X_Tenant_ID=tenant)[0] == 200
        goal = post("/ask", tenant, {"predicate": "far", "args": ["?a", "?b", "?c"]})
        connection = accepted(server, 1 - index, goal)
        connection.held_by(index)
        until(lambda: active_goals(server) == 1, "the goal runs")
        connection.close()
        until(lambda: active_goals(server) == 0, "the goal ends long before its budget")
        for message in (b"", b"POST /te", tell(tenant, "gone")):
            leaving = Connection(server)
            leaving.sock.sendall(message)
            leaving.close()
            until(lambda port=leaving.port: not other_end(port), "the worker closes it")


def active_goals(server: Server) -> float:
    """Number of requests in progress in all workers, without this one."""
    connection = server.connect()
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    lines = [line for line in text.splitlines() if line.startswith("svc_http_requests_in_progress")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines) - 1


def test_the_other_worker_answers_what_waits_for_a_killed_one(tmp_path) -> None:
    """A connection in the queue of a worker that is killed is served by its successor, once."""
    tenant = tenants_of(1)[0]
    with Server(tmp_path, "--workers", "2") as server:
        before = children(server)
        os.kill(before[1], signal.SIGSTOP)
        with Connection(server) as waiting, Connection(server) as second:
            waiting.sock.sendall(tell(tenant, "waits"))
            second.sock.sendall(tell(tenant, "too"))
            for connection in (waiting, second):
                until(lambda c=connection: holders(server, c.port) == [], "it is handed over")
            os.kill(before[1], signal.SIGKILL)
            for connection in (waiting, second):
                assert answer(connection.stream)[0] == 200
                connection.held_by(1)
            assert children(server)[0] == before[0]
            # A worker that has the connection takes it along when it is killed.
            os.kill(children(server)[1], signal.SIGKILL)
            assert waiting.stream.read() == b""
        assert sorted(rows(server, tenant)) == ["too", "waits"]
        with Connection(server) as idle:
            assert idle.ask(tell(tenant, "idle"))[0] == 200
            assert server.stop() == 0
            assert idle.stream.read() == b""
    assert check_storage(f"wal:{tmp_path}", Config(min_free_mb=0)).shards == 2


def test_affinity_moves_a_new_connection_at_once_and_others_after_a_run() -> None:
    assert Affinity(is_new=True).moves_to(1)
    for affinity in (Affinity(is_new=True), Affinity(is_new=False)):
        assert not affinity.moves_to(None)
        moves = [affinity.moves_to(1) for _ in range(MOVE_AFTER)]
        assert moves == [False] * (MOVE_AFTER - 1) + [True]
        assert not affinity.moves_to(2)
    assert not Affinity(is_new=False).moves_to(1)


def test_a_resumed_stream_begins_with_the_received_bytes() -> None:
    received = b"x" * 20_000
    stream = resumed(io.BufferedReader(io.BytesIO(b"rest")), received)  # type: ignore[arg-type]
    assert stream.peek(1) == received
    assert stream.read() == received + b"rest"
