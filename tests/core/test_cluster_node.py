"""What a node of a cluster knows of the others: their leases do not end at the same moment."""

from __future__ import annotations

import threading

import pytest

from kbcore import open_coordinator
from kbcore.cluster.assignment import Member
from kbcore.cluster.node import ClusterNode
from kbcore.cluster.records import NODE_LEASE, ClusterRecord, shard_lease
from kbcore.config import Config
from kbcore.errors import NotReady

TTL_MS = 60_000
OTHER = Member("other", "http://127.0.0.1:9999", 1)


@pytest.fixture
def coordinator(tmp_path):
    opened = open_coordinator(f"file:{tmp_path / 'leases'}")
    yield opened
    opened.close()


@pytest.fixture
def node(coordinator):
    """A node that has joined; it opens no shards, because its threads are not started."""
    node = ClusterNode(
        Member("this", "http://127.0.0.1:9998", 1),
        ClusterRecord(4, "secret"),
        coordinator,
        Config(cluster_ttl_ms=TTL_MS),
        places=None,
        call=lambda call: call(),
        read=lambda call: call(),
    )
    node.step()
    return node


def test_requests_of_a_lost_node_wait_for_the_next_owner_while_its_shard_leases_last(
    node, coordinator
):
    """The node lease ends before the leases on its shards: nothing may be sent there in between."""
    alive = coordinator.acquire(NODE_LEASE + OTHER.name, TTL_MS, OTHER.encode())
    coordinator.acquire(shard_lease(2), TTL_MS, OTHER.encode())
    lost = []
    node.on_node_lost.append(lost.append)
    node.step()
    assert node.ownership.find(2, 0.0) == OTHER.name
    assert node.url_of(OTHER.name) == OTHER.url

    coordinator.release(alive)
    node.step()
    assert lost == [OTHER.name]
    with pytest.raises(NotReady, match="no node has this tenant"):
        node.ownership.find(2, 0.0)
    with pytest.raises(NotReady, match="not alive"):
        node.url_of(OTHER.name)


def test_a_request_that_waits_for_a_lost_node_goes_to_the_next_one(node, coordinator):
    """The wait ends with the lease of the next owner, not with its own time."""
    coordinator.acquire(shard_lease(2), TTL_MS, OTHER.encode())
    node.step()
    found = []
    waiting = threading.Thread(target=lambda: found.append(node.ownership.find(2, 60.0)))
    waiting.start()
    coordinator.acquire(NODE_LEASE + OTHER.name, TTL_MS, OTHER.encode())
    node.step()
    waiting.join(30)
    assert found == [OTHER.name]
