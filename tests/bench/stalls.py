"""Stalls: the longest wait of another tenant's request while one request with a hostile text is served."""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from http_routes import HOST, Server
from measure import Effort, Sample
from table import Row

MAX_WAIT_SECONDS = 0.05
"""The aim on an idle machine."""


def stalls(effort: Effort, peers: Any) -> Iterator[Row]:
    """The longest of the waits for `/health`, for each route and shape of text."""
    size = 20_000 if effort.small else 1_000_000
    rules = "".join(f"h{i}(?x) :- q(?x, a{i}).\n" for i in range(100 if effort.small else 2000))
    with tempfile.TemporaryDirectory() as folder, closing(Server(folder)) as server:
        for path, field, shape, text in (
            ("/ask", "text", "p(", "p(" * (size // 2)),
            ("/check", "text", "p(", "p(" * (size // 2)),
            ("/check", "text", "rules", rules),
            ("/execute", "command", "p(", "p(" * (size // 2)),
            ("/context/ingest", "text", "p(", "p(" * (size // 2)),
            ("/context/ingest", "text", "facts", "p(a, b).\n" * (size // 9)),
            ("/preview", "teach", "rules", rules),
            ("/teach", "text", "rules", rules),
        ):
            yield _row(server.port, path, shape, json.dumps({field: text}).encode())
        text_bytes, bulk_bytes = (50_000, 200_000) if effort.small else (4 << 20, 32 << 20)
        for path, most in (
            ("/ask", text_bytes),
            ("/mcp", text_bytes),
            ("/assert/facts", bulk_bytes),
        ):
            for shape, element in ELEMENTS.items():
                count = (most - 20) // (len(element) + 1)
                body = b'{"facts":[%b]}' % b",".join([element] * count)
                yield _row(server.port, path, f"json {shape}", body)


ELEMENTS = {
    "facts": b'{"predicate":"likes","args":["ann12345","bob54321"]}',
    "arrays": b"[]",
    "numbers": b"1",
    "floats": b"1e20",
    "deep arrays": b"[" * 60 + b"]" * 60,
}
"""Elements of JSON arrays that take long to parse."""


def _row(port: int, path: str, shape: str, body: bytes) -> Row:
    waits = _waits(port, path, body)
    longest = max(waits)
    return Row(
        f"stall: {path} {shape}",
        f"{len(body)} bytes",
        len(waits),
        Sample(longest),
        floor="50 ms",
        met=longest < MAX_WAIT_SECONDS,
    )


def _waits(port: int, path: str, body: bytes) -> list[float]:
    """Return the seconds of each request for `/health` while another one is served."""
    is_served = threading.Event()

    def send() -> None:
        _call(port, "POST", path, body)
        is_served.set()

    thread = threading.Thread(target=send)
    waits = []
    thread.start()
    while not is_served.is_set() or not waits:
        began = time.perf_counter()
        _call(port, "GET", "/health", None)
        waits.append(time.perf_counter() - began)
    thread.join()
    return waits


def _call(port: int, method: str, path: str, body: bytes | None) -> None:
    connection = http.client.HTTPConnection(HOST, port, timeout=120)
    connection.request(
        method, path, body, {"Content-Type": "application/json", "X-Tenant-ID": "stalls"}
    )
    connection.getresponse().read()
    connection.close()
