"""The example scenario on a node of a cluster, whose coordinator is a file: it sees and changes the
placement.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from flask.testing import FlaskClient as Client

from kbcore.clock import ManualClock
from kbcore.cluster.assignment import Member, Placement, assign
from kbcore.cluster.node import ClusterNode
from kbcore.cluster.records import NODE_LEASE, ClusterRecord, shard_lease
from kbcore.config.settings import Config
from kbcore.errors import NotReady
from kbcore.node.opening import open_runtime
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogReader, LogStore
from kbserver.app import create_app
from kbserver.cluster.other_nodes import NodePeers
from kbserver.cluster.signing import Signatures

Told = tuple[str, str, Any, Any]

_CONFIG = Config(storage_backend="memory")
_MEMBERS = [
    Member(f"10-0-0-{number}-9300", f"http://10.0.0.{number}:9300", 100) for number in (1, 2)
]
_SHARDS, _TTL_MS = 4, 600_000


class _NoLogs:
    """The logs of the shards, which the scenario does not open."""

    def open(self, shard: int) -> LogStore:
        """Raise NotReady."""
        raise NotReady("the scenario opens no log")

    def reader(self, shard: int) -> LogReader:
        """Raise NotReady."""
        raise NotReady("the scenario opens no log")


def _in_place(call: Callable[[], Any]) -> Any:
    return call()


def play_cluster(now: int) -> list[Told]:
    """Run the scenario at a time in epoch milliseconds.

    Returns method, path, body and answer of each step.
    """
    with tempfile.TemporaryDirectory() as folder:
        coordinator = Plugins(_CONFIG).open_coordinator(f"file:{folder}")
        try:
            for member in _MEMBERS:
                coordinator.acquire(NODE_LEASE + member.name, _TTL_MS, member.encode())
            owners = assign(_SHARDS, _MEMBERS, Placement())
            for shard, name in owners.items():
                owner = next(member for member in _MEMBERS if member.name == name)
                coordinator.acquire(shard_lease(shard), _TTL_MS, owner.encode())
            record = ClusterRecord(_SHARDS, "0" * 64)
            node = ClusterNode(
                _MEMBERS[0],
                record,
                coordinator,
                _CONFIG,
                _NoLogs(),
                call=_in_place,
                read=_in_place,
            )
            signatures = Signatures(record.secret, node.name)
            peers = NodePeers(node, signatures, ssl.create_default_context())
            with open_runtime(_CONFIG, clock=ManualClock(now), peers=peers) as runtime:
                return list(_steps(create_app(runtime).test_client()))
        finally:
            coordinator.close()


def _steps(client: Client) -> Iterator[Told]:
    target = _MEMBERS[1].name
    for method, path, body in (
        ("GET", "/admin/cluster", None),
        ("POST", "/admin/cluster/move", {"shard": 0, "node": target}),
        ("POST", "/admin/cluster/drain", {"node": target}),
        ("POST", "/admin/cluster/rebalance", {}),
    ):
        yield method, path, body, client.open(path, method=method, json=body)
