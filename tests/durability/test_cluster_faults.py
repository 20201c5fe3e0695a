"""Random faults on nodes that share a storage: kills, stops, pauses and partitions under load."""

from __future__ import annotations

import random
import signal
import time

import pytest
from support.clusters import Clients
from support.nodes import Nodes
from support.replicas import until

NODES = 3
TENANTS = [f"t{number}" for number in range(6)]

SECONDS = 4 * 3600
"""A long run begins no round after this time."""


class Faults:
    """The faults of one round, drawn with a seed."""

    def __init__(self, nodes, rng):
        self._nodes = nodes
        self._rng = rng
        self.counts = {}

    def inject(self):
        """Do something to one node or to two."""
        for victim in self._rng.sample(range(NODES), 1 if self._rng.random() < 0.8 else 2):
            fault = self._rng.choice(
                [self.kill, self.stop, self.pause, self.cut, self.hold, self.isolate, self.storage]
            )
            self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
            fault(victim)

    def kill(self, victim):
        self._nodes.nodes[victim].kill()

    def stop(self, victim):
        """Ask a node to stop, which it does while the faults go on."""
        self._nodes.stop(victim)

    def pause(self, victim):
        self._nodes.signal(victim, signal.SIGSTOP)

    def cut(self, victim):
        """Cut a node off from the other nodes."""
        self._nodes.proxies[victim].cut()

    def hold(self, victim):
        self._nodes.proxies[victim].hold()

    def storage(self, victim):
        """Cut a node off from the storage."""
        self._nodes.storage_links[victim].cut()

    def isolate(self, victim):
        """Cut a node off from the other nodes and from the storage, without an error."""
        self._nodes.proxies[victim].hold()
        self._nodes.storage_links[victim].hold()


def play(nodes, rounds, seed):
    """Play rounds of faults; return how many, and print what was seen."""
    rng, begun, played = random.Random(seed), time.monotonic(), 0
    faults, clients = Faults(nodes, rng), Clients(nodes, seed=seed, tenants=TENANTS)
    operations = reads = 0
    while played < rounds and time.monotonic() - begun < SECONDS:
        nodes.settled(seconds=120)
        clients.new_facts()
        before = len(clients.acknowledged)
        until(lambda seen=clients.acknowledged, before=before: len(seen) > before + 20, 60)
        injected = time.monotonic()
        faults.inject()
        duration = rng.uniform(0.5, 4.0)  # shorter and longer than the leases
        until(lambda since=injected, longer=duration: time.monotonic() - since > longer)
        nodes.heal()
        played += 1
        if played % 10 == 0 or played == rounds:
            clients.stop()
            clients.check()
            operations, reads = operations + clients.operations, reads + clients.reads
            clients = Clients(nodes, seed=seed + played, before=clients, tenants=TENANTS)
    clients.stop()
    print(
        f"seed {seed}: {played} rounds {faults.counts} in {time.monotonic() - begun:.0f} s,"
        f" {len(clients.acknowledged)} acknowledged numbers, {operations} operations on facts, {reads} reads"
    )
    return played


def test_no_acknowledged_write_is_lost(tmp_path, postgres_url):
    with Nodes(tmp_path, postgres_url, NODES, links=True) as nodes:
        assert play(nodes, 4, seed=3) == 4


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(10, 60))
def test_many_faults(tmp_path, postgres_url, seed):
    """A thousand rounds in all."""
    with Nodes(tmp_path, postgres_url, NODES, links=True) as nodes:
        assert play(nodes, 20, seed) == 20
