"""Operations on a cluster: see it, move shards, drain nodes, spread the shards again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbcore.cluster.assignment import Member, Placement, assign
from kbcore.cluster.records import (
    LEASES,
    LEAVING_LEASE,
    NODE_LEASE,
    SHARD_LEASE,
    ClusterRecord,
    change_placement,
    find_placement,
    shard_of_lease,
)
from kbcore.errors import InvalidInput, NotFound
from kbcore.plug.coordination import Coordinator, Held


class ClusterControl:
    """A cluster as its coordinator knows it. Methods raise NotReady if that does not answer.

    The nodes act on a change within a fraction of the time to live of their leases.
    """

    def __init__(self, coordinator: Coordinator, record: ClusterRecord) -> None:
        self._coordinator = coordinator
        self._record = record

    def status(self) -> dict[str, Any]:
        """Return the cluster as a JSON object: its nodes, and which shard is where."""
        leases, placement = self._coordinator.leases(LEASES), find_placement(self._coordinator)
        members = members_of(leases)
        targets = assign(self._record.shards, list(members.values()), placement)
        return describe(self._record.shards, members, owners_of(leases), targets, placement)

    def move(self, shard: int, name: str) -> None:
        """Move a shard to a node, where it stays; raises NotFound, InvalidInput."""
        if not 0 <= shard < self._record.shards:
            raise InvalidInput.at("shard", f"must be from 0 to {self._record.shards - 1}")
        self._check_alive(name)

        def changed(placement: Placement) -> Placement:
            if name in placement.drained:
                raise InvalidInput.at("node", f"{name} is drained; `rebalance` ends that")
            return placement.with_move(shard, name)

        change_placement(self._coordinator, changed)

    def drain(self, name: str) -> None:
        """Move all shards away from a node, which gets none until `rebalance`; raises NotFound."""
        self._check_alive(name)
        change_placement(self._coordinator, lambda placement: placement.with_drained(name))

    def rebalance(self) -> None:
        """Forget all moves and drains: the shards are spread over all live nodes by weight."""
        change_placement(self._coordinator, lambda placement: Placement())

    def _check_alive(self, name: str) -> None:
        members = members_of(self._coordinator.leases(LEASES))
        if name not in members:
            names = ", ".join(sorted(members)) or "none"
            raise NotFound(f"there is no live node {name!r}; live nodes: {names}", {"node": name})


def members_of(leases: Sequence[Held]) -> dict[str, Member]:
    """Return the live nodes by name."""
    names = {held.name for held in leases}
    nodes = [held for held in leases if held.name.startswith(NODE_LEASE)]
    members = {held.name.removeprefix(NODE_LEASE): Member.decode(held.value) for held in nodes}
    return {
        name: replace(member, is_leaving=LEAVING_LEASE + name in names)
        for name, member in members.items()
    }


def owners_of(leases: Sequence[Held]) -> dict[int, str]:
    """Return the owner of each shard that has one."""
    shards = [held for held in leases if held.name.startswith(SHARD_LEASE)]
    return {shard_of_lease(held.name): Member.decode(held.value).name for held in shards}


def describe(
    shards: int,
    members: Mapping[str, Member],
    owners: Mapping[int, str],
    targets: Mapping[int, str],
    placement: Placement,
) -> dict[str, Any]:
    """Return a cluster as a JSON object."""

    def state(member: Member) -> str:
        if member.is_leaving:
            return "leaving"
        return "drained" if member.name in placement.drained else "active"

    return {
        "shards": shards,
        "unowned": [shard for shard in range(shards) if shard not in owners],
        "moving": [
            {"shard": shard, "from": owners[shard], "to": to}
            for shard, to in sorted(targets.items())
            if owners.get(shard, to) != to
        ],
        "nodes": [
            {
                "name": member.name,
                "url": member.url,
                "weight": member.weight,
                "state": state(member),
                "shards": sorted(shard for shard, name in owners.items() if name == member.name),
            }
            for _, member in sorted(members.items())
        ],
        "moved": [
            {"shard": shard, "node": name} for shard, name in sorted(placement.moved.items())
        ],
        "drained": sorted(placement.drained),
    }
