"""Records of a cluster in its coordinator: names of leases, the cluster's own record, the
placement.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from kbcore.cluster.assignment import Placement
from kbcore.errors import KBError, NotReady
from kbcore.plug.coordination import Coordinator, Lease

LEASES = "cluster/"
"""Beginning of the names of all leases of a cluster."""

NODE_LEASE = "cluster/node/"
"""Beginning of the name of the lease that a node holds while it is alive."""

LEAVING_LEASE = "cluster/leaving/"
"""Beginning of the name of the lease that a node also holds while it gives its shards away to
stop.
"""

SHARD_LEASE = "cluster/shard/"
"""Beginning of the name of the lease on a shard."""

RECORD = "cluster/record"
"""Lease under which the cluster is created; its record is stored there."""

PLACEMENT = "cluster/placement"
"""Lease under which the placement is changed; it is stored there."""

_SETUP_TTL_MS = 10_000
_SETUP_WAIT_S = 60.0
_RETRY_S = 0.1
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster: its number of shards, and the secret with which its nodes sign their requests."""

    shards: int
    secret: str

    def encode(self) -> bytes:
        """Return the record as the coordinator stores it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> ClusterRecord:
        """Return a stored record."""
        return cls(**json.loads(value))


def shard_lease(shard: int) -> str:
    """Return the name of the lease on a shard."""
    return f"{SHARD_LEASE}{shard:04d}"


def shard_of_lease(name: str) -> int:
    """Return the shard of a lease's name."""
    return int(name.removeprefix(SHARD_LEASE))


def find_record(coordinator: Coordinator) -> ClusterRecord | None:
    """Return the record of the cluster, None if it was not created yet."""
    value = coordinator.stored(RECORD)
    return None if value is None else ClusterRecord.decode(value)


def create_record(
    coordinator: Coordinator, create_storage: Callable[[], int]
) -> tuple[ClusterRecord, bool]:
    """Create the cluster unless it exists; return its record, and True if it is new.

    `create_storage` creates the storage and returns its number of shards. Nodes that start at the
    same time wait for the one that creates it. Raises NotReady after a minute.
    """
    if (record := find_record(coordinator)) is not None:
        return record, False
    lease = _acquired(coordinator, RECORD)
    try:
        if (record := find_record(coordinator)) is not None:
            return record, False
        record = ClusterRecord(create_storage(), secrets.token_hex(_SECRET_BYTES))
        if not coordinator.store(lease, record.encode()):
            raise NotReady("the cluster could not be created in time; try again")
        return record, True
    finally:
        with suppress(KBError):  # it ends by itself
            coordinator.release(lease)


def find_placement(coordinator: Coordinator) -> Placement:
    """Return the placement that operators have decided."""
    return Placement.decode(coordinator.stored(PLACEMENT))


def change_placement(
    coordinator: Coordinator, change: Callable[[Placement], Placement]
) -> Placement:
    """Change the stored placement and return it; one change at a time. Raises NotReady."""
    lease = _acquired(coordinator, PLACEMENT)
    try:
        placement = change(find_placement(coordinator))
        if not coordinator.store(lease, placement.encode()):
            raise NotReady("the placement could not be stored in time; try again")
        return placement
    finally:
        with suppress(KBError):  # it ends by itself
            coordinator.release(lease)


def _acquired(coordinator: Coordinator, name: str) -> Lease:
    """Acquire a lease for a short change, and wait while another process has it."""
    deadline = time.monotonic() + _SETUP_WAIT_S
    while True:
        lease = coordinator.acquire(name, _SETUP_TTL_MS, b"")
        if lease is not None:
            return lease
        if time.monotonic() >= deadline:
            raise NotReady("another process is changing the cluster; try again")
        time.sleep(_RETRY_S)
