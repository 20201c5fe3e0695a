"""The example scenario with two nodes: a leader with a log on disk, and a promoted follower."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from werkzeug.test import Client

from kbcore.clock import ManualClock
from kbcore.config.settings import Config
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.replication.leader import Leader, LogCursor, Shipment
from kbcore.replication.role import FOLLOWER, LEADER
from kbserver.app import create_app

TOKEN = "the-token-of-all-nodes"
NAME = "follower-1"

_FACT = {"predicate": "parent", "args": ["ann", "bob"]}
_LEADS = Config(replication_mode=LEADER, replication_token=TOKEN, min_free_mb=0, wal_segment_mb=1)
_FOLLOWS = replace(_LEADS, replication_mode=FOLLOWER, leader_url="http://leader.example:9300")

Told = tuple[str, str, Any, Any]


class Beside:
    """Implementation of `kbcore.replication.follower.LogSource` on a leader in the same process."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def read(self, cursor: LogCursor, wait_ms: int, max_bytes: int) -> Shipment:
        """Return the records after a cursor without waiting."""
        return self._leader.ship(NAME, cursor, 0.0, max_bytes)

    @contextmanager
    def snapshot(self) -> Iterator[Iterator[bytes]]:
        """Yield the state of the leader."""
        yield self._leader.snapshot(NAME)[1]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def play_nodes(now: int) -> list[Told]:
    """Run the scenario at a time in epoch milliseconds.

    Returns method, path, body and answer of each step.
    """
    with tempfile.TemporaryDirectory() as folder:
        leads = replace(_LEADS, storage_dir=f"{folder}/leader")
        follows = replace(_FOLLOWS, storage_dir=f"{folder}/follower")
        with (
            open_runtime(leads, clock=ManualClock(now)) as leader,
            open_runtime(follows, clock=ManualClock(now)) as follower,
        ):
            return [*_played(leader, follower)]


def _played(leader: Runtime, follower: Runtime) -> Iterator[Told]:
    here, there = Client(create_app(leader)), Client(create_app(follower))
    headers = {"X-Tenant-ID": "demo", "Authorization": f"Bearer {TOKEN}"}

    def step(client: Client, method: str, path: str, body: Any = None, query: str = "") -> Told:
        return (
            method,
            path,
            body,
            client.open(path + query, method=method, json=body, headers=headers),
        )

    here.post("/tell", json=_FACT, headers=headers)
    following = follower.replication.follow(Beside(leader.replication.leader), start=False)
    for _ in range(3):  # the state, the next record, and its confirmation
        following.step()
    status = leader.log_status()
    asked = f"?log_id={status.log_id}&epoch=1&follower={NAME}&wait_ms=0&from="
    yield step(here, "GET", "/replication/status")
    yield step(here, "GET", "/replication/log", query=asked + "1")
    yield step(here, "GET", "/replication/log", query=asked + "2")
    yield step(here, "GET", "/replication/log", query=asked + "9")
    yield step(here, "GET", "/replication/snapshot", query=f"?follower={NAME}")
    yield step(there, "GET", "/replication/status")
    yield step(there, "POST", "/tell", _FACT)
    yield step(here, "GET", "/facts/history", query=f"?predicate={_FACT['predicate']}")
    yield step(here, "GET", "/memory/history", query=f"?about={_FACT['predicate']}")
    yield step(here, "POST", "/memory/undo", {"commitSeq": 1})
    yield step(there, "POST", "/admin/promote", {"force": True})
