"""The server over real sockets: framing, keep-alive, timeouts, shutdown."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from support.certificates import Authority, secured
from support.http import Served, serve_in_memory
from support.sockets import Running

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbserver import serve
from kbserver.http.request_body import Times
from kbserver.serve import Handler, announcement


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory(max_body_bytes=1_000_000) as found:
        yield found


@pytest.fixture(params=["plain", "tls"])
def wire(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The options of a server on one kind of connection."""
    return secured(Authority(tmp_path)) if request.param == "tls" else {}


@pytest.fixture
def running(served: Served, wire: dict[str, Any]) -> Iterator[Running]:
    found = Running(served.app, **wire)
    yield found
    found.stop()


TELL = b'{"predicate": "p", "args": ["a"]}'
HEADERS = {"X-Tenant-ID": "t", "Content-Type": "application/json"}


def post(
    connection: http.client.HTTPConnection, path: str, body: bytes, **headers: str
) -> tuple[int, bytes, Any]:
    connection.request("POST", path, body, {**HEADERS, **headers})
    response = connection.getresponse()
    return response.status, response.read(), response.headers


def test_keep_alive_with_one_send_per_response(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends: list[int] = []
    options: list[int] = []
    write = Handler._sendall

    def counted(self: Handler, data: bytes | bytearray) -> None:
        options.append(self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        sends.append(len(data))
        write(self, data)

    monkeypatch.setattr(Handler, "_sendall", counted)
    connection = running.connection()
    for _ in range(3):
        assert post(connection, "/tell", TELL)[:2] == (200, b"Fact Asserted: p(a)")
        assert post(connection, "/query", TELL)[0] == 200
        connection.request("GET", "/health")
        assert connection.getresponse().read().startswith(b'{"status":"healthy"')
    assert len(sends) == 9
    assert all(options)
    connection.close()


def test_a_large_answer_arrives_whole(running: Running, served: Served) -> None:
    facts = [{"predicate": "p", "args": [str(number), "x" * 200]} for number in range(4000)]
    for start in range(0, 4000, 2000):
        body = {"facts": facts[start : start + 2000]}
        assert served.client.post("/assert/facts", body).status_code == 200
    connection = running.connection()
    status, body, headers = post(connection, "/query", b'{"predicate": "p", "args": ["?x", "?y"]}')
    assert (status, int(headers["Content-Length"])) == (200, len(body))
    assert len(body) > 1 << 20
    assert len(json.loads(body)) == 4000
    connection.close()


@pytest.mark.parametrize(
    ("wish", "said"), [(b"", b"close"), (b"Connection: keep-alive\r\n", b"keep-alive")]
)
def test_old_clients(running: Running, wish: bytes, said: bytes) -> None:
    head, _ = running.raw(b"GET /health HTTP/1.0\r\n" + wish + b"\r\n").split(b"\r\n\r\n")
    assert [line for line in head.split(b"\r\n") if line.lower().startswith(b"connection")] == [
        b"Connection: " + said
    ]


def test_head_has_no_body(running: Running) -> None:
    raw = running.raw(
        b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    first, rest = raw.split(b"\r\n\r\n", 1)
    assert b"Content-Length: " in first
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")


def test_head_of_a_response_without_a_length_has_no_body(running: Running) -> None:
    """The end of a chunked body after a HEAD would be read as the start of the next response."""
    raw = running.raw(
        b"HEAD /admin/backup HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    first, rest = raw.split(b"\r\n\r\n", 1)
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n"), rest[:40]


def error_in(raw: bytes, status: int, code: str = "VALIDATION_ERROR") -> None:
    head, body = raw.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert b"X-Request-ID: " in head
    assert b"Connection: close" in head
    found = json.loads(body)
    assert list(found) == ["code", "message", "details"]
    assert found["code"] == code


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", 400),
        (b"GET /health HTTP/3.0\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 150 + b"\r\n", 431),
        (b"GET /health HTTP/1.1\r\nA: " + b"b" * 40_000 + b"\r\n\r\n", 431),
        (b"POST /tell HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400),
        (b"POST /tell HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 20\r\n\r\n{}", 400),
        (b"POST /tell HTTP/1.1\r\nContent-Length: -2\r\n\r\n{}", 400),
        (b"POST /tell HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n{}", 400),
        (b"POST /tell HTTP/1.1\r\nExpect: nothing\r\n\r\n", 417),
        (b"GET /health HTTP/1.1\r\nA: b", 400),
    ],
)
def test_malformed_requests(running: Running, raw: bytes, status: int) -> None:
    error_in(running.raw(raw), status)


START = b"POST /tell HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: t\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (START + b"Content-Length: 99\r\n\r\n{}", 400, "VALIDATION_ERROR"),
        (START + b"Content-Length: 2000000\r\n\r\n{}", 413, "PAYLOAD_TOO_LARGE"),
        (
            START + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
            400,
            "VALIDATION_ERROR",
        ),
        (START + b"Transfer-Encoding: chunked\r\n\r\n\r\n{}\r\n0\r\n\r\n", 400, "VALIDATION_ERROR"),
        (
            START + b"Transfer-Encoding: chunked\r\n\r\n;x=y\r\n{}\r\n0\r\n\r\n",
            400,
            "VALIDATION_ERROR",
        ),
        (START + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n", 400, "VALIDATION_ERROR"),
        (START + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", 400, "VALIDATION_ERROR"),
        (
            START + b"Transfer-Encoding: chunked\r\n\r\n" + b"186A0\r\n" + b"x" * 100_000 + b"\r\n",
            400,
            "VALIDATION_ERROR",
        ),
    ],
)
def test_incomplete_bodies(
    running: Running, served: Served, raw: bytes, status: int, code: str
) -> None:
    error_in(running.raw(raw), status, code)
    assert served.store.records == []


def test_chunks_are_bounded(running: Running) -> None:
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    error_in(
        running.raw(START + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 20),
        413,
        "PAYLOAD_TOO_LARGE",
    )


def test_chunked_bodies(running: Running) -> None:
    raw = running.raw(
        START
        + b"Transfer-Encoding: chunked\r\n\r\n5\r\n"
        + TELL[:5]
        + b"\r\n%x\r\n" % (len(TELL) - 5)
        + TELL[5:]
        + b"\r\n0\r\n\r\n"
    )
    assert raw.endswith(b"Fact Asserted: p(a)")


def test_a_small_unread_body_keeps_the_connection(running: Running) -> None:
    connection = running.connection()
    assert post(connection, "/nope", b"x" * 1000)[0] == 404
    local = connection.sock.getsockname()
    assert post(connection, "/tell", TELL)[0] == 200
    assert connection.sock.getsockname() == local
    connection.close()


def test_a_large_unread_body_closes_the_connection(running: Running) -> None:
    connection = running.connection()
    status, _, headers = post(connection, "/nope", b"x" * 500_000)
    assert (status, headers["Connection"]) == (404, "close")
    connection.close()


def test_expect_continue(running: Running) -> None:
    with running.socket() as sock:
        sock.sendall(START + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(TELL))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(TELL)
        assert b"200 OK" in sock.recv(10_000)


def test_no_continue_for_an_unwanted_body(running: Running) -> None:
    raw = running.raw(
        START.replace(b"/tell", b"/nope") + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        half_close=False,
    )
    error_in(raw, 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /hea", 408),
        (START + b"Content-Length: 50\r\n\r\n{", 400),
        (START + b"Transfer-Encoding: chunked\r\n\r\n5\r\nx", 400),
    ],
)
def test_slow_clients(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    raw: bytes,
    status: int,
    wire: dict[str, Any],
) -> None:
    monkeypatch.setattr(serve, "_LINGER_SECONDS", 0.05)
    running = Running(served.app, times=Times(head=0.05, body=0.05, idle=600), **wire)
    try:
        found = running.raw(raw, half_close=False)
        error_in(found, status)
        assert status != 408 or b"the headers took over 0.05 seconds" in found
    finally:
        running.stop()


def test_idle_connections_are_closed(served: Served, wire: dict[str, Any]) -> None:
    running = Running(served.app, times=Times(head=600, body=600, idle=0.05), **wire)
    try:
        assert running.raw(b"", half_close=False) == b""
    finally:
        running.stop()


@pytest.mark.parametrize(
    ("texts", "times"),
    [
        ({}, Times(10, 30, 75)),
        (
            {"HEADER_TIMEOUT_MS": "1", "BODY_TIMEOUT_MS": "120000", "IDLE_TIMEOUT_MS": "5500"},
            Times(0.001, 120, 5.5),
        ),
    ],
)
def test_timeouts_are_settings(
    texts: dict[str, str], times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Times] = []

    class Stopped(Exception):
        pass

    def server(listener: socket.socket, application: Any, *, times: Times, **more: Any) -> Any:
        listener.close()
        made.append(times)
        raise Stopped

    monkeypatch.setattr(serve, "Server", server)
    monkeypatch.setattr(serve.logs, "configure", lambda *given, **more: None)
    with pytest.raises(Stopped):
        serve.run(Config.from_env({"STORAGE_BACKEND": "memory", "PORT": "0", **texts}))
    assert made == [times]


@pytest.mark.parametrize(
    "name", ["HEADER_TIMEOUT_MS", "BODY_TIMEOUT_MS", "IDLE_TIMEOUT_MS", "MAX_BODIES_BYTES"]
)
@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5", str(1 << 50)])
def test_invalid_timeouts_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}='{text}'"):
        Config.from_env({name: text})


def test_an_application_that_raises(wire: dict[str, Any]) -> None:
    def explode(environ: Any, start_response: Callable[..., Any]) -> Any:
        raise RuntimeError("secret")

    running = Running(explode, **wire)
    try:
        raw = running.raw(b"GET / HTTP/1.1\r\nX-Request-ID: mine\r\n\r\n")
        error_in(raw, 500, "INTERNAL_ERROR")
        assert b"X-Request-ID: mine" in raw
        assert b"secret" not in raw
    finally:
        running.stop()


def test_stopping_lets_busy_requests_finish_and_closes_idle_ones(
    served: Served, wire: dict[str, Any]
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def application(environ: Any, start_response: Callable[..., Any]) -> Any:
        if environ["PATH_INFO"] == "/slow":
            begun.set()
            gevent.get_hub().threadpool.apply(go_on.wait, (10,))
        return served.app(environ, start_response)

    running = Running(application, **wire)
    idle, busy = running.connection(), running.connection()
    idle.request("GET", "/health")
    assert idle.getresponse().read()
    busy.request("GET", "/slow")
    assert begun.wait(10)
    running.signal()
    assert idle.sock.recv(10) == b""
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", running.port), timeout=10)
    go_on.set()
    response = busy.getresponse()
    assert (response.status, response.headers["Connection"]) == (404, "close")
    running.join()
    idle.close()
    busy.close()


def test_the_start_up_lines() -> None:
    config = Config(storage_dir="/data", fsync_policy="never")
    assert list(announcement(config, ("127.0.0.1", 9300))) == [
        "kbcore listens on http://127.0.0.1:9300",
        "data in /data, fsync policy never",
        "authentication is off: any local process can read and write",
    ]
    (_, backend, warning) = announcement(Config(host="::", storage_backend="memory"), ("::", 1))
    assert backend == "storage backend memory"
    assert warning.startswith("WARNING")
