"""Automatic failover between real processes: a leader that is killed, paused, cut off or alone."""

from __future__ import annotations

import json
import signal
import time

from support.clusters import TTL_MS, Clients, Cluster, standing, state, until
from support.replicas import numbers


def tell(server, n):
    status, body = server.post("/tell", {"predicate": "n", "args": [str(n)]})
    return status, body if status == 200 else json.loads(body)


def test_a_killed_or_paused_leader_is_replaced(tmp_path):
    with Cluster(tmp_path, f"file:{tmp_path}/coordinator") as cluster:
        clients = Clients(cluster)
        took = []
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            leader = cluster.whole()
            clients.new_facts()
            before = len(clients.acknowledged)
            until(lambda before=before: len(clients.acknowledged) > before + 30)
            term, begun = standing(cluster.nodes[leader])["epoch"], time.monotonic()
            cluster.signal(leader, fault)
            others = [n for n in range(3) if n != leader]
            successor = cluster.leader(others)
            took.append(time.monotonic() - begun)
            assert standing(cluster.nodes[successor])["epoch"] > term
            before = len(clients.acknowledged)
            until(lambda before=before: len(clients.acknowledged) > before + 30)
            if fault == signal.SIGKILL:
                cluster.nodes[leader].process.wait(60)
            cluster.heal()
            cluster.whole()
            assert standing(cluster.nodes[leader])["role"] == "FOLLOWER"
        clients.stop()
        clients.check()
        assert clients.reads > 0
        print(
            f"a new leader after {took[0]:.2f} s (killed), {took[1]:.2f} s (paused); TTL {TTL_MS} ms"
        )


def test_a_follower_that_is_not_in_sync_never_takes_over(tmp_path):
    with Cluster(tmp_path, f"file:{tmp_path}/coordinator", count=2) as cluster:
        assert cluster.whole() == 0
        first, second = cluster.nodes
        assert tell(first, 1)[0] == 200
        cluster.proxies[0].cut()  # the follower does not reach its leader any more
        until(lambda: not state(first)["writable"])
        status, answer = tell(first, 2)
        assert (status, answer["details"]["outcome"]) == (503, "not_done")
        assert numbers(first) == {1}
        cluster.kill(0)
        until(lambda: "there is no leader" in tell(second, 3)[1]["message"])
        # The lease is free: the follower looks for a leader several times and does not lead.
        silent = standing(second)["leader"]["lastContactMs"] + 2 * TTL_MS
        until(lambda: standing(second)["leader"]["lastContactMs"] > silent)
        assert standing(second)["role"] == "FOLLOWER"
        cluster.heal()
        assert cluster.whole() == 0
        assert tell(cluster.nodes[0], 4)[0] == 200
        status, body = second.post("/admin/promote", {"force": True})
        assert (status, json.loads(body)["code"]) == (409, "CONFLICT")
        until(lambda: "leader" in tell(second, 5)[1]["details"])  # it has found its leader again
        status, answer = tell(second, 5)
        assert (status, answer["details"]["leader"]) == (409, cluster.proxies[0].url)
        assert cluster.nodes[0].stop() == 0
        until(lambda: standing(second)["role"] == "LEADER")  # at once: the lease was released
        until(lambda: tell(second, 6)[1]["details"]["reason"] == "no follower in sync")
        assert numbers(second) == {1, 4}
