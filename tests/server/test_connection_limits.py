"""The limit on open connections per address."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import gevent
import pytest
from gevent import socket as gevent_socket
from hypothesis import given
from hypothesis import strategies as st
from support.http import Served, serve_in_memory
from support.sockets import Running

from kbserver.http import connections as crowd
from kbserver.http.connections import ConnectionLimit, origin
from kbserver.http.listening import listen
from kbserver.serve import Server

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", ""),
        ("127.9.9.9", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
        ("not an address", ""),
    ],
)
def test_addresses_are_counted_by_network(address: str, counted: str) -> None:
    assert origin(address) == counted


def test_each_address_has_its_own_limit() -> None:
    found = ConnectionLimit(2)
    assert [found.enter("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert found.enter("10.0.0.2")
    assert not found.is_flooded("10.0.0.1")
    assert not found.enter("10.0.0.1")
    assert found.is_flooded("10.0.0.1")
    assert not found.is_flooded("10.0.0.2")
    for _ in range(3):
        found.leave("10.0.0.1")
    assert found.enter("10.0.0.1")


def test_a_trusted_address_has_no_limit() -> None:
    limit = ConnectionLimit(1)
    assert [limit.enter("10.0.0.1") for _ in range(3)] == [True, False, False]
    assert limit.is_flooded("10.0.0.1")
    limit.trusted.add("10.0.0.1")
    assert limit.enter("10.0.0.1")
    assert not limit.is_flooded("10.0.0.1")
    for _ in range(4):
        limit.leave("10.0.0.1")
    assert len(limit) == 0


def test_loopback_is_not_counted() -> None:
    for found, address in ((ConnectionLimit(0), "10.0.0.1"), (ConnectionLimit(1), "127.0.0.1")):
        assert all(found.enter(address) for _ in range(9))
        assert not found.is_flooded(address)
        assert len(found) == 0


@given(st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "2001:db8::1", "::1"]), max_size=40))
def test_closed_connections_are_forgotten(addresses: list[str]) -> None:
    found = ConnectionLimit(3)
    for address in addresses:
        found.enter(address)
    for address in addresses:
        found.leave(address)
    assert len(found) == 0


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory() as found:
        yield found


@pytest.fixture
def crowded(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server that counts this machine too, and gives an address two connections."""
    monkeypatch.setattr(crowd, "origin", lambda address: address)
    found = Running(served.app)
    found.server.connection_limit = ConnectionLimit(2)
    yield found
    found.stop()


def test_a_connection_over_the_limit_gets_429(crowded: Running) -> None:
    held = [crowded.connection() for _ in range(2)]
    for connection in held:
        connection.request("GET", "/health")
        assert connection.getresponse().read()
    head, body = crowded.raw(HEALTH, half_close=False).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 429 ")
    assert b"\r\nRetry-After: 1\r\n" in head
    assert b'\r\nRateLimit-Policy: "MAX_CONNECTIONS_ADDRESS";q=2\r\n' in head
    assert b"\r\nX-Request-ID: " in head
    assert json.loads(body)["code"] == "RATE_LIMITED"
    held[0].request("GET", "/health")
    assert held[0].getresponse().read()
    for connection in held:
        connection.close()
    assert any(crowded.raw(HEALTH).startswith(b"HTTP/1.1 200 ") for _ in range(500))


def test_connections_over_twice_the_limit_are_dropped(crowded: Running) -> None:
    held = []

    def come() -> bytes:
        sock = socket.create_connection(("127.0.0.1", crowded.port), timeout=10)
        held.append(sock)
        if len(held) <= 2:
            sock.sendall(HEALTH)
        return sock.recv(12)

    try:
        answers = [come() for _ in range(8)]
    finally:
        for sock in held:
            sock.close()
    assert answers == [b"HTTP/1.1 200"] * 2 + [b"HTTP/1.1 429"] * 2 + [b""] * 4


def test_connections_of_other_workers_count(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "origin", lambda address: address)
    server = Server(listen("127.0.0.1", 0), served.app, max_per_address=2)
    held, served_by, answers = [], [], []
    with gevent_socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        for _ in range(3):
            client = gevent_socket.create_connection(listener.getsockname(), timeout=10)
            held.append(client)
            served_by.append(gevent.spawn(server.take_over, listener.accept()[0], HEALTH))
            answers.append(client.recv(12))
    assert answers == [b"HTTP/1.1 200"] * 2 + [b"HTTP/1.1 429"]
    for client in held:
        client.close()
    gevent.joinall(served_by, timeout=10, raise_error=True)
    assert len(server.connection_limit) == 0
    server.close()
