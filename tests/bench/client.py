"""Overhead of the Python client: the time of a request through it and through plain httpx, and of
its import.

    python tests/bench/client.py [REQUESTS]

Both send the same goal to the same application in this process, whose answer is fixed, so that the
figures contain neither a server nor a network. The order alternates, and the median is printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import httpx

from kbcore_client import Settings, connect

ROW = {"predicate": "parent", "args": ["ann", "bob"], "negated": False, "scope": None}
ANSWER = json.dumps([ROW]).encode()
STORED = b'{"asserted":1,"updated":0,"failed":0,"errors":[],"timestamp":1}'
HEADERS = {"X-Database": "default", "X-Tenant-ID": "default", "Content-Type": "application/json"}
ROUND = 50


def answer(request: httpx.Request) -> httpx.Response:
    """Answer every request with a fixed answer."""
    content = ANSWER if request.url.path == "/ask" else STORED
    return httpx.Response(200, headers={"Content-Type": "application/json"}, content=content)


def microseconds(call: Callable[[], object]) -> float:
    """Return the time of a call, as the mean of a round."""
    start = perf_counter()
    for _ in range(ROUND):
        call()
    return (perf_counter() - start) / ROUND * 1e6


def compare(name: str, plain: Callable[[], object], client: Callable[[], object], n: int) -> None:
    """Print the medians of two calls and their difference."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(max(3, n // ROUND)):
        times[0].append(microseconds(plain))
        times[1].append(microseconds(client))
    first, second = median(times[0]), median(times[1])
    print(f"{name}: httpx {first:.0f} us, client {second:.0f} us, overhead {second - first:.0f} us")


def import_seconds(statement: str, repeat: int = 7) -> float:
    """Return the median time in which a new interpreter executes a statement."""
    times = []
    for _ in range(repeat):
        start = perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        times.append(perf_counter() - start)
    return median(times)


def main() -> None:
    """Print the overhead of a read and of a write, and the time to import the client and its
    library.
    """
    empty = import_seconds("pass")
    for statement in ("import kbcore_client", "import httpx", "from kbcore_client import connect"):
        print(f"{statement}: {(import_seconds(statement) - empty) * 1000:.0f} ms")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    plain = httpx.Client(base_url="http://bench", transport=httpx.MockTransport(answer))
    kb = connect("http://bench", settings=Settings())
    kb._connection._client = httpx.Client(transport=httpx.MockTransport(answer))
    goal = {"text": "parent(ann, ?x)"}
    fact = {"facts": [{"predicate": "parent", "args": ["ann", "bob"]}]}
    key = {**HEADERS, "Idempotency-Key": "0123456789abcdef"}
    compare(
        "ask",
        lambda: plain.post("/ask", json=goal, headers=HEADERS).json(),
        lambda: kb.ask("parent(ann, ?x)").one(),
        count,
    )
    compare(
        "tell",
        lambda: plain.post("/assert/facts", json=fact, headers=key).json(),
        lambda: kb.tell("parent", ["ann", "bob"]),
        count,
    )


if __name__ == "__main__":
    main()
