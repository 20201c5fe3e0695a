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
            waits = _waits(server.port, path, {field: text})
            longest = max(waits)
            yield Row(
                f"stall: {path} {shape}",
                f"{len(text)} bytes",
                len(waits),
                Sample(longest),
                floor="50 ms",
                met=longest < MAX_WAIT_SECONDS,
            )


def _waits(port: int, path: str, body: dict[str, str]) -> list[float]:
    """Return the seconds of each request for `/health` while another one is served."""
    is_served = threading.Event()

    def send() -> None:
        _call(port, "POST", path, json.dumps(body))
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


def _call(port: int, method: str, path: str, body: str | None) -> None:
    connection = http.client.HTTPConnection(HOST, port, timeout=120)
    connection.request(
        method, path, body, {"Content-Type": "application/json", "X-Tenant-ID": "stalls"}
    )
    connection.getresponse().read()
    connection.close()
