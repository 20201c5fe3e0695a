"""The memory limit for the bodies of all active requests, which every request releases."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.http import Served, error_of, serve_in_memory
from support.sockets import Running

from kbcore.errors import NotReady
from kbserver.http.body_memory import Bodies, TooManyBodies
from kbserver.http.json_body import BodyLimit, read_body

MOST = 200_000
BIG = json.dumps({"predicate": "p", "args": ["x" * 60_000]}).encode()
BULK = json.dumps(
    {"facts": [{"predicate": "p", "args": [str(n), "x" * 50_000]} for n in range(3)]}
).encode()
JSON_BODY = {"Content-Type": "application/json", "X-Tenant-ID": "t"}


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory(max_bodies_bytes=MOST) as found:
        yield found


def counted(served: Served) -> int:
    bodies: Bodies = served.app.extensions["kbcore.bodies"]
    return bodies.bytes


def test_the_sum_of_bodies_is_limited() -> None:
    bodies, first, second = Bodies(100), {}, {}
    bodies.hold(first, 60)
    bodies.check(second, 40)
    with pytest.raises(TooManyBodies) as refused:
        bodies.check(second, 41)
    assert refused.value.details == {"limit": "MAX_BODIES_BYTES", "value": 100}
    bodies.hold(second, 40)
    with pytest.raises(NotReady):
        bodies.hold(first, 61)
    assert bodies.bytes == 100
    bodies.release(first)
    bodies.release(first)
    assert bodies.bytes == 40
    bodies.hold(second, 100)
    bodies.release(second)
    assert (bodies.bytes, first, second) == (0, {}, {})


def test_a_single_body_may_exceed_the_limit() -> None:
    bodies, only, other = Bodies(100), {}, {}
    bodies.hold(only, 5000)
    with pytest.raises(TooManyBodies):
        bodies.hold(other, 1)
    assert bodies.bytes == 5000


def test_a_body_read_again_counts_once() -> None:
    bodies, environ = Bodies(100), {}
    for size in (80, 80, 30):
        bodies.hold(environ, size)
    assert bodies.bytes == 80


def test_counts_are_exact_with_threads() -> None:
    bodies = Bodies(1 << 40)

    def work() -> None:
        for size in range(1, 3000):
            environ: dict[str, Any] = {}
            bodies.hold(environ, size)
            bodies.hold(environ, size + 7)
            bodies.release(environ)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bodies.bytes == 0


class Promise(io.BytesIO):
    """A body that must not be touched."""

    def read(self, size: int | None = -1) -> bytes:
        raise AssertionError("the body was read")


def test_an_excessive_body_is_refused_before_it_is_read() -> None:
    bodies = Bodies(100)
    bodies.hold({}, 60)
    with pytest.raises(TooManyBodies):
        read_body(
            {"CONTENT_LENGTH": "50", "wsgi.input": Promise()},
            BodyLimit(1000, "MAX_BODY_BYTES"),
            bodies,
        )


def test_a_body_counts_with_the_bytes_received() -> None:
    bodies, seen = Bodies(1 << 30), []

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            seen.append(bodies.bytes)
            return super().read(size)

    for said in ({"CONTENT_LENGTH": "200000"}, {"wsgi.input_terminated": True}):
        environ: dict[str, Any] = {**said, "wsgi.input": Slow(b"x" * 200_000)}
        assert read_body(environ, BodyLimit(1 << 20, "MAX_BODY_BYTES"), bodies) == b"x" * 200_000
        assert bodies.bytes == 200_000
        bodies.release(environ)
    assert seen == [65_536, 131_072, 200_000, 0, 65_536, 131_072, 196_608, 200_000]


class During(io.BytesIO):
    """A body; when its last part is read, something else happens first, once."""

    def __init__(self, body: bytes, happens: Callable[[], None]) -> None:
        super().__init__(body)
        self._happens: Callable[[], None] | None = happens
        self._left = len(body)

    def read(self, size: int | None = -1) -> bytes:
        part = super().read(size)
        self._left -= len(part)
        if not self._left and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return part


WAYS = [
    ("/tell", {}),  # the fast path
    ("/assert/fact", {"Prefer": "handling=strict"}),  # Flask's
    ("/tell", {"Idempotency-Key": "k"}),
    ("/mcp", {"Accept": "application/json, text/event-stream"}),
    ("/aggregate", {}),
]


@pytest.mark.parametrize(("path", "headers"), WAYS)
def test_every_route_is_counted(served: Served, path: str, headers: dict[str, str]) -> None:
    refusals: list[dict[str, Any]] = []

    def during() -> None:
        assert counted(served) == len(BULK)
        body = Promise(BIG)
        response = served.app.test_client().post(
            path, input_stream=body, content_length=len(BIG), headers={**JSON_BODY, **headers}
        )
        refusals.append(error_of(response, 503, "NOT_READY"))
        assert response.headers["Retry-After"] == "1"
        assert counted(served) == len(BULK)

    response = served.app.test_client().post(
        "/assert/facts",
        input_stream=During(BULK, during),
        content_length=len(BULK),
        headers=JSON_BODY,
    )
    assert (response.status_code, response.get_json()["asserted"]) == (200, 3)
    assert [refusal["details"] for refusal in refusals] == [
        {"limit": "MAX_BODIES_BYTES", "value": MOST}
    ]
    assert counted(served) == 0
    assert served.app.test_client().post("/tell", data=BIG, headers=JSON_BODY).status_code == 200


@pytest.mark.parametrize(("path", "headers"), WAYS)
@pytest.mark.parametrize("body", [BIG, b"{}", b"{", b'{"predicate": 1}', b""])
def test_bytes_are_released_after_every_outcome(
    served: Served, path: str, headers: dict[str, str], body: bytes
) -> None:
    for tenant in ("t", "not a name"):
        served.app.test_client().post(
            path, data=body, headers={**JSON_BODY, **headers, "X-Tenant-ID": tenant}
        )
        assert counted(served) == 0


def test_the_fast_path_releases_bytes_after_a_storage_failure(served: Served) -> None:
    served.store.broken = RuntimeError("no disk")
    assert served.client.post("/tell", {"predicate": "p", "args": ["a"]}).status_code == 500
    assert counted(served) == 0


def wait_for(held: Callable[[], int], wanted: int) -> None:
    end = time.monotonic() + 10
    while held() != wanted:
        assert time.monotonic() < end, (held(), wanted)


def head(length: int | None) -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    names = "".join(f"{name}: {value}\r\n" for name, value in JSON_BODY.items())
    return f"POST /assert/facts HTTP/1.1\r\nHost: localhost\r\n{names}{framing}\r\n\r\n".encode()


@pytest.mark.parametrize("chunked", [False, True])
def test_over_sockets_a_slow_body_counts_with_the_bytes_sent(served: Served, chunked: bool) -> None:
    running = Running(served.app)
    try:
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as slow:
            sent = BULK[:100_000]
            slow.sendall(
                head(None) + b"%x\r\n" % len(BULK) + sent if chunked else head(len(BULK)) + sent
            )
            # of a stated body the part that is being read counts already, of chunks what was read
            # of them
            wait_for(lambda: counted(served), 65_536 if chunked else 131_072)
            refused = running.raw(head(len(BULK)), half_close=False)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"\r\nRetry-After: 1\r\n" in refused
            assert b"\r\nConnection: close\r\n" in refused
            assert (
                json.loads(refused.split(b"\r\n\r\n", 1)[1])["details"]["limit"]
                == "MAX_BODIES_BYTES"
            )
            small = running.connection()
            small.request("POST", "/tell", b'{"predicate": "q", "args": ["a"]}', JSON_BODY)
            assert small.getresponse().status == 200
            small.close()
            slow.sendall(BULK[100_000:] + (b"\r\n0\r\n\r\n" if chunked else b""))
            assert slow.recv(65_536).startswith(b"HTTP/1.1 200 OK")
        wait_for(lambda: counted(served), 0)
        assert running.raw(head(len(BULK)) + BULK).startswith(b"HTTP/1.1 200 OK")
    finally:
        running.stop()


def test_a_disconnect_releases_the_bytes_of_the_body(served: Served) -> None:
    running = Running(served.app)
    try:
        assert running.raw(head(len(BULK)) + BULK[:70_000]).startswith(b"HTTP/1.1 400 ")
        wait_for(lambda: counted(served), 0)
    finally:
        running.stop()


def test_metrics_show_the_bytes(served: Served) -> None:
    shown: list[str] = []

    def during() -> None:
        shown.append(served.client.get("/metrics").text)

    stream = During(BULK, during)
    served.app.test_client().post(
        "/assert/facts", input_stream=stream, content_length=len(BULK), headers=JSON_BODY
    )
    assert f"\nsvc_http_body_bytes {len(BULK)}" in shown[0]
