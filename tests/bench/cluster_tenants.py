"""Many tenants on a cluster of three nodes: load, memory, steady use, a node that joins, one that
is lost.

    python tests/bench/cluster_tenants.py [--tenants 10000] [--facts 1000] [--shards 64]

It starts two nodes against the PostgreSQL server that the tests use, loads the tenants, measures
goals and writes of random tenants, starts a third node, kills one, and prints times and memory.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.nodes import Nodes, post
from support.postgres import OwnServer, answering, schema

CLIENTS = 4
RULE = "reachable(?x, ?z) :- link(?x, ?y), link(?y, ?z)."


class Client(threading.Thread):
    """Asks and tells random tenants through one node on a kept connection."""

    def __init__(self, address, tenants, seed, limit=None):
        super().__init__(daemon=True)
        self._address, self._tenants = address, tenants
        self._random = random.Random(seed)
        self._end = False
        self.times = {"/ask": [], "/tell": []}
        self.slowest, self.failures = 0.0, []
        self.start()

    def run(self):
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        number = 0
        while not self._end:
            number += 1
            tenant = self._random.choice(self._tenants)
            path = "/tell" if number % 4 == 0 else "/ask"
            fact = {"predicate": "seen", "args": [f"{tenant}-{number}"]}
            goal = {"predicate": "reachable", "args": [f"n{self._random.randrange(300)}", "?x"]}
            headers = {"Content-Type": "application/json", "X-Tenant-ID": tenant}
            begun = time.perf_counter()
            try:
                body = json.dumps(fact if path == "/tell" else goal)
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                text = answer.read().decode()
                status = answer.status
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                status, text = 0, type(error).__name__
            took = time.perf_counter() - begun
            self.slowest = max(self.slowest, took)
            if status == 200:
                self.times[path].append(took * 1000)
            else:
                self.failures.append(f"{status} {text}")
        connection.close()

    def stop(self):
        self._end = True
        self.join()


def used(node):
    """Return the memory of a process in MB, now and at most."""
    text = Path(f"/proc/{node.process.pid}/status").read_text()
    return tuple(
        int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) // 1024 for key in ("VmRSS", "VmHWM")
    )


def load(nodes, tenants, facts):
    names, mutex = iter(tenants), threading.Lock()

    def work(node):
        rng = random.Random(node.address[1])
        while True:
            with mutex:
                tenant = next(names, None)
            if tenant is None:
                return
            rows = [
                {"predicate": "link", "args": [f"n{rng.randrange(300)}", f"n{number}"]}
                for number in range(facts)
            ]
            assert post(node, "/assert/facts", {"facts": rows}, tenant, seconds=300)[0] == 200
            assert post(node, "/teach", {"text": RULE}, tenant, seconds=300)[0] == 200

    threads = [threading.Thread(target=work, args=(node,)) for node in nodes for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measured(nodes, alive, tenants, what, seconds=None, until=None):
    """Print the rate and latencies of clients during some seconds, or until something is done."""
    clients = [
        Client(nodes.nodes[alive[n % len(alive)]].address, tenants, n) for n in range(CLIENTS)
    ]
    begun = time.perf_counter()
    if until is not None:
        until()
    else:
        threading.Event().wait(seconds)
    for client in clients:
        client.stop()
    took = time.perf_counter() - begun
    for path in ("/ask", "/tell"):
        times = sorted(t for client in clients for t in client.times[path])
        print(
            f"{what}: {path} {len(times) / took:.0f}/s, p50 {statistics.median(times):.2f} ms,"
            f" p99 {times[int(len(times) * 0.99)]:.1f} ms"
        )
    print(
        f"{what}: {took:.1f} s, slowest request {max(c.slowest for c in clients):.2f} s,"
        f" {sum(len(c.failures) for c in clients)} without an answer",
        flush=True,
    )
    for text, count in Counter(text for c in clients for text in c.failures).most_common(3):
        print(f"    {count} times: {text[:200]}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--facts", type=int, default=1000)
    parser.add_argument("--shards", type=int, default=64)
    options = parser.parse_args()
    url = answering()
    own = None if url else OwnServer()
    tenants = [f"tenant{number}" for number in range(options.tenants)]
    with (
        tempfile.TemporaryDirectory() as folder,
        schema(url or own.url) as place,
        Nodes(Path(folder), place, 2, shards=options.shards, CLUSTER_TTL_MS="2000") as nodes,
    ):
        nodes.settled(seconds=120)
        begun = time.monotonic()
        load(nodes.nodes, tenants, options.facts)
        took = time.monotonic() - begun
        total = options.tenants * options.facts
        print(f"loaded {options.tenants} tenants, {total:,} facts in {took:.0f} s", flush=True)
        print("memory of the nodes in MB, now and at most:", *(used(node) for node in nodes.nodes))
        begun = time.monotonic()
        assert post(nodes.nodes[0], "/admin/snapshot", {}, seconds=600)[0] == 200
        print(f"snapshots of all shards: {time.monotonic() - begun:.1f} s", flush=True)
        measured(nodes, [0, 1], tenants, "two nodes", seconds=10)
        nodes.add()
        measured(nodes, [0, 1], tenants, "a node joins", until=lambda: nodes.settled(seconds=600))
        print("memory of the nodes in MB, now and at most:", *(used(node) for node in nodes.nodes))
        measured(nodes, [0, 1, 2], tenants, "three nodes", seconds=10)
        nodes.nodes[2].kill()
        measured(
            nodes,
            [0, 1],
            tenants,
            "a node is lost",
            until=lambda: nodes.settled(alive=[0, 1], seconds=600),
        )
        print("memory of the nodes in MB, now and at most:", *(used(n) for n in nodes.nodes[:2]))
        for node in nodes.nodes[:2]:
            node.kill()
        begun = time.monotonic()
        for number in (0, 1):
            nodes.start(number)
        nodes.settled(alive=[0, 1], seconds=600)
        print(f"start of two nodes after both were killed: {time.monotonic() - begun:.1f} s")
        print("memory of the nodes in MB, now and at most:", *(used(n) for n in nodes.nodes[:2]))
    if own is not None:
        own.remove()


if __name__ == "__main__":
    main()
