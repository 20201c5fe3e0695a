"""Random faults on a cluster under load: kills, pauses and partitions, one or several at a time."""

from __future__ import annotations

import random
import signal
import time
from urllib.parse import urlsplit

import pytest
from support.clusters import Clients, Cluster, until
from support.postgres import schema
from support.proxies import Proxy
from support.replicas import standing

SECONDS = 4 * 3600
"""A long run begins no round after this time."""


class Faults:
    """The faults of one round, drawn with a seed."""

    def __init__(self, cluster, rng, links=()):
        self._cluster = cluster
        self._rng = rng
        self._links = links
        self.counts = {}

    def inject(self, leader):
        """Do something to one node, most often the leader, or to two."""
        others = [n for n in range(len(self._cluster.nodes)) if n != leader]
        targets = [leader if self._rng.random() < 0.6 else self._rng.choice(others)]
        if self._rng.random() < 0.2:
            targets.append(self._rng.choice([n for n in (leader, *others) if n not in targets]))
        for target in targets:
            choices = [self.kill, self.pause, self.pause, self.cut, self.hold]
            if self._links:
                choices += [self.isolate, self.isolate]
            fault = self._rng.choice(choices)
            self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
            fault(target)

    def kill(self, target):
        self._cluster.kill(target)

    def pause(self, target):
        self._cluster.signal(target, signal.SIGSTOP)

    def cut(self, target):
        self._cluster.proxies[target].cut()

    def hold(self, target):
        self._cluster.proxies[target].hold()

    def isolate(self, target):
        """Cut a node off from the other nodes, and from the coordinator."""
        self._cluster.proxies[target].hold()
        self._links[target].hold()

    def heal(self):
        for link in self._links:
            link.heal()
        self._cluster.heal()


def play(cluster, rounds, seed, links=()):
    """Play rounds of faults; return how many, and print what was seen."""
    rng, begun, played = random.Random(seed), time.monotonic(), 0
    faults, clients, waits = Faults(cluster, rng, links), Clients(cluster, seed=seed), []
    operations = reads = terms = 0
    while played < rounds and time.monotonic() - begun < SECONDS:
        leader = cluster.whole()
        clients.new_facts()
        acknowledged, before = clients.acknowledged, len(clients.acknowledged)
        until(lambda seen=acknowledged, before=before: len(seen) > before + 10, 60)
        term, injected = standing(cluster.nodes[leader])["epoch"], time.monotonic()
        faults.inject(leader)
        # Until another node leads, or long enough that none will; then everything is healed.
        until(
            lambda since=injected, term=term, played=played: (
                max(cluster.terms()) > term or time.monotonic() - since > 2 + played % 3
            )
        )
        if max(cluster.terms()) > term:
            waits.append(time.monotonic() - injected)
        faults.heal()
        played += 1
        if played % 10 == 0 or played == rounds:
            clients.stop()
            terms = clients.check()
            operations, reads = operations + clients.operations, reads + clients.reads
            clients = Clients(cluster, seed=seed + played, before=clients)
    clients.stop()
    print(
        f"seed {seed}: {played} rounds {faults.counts} in {time.monotonic() - begun:.0f} s, {terms} terms,"
        f" {len(clients.acknowledged)} acknowledged numbers, {operations} operations on facts,"
        f" {reads} reads of leaders; a new leader after"
        f" {sorted(waits)[len(waits) // 2] if waits else 0:.2f} s (median), {max(waits, default=0):.2f} s (most)"
    )
    return played


def test_a_few_faults(tmp_path):
    with Cluster(tmp_path, f"file:{tmp_path}/coordinator") as cluster:
        assert play(cluster, 3, seed=1) == 3


def play_on_postgres(folder, server, rounds, seed):
    """Play with a coordinator to which each node has a link of its own, which can be cut off."""
    links = [Proxy(("127.0.0.1", server.port)) for _ in range(3)]
    try:
        with schema(server.url) as url:
            parts = urlsplit(url)
            hosts = [f"{parts.username}@127.0.0.1:{link.address[1]}" for link in links]
            urls = [parts._replace(netloc=host).geturl() for host in hosts]
            with Cluster(folder, urls.__getitem__) as cluster:
                return play(cluster, rounds, seed, links)
    finally:
        for link in links:
            link.close()


def test_a_cluster_on_postgres(tmp_path, own_postgres):
    assert play_on_postgres(tmp_path, own_postgres, 2, seed=2) == 2


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(20, 22))
def test_many_faults_on_postgres(tmp_path, own_postgres, seed):
    assert play_on_postgres(tmp_path, own_postgres, 100, seed) == 100


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_faults(tmp_path, seed):
    """A thousand rounds in all."""
    with Cluster(tmp_path, f"file:{tmp_path}/coordinator") as cluster:
        assert play(cluster, 100, seed) == 100
