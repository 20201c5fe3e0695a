"""Pauses of a cluster: planned move and loss of a node, with a large tenant; cost of passing a
request on.

    python tests/bench/cluster.py [--facts 1000000] [--ttl-ms 2000]

It starts nodes against the PostgreSQL server that the tests use, in a schema of its own, and
prints: the pause of a tenant whose shard moves, its unavailability after its node was killed, the
time to open its shard, and the latency of a request to its node and to another one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.nodes import Nodes, post
from support.postgres import OwnServer, answering, schema

from kbcore.node.shard_layout import shard_of

TENANT = "large"
BATCH = 10_000


class Prober(threading.Thread):
    """Writes to a tenant through a node all the time; `gap` is the longest time without a
    success.
    """

    def __init__(self, node, tenant=TENANT):
        super().__init__(daemon=True)
        self._node, self._tenant = node, tenant
        self._end = False
        self.gap, self.errors, self.count = 0.0, {}, 0
        self.start()

    def run(self):
        last, number = time.monotonic(), 0
        while not self._end:
            number += 1
            try:
                status, answer, _ = post(
                    self._node, "/tell", {"predicate": "n", "args": [str(number)]}, self._tenant
                )
            except (OSError, http.client.HTTPException) as error:
                status, answer = 0, {"details": {"reason": type(error).__name__}}
            now = time.monotonic()
            if status == 200:
                self.gap, last = max(self.gap, now - last), now
                self.count += 1
            else:
                reason = f"{status} {(answer.get('details') or {}).get('reason')}"
                self.errors[reason] = self.errors.get(reason, 0) + 1
            threading.Event().wait(0.005)

    def stop(self):
        self._end = True
        self.join()
        return self.gap


def load(node, facts):
    for start in range(0, facts, BATCH):
        rows = [
            {"predicate": f"p{n % 7}", "args": [f"subject{n}", f"object{n % 5000}"]}
            for n in range(start, min(start + BATCH, facts))
        ]
        status, answer, _ = post(node, "/assert/facts", {"facts": rows}, TENANT, seconds=120)
        assert status == 200, answer


def latencies(node, tenant, count=3000):
    connection = http.client.HTTPConnection(*node.address)
    body = json.dumps({"predicate": "n", "args": ["1"]})
    headers = {"Content-Type": "application/json", "X-Tenant-ID": tenant}
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        connection.request("POST", "/query", body, headers)
        connection.getresponse().read()
        times.append((time.perf_counter() - begun) * 1000)
    connection.close()
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--ttl-ms", type=int, default=2000)
    options = parser.parse_args()
    url = answering()
    own = None if url else OwnServer()
    server = url or own.url
    with (
        tempfile.TemporaryDirectory() as folder,
        schema(server) as place,
        Nodes(Path(folder), place, 2, CLUSTER_TTL_MS=str(options.ttl_ms)) as nodes,
    ):
        nodes.settled()
        shard = shard_of("default", TENANT, nodes.shards)
        home = 0 if shard in nodes.shards_of(0) else 1
        other = 1 - home
        begun = time.monotonic()
        load(nodes.nodes[home], options.facts)
        print(f"loaded {options.facts} facts in {time.monotonic() - begun:.1f} s", flush=True)
        assert post(nodes.nodes[home], "/admin/snapshot", {})[0] == 200
        for direction in (other, home):
            prober = Prober(nodes.nodes[home])
            body = {"shard": shard, "node": nodes.name(direction)}
            begun = time.monotonic()
            assert post(nodes.nodes[0], "/admin/cluster/move", body)[0] == 200
            nodes.settled(seconds=300)
            took = time.monotonic() - begun
            gap = prober.stop()
            print(
                f"move of the shard: {took:.1f} s, pause {gap * 1000:.0f} ms,"
                f" {prober.count} writes, errors {prober.errors or 'none'}",
                flush=True,
            )
        direct, passed = (latencies(nodes.nodes[n], TENANT) for n in (home, other))
        print(
            f"a read at its node: p50 {direct[0]:.3f} ms, p99 {direct[1]:.3f} ms; through another node:"
            f" p50 {passed[0]:.3f} ms, p99 {passed[1]:.3f} ms; difference at p50 {passed[0] - direct[0]:.3f} ms",
            flush=True,
        )
        small = nodes.tenants_of(home, 1)[0]
        probers = {name: Prober(nodes.nodes[other], name) for name in (TENANT, small)}
        threading.Event().wait(1.0)
        nodes.nodes[home].kill()
        nodes.settled(alive=[other], seconds=300)
        threading.Event().wait(1.0)
        for name, prober in probers.items():
            gap = prober.stop()
            label = f"{options.facts} facts" if name == TENANT else "few facts"
            print(
                f"killed node, tenant with {label}: {gap:.2f} s without an answer"
                f" (TTL {options.ttl_ms / 1000:.1f} s), errors {prober.errors or 'none'}",
                flush=True,
            )
    if own is not None:
        own.remove()


if __name__ == "__main__":
    main()
