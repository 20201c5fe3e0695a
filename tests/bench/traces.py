"""The cost of traces: /ask and /tell with 1 % of the requests sampled, beside no tracing.

One server gets the same requests over one connection with its tracer on and off in turn, block by
block, so that the load of the machine, and the layout of the process, are those of both. What is
compared is the CPU time of the server, all threads, whose inverse is the throughput of one core.

    python tests/bench/traces.py [--small]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

SEED = 67
PEOPLE = 200
RULES = "near(?x, ?y) :- knows(?x, ?y). near(?x, ?y) :- knows(?x, ?z), knows(?z, ?y)."
SAMPLED = 0.01
MAX_OVERHEAD = 0.02

COLLECTOR = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def collector() -> Iterator[str]:
    """A process that takes everything; its address."""
    process = subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


SERVER = """
import signal
from gevent import monkey
monkey.patch_all()
from kbcore.tracing import spans
from kbserver.cli import main
traced = None
def switch(number, frame):
    global traced
    traced = traced or spans.tracer
    spans.use_tracer(traced if number == signal.SIGUSR1 else None)
signal.signal(signal.SIGUSR1, switch)
signal.signal(signal.SIGUSR2, switch)
main()
"""
"""`kbcore serve` whose tracer is turned on and off by signals."""


class Requests:
    """Sends requests to a server over one connection."""

    def __init__(self, folder: str, url: str) -> None:
        flags = ["--port", "0", "--storage-dir", folder, "--fsync-policy", "never"]
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(SAMPLED),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, "serve", "--log-level", "WARN", *flags],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip().rpartition(":")[2]
        self.connection = http.client.HTTPConnection("127.0.0.1", int(port))

    def trace(self, *, is_on: bool) -> None:
        """Turn the tracer on or off, before the next request."""
        self.process.send_signal(signal.SIGUSR1 if is_on else signal.SIGUSR2)
        self.connection.request("GET", "/health")
        self.connection.getresponse().read()

    def post(self, path: str, body: bytes) -> None:
        """Send a request; it must succeed."""
        headers = {"Content-Type": "application/json", "X-Tenant-ID": "bench"}
        self.connection.request("POST", path, body, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(content.decode())

    def cpu_seconds(self) -> float:
        """Return the CPU time of the threads of the server so far."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9

    def block(self, path: str, bodies: list[bytes]) -> float:
        """Return the CPU seconds of a request in the server, the mean of a block."""
        begun = self.cpu_seconds()
        for body in bodies:
            self.post(path, body)
        return (self.cpu_seconds() - begun) / len(bodies)

    def close(self) -> None:
        """Stop the server."""
        self.connection.close()
        self.process.terminate()
        self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


def bodies(path: str, count: int, chance: random.Random) -> list[bytes]:
    """Requests of a route."""
    people = [f"p{chance.randrange(PEOPLE)}" for _ in range(count + 1)]
    if path == "/ask":
        each = [{"predicate": "near", "args": [person, "?who"]} for person in people[1:]]
    else:
        each = [{"predicate": "met", "args": [a, b]} for a, b in pairwise(people)]
    return [json.dumps(body).encode() for body in each]


def measure(requests: Requests, blocks: int, size: int) -> dict[str, tuple[float, float]]:
    """Return the CPU seconds of a request of each route, without and with the tracer."""
    chance = random.Random(SEED)
    times: dict[tuple[str, bool], list[float]] = {}
    for number in range(blocks + 2):
        for path in ("/ask", "/tell"):
            part = bodies(path, size, chance)
            for is_on in (False, True) if number % 2 else (True, False):
                requests.trace(is_on=is_on)
                seconds = requests.block(path, part)
                if number >= 2:  # then everything is loaded
                    times.setdefault((path, is_on), []).append(seconds)
    return {
        path: (statistics.median(times[path, False]), statistics.median(times[path, True]))
        for path in ("/ask", "/tell")
    }


def main() -> int:
    """Measure, print a table, and return 1 if a route costs more than it may."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    blocks, size = (2, 50) if small else (60, 100)
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder, collector() as url:
        requests = Requests(folder, url)
        try:
            requests.post("/execute", json.dumps({"command": RULES}).encode())
            for number in range(PEOPLE * 3):
                known = [f"p{number % PEOPLE}", f"p{chance.randrange(PEOPLE)}"]
                fact = {"predicate": "knows", "args": known}
                requests.post("/tell", json.dumps(fact).encode())
            measured = measure(requests, blocks, size)
        finally:
            requests.close()
    print(f"{'route':6} {'off':>10} {'on':>10}  overhead")
    for path, (off, on) in measured.items():
        print(f"{path:6} {off * 1e6:7.1f} µs {on * 1e6:7.1f} µs  {on / off - 1:+.2%}")
    exceeded = any(on / off - 1 > MAX_OVERHEAD for off, on in measured.values())
    return int(exceeded and not small)


if __name__ == "__main__":
    sys.exit(main())
