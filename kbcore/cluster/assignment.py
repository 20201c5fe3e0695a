"""Which node of a cluster should have which shard: the same result on every node, without messages.

Rendezvous hashing with bounded loads: each shard goes to the node with its highest score that has
room left. So shards are spread by weight, and a node that joins or leaves moves few of them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Member:
    """A live node: its name, its address for the others, its weight, and if it is about to
    leave.
    """

    name: str
    url: str
    weight: int
    is_leaving: bool = False

    def encode(self) -> bytes:
        """Return the value of the node's lease."""
        return json.dumps(asdict(replace(self, is_leaving=False))).encode()

    @classmethod
    def decode(cls, value: bytes) -> Member:
        """Return the node of a lease's value."""
        return cls(**json.loads(value))


@dataclass(frozen=True, slots=True)
class Placement:
    """Decisions of an operator: shards that belong to a node, and nodes that get none."""

    moved: Mapping[int, str] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()

    def encode(self) -> bytes:
        """Return the placement as the coordinator stores it."""
        moved = {str(shard): name for shard, name in sorted(self.moved.items())}
        return json.dumps({"moved": moved, "drained": sorted(self.drained)}).encode()

    @classmethod
    def decode(cls, value: bytes | None) -> Placement:
        """Return a stored placement, an empty one for None."""
        if value is None:
            return cls()
        body = json.loads(value)
        moved = {int(shard): name for shard, name in body["moved"].items()}
        return cls(moved, frozenset(body["drained"]))

    def with_move(self, shard: int, name: str) -> Placement:
        """Return this placement with a shard moved to a node."""
        return replace(self, moved={**self.moved, shard: name})

    def with_drained(self, name: str) -> Placement:
        """Return this placement with a node that gets no shards."""
        moved = {shard: to for shard, to in self.moved.items() if to != name}
        return Placement(moved, self.drained | {name})


def assign(shards: int, members: Sequence[Member], placement: Placement) -> dict[int, str]:
    """Return the node of each shard by name; nothing without a node that can have shards.

    A shard whose node is not alive, is leaving or is drained goes to another one until it is back.
    """
    able = [m for m in members if not m.is_leaving and m.name not in placement.drained]
    if not able:
        return {}
    names = {member.name for member in able}
    result = {
        shard: name for shard, name in placement.moved.items() if name in names and shard < shards
    }
    total = sum(member.weight for member in able)
    room = {member.name: math.ceil(shards * member.weight / total) for member in able}
    for name in result.values():
        room[name] -= 1
    for shard in range(shards):
        if shard in result:
            continue
        ranked = sorted(able, key=lambda member: _score(shard, member), reverse=True)
        chosen = next((m for m in ranked if room[m.name] > 0), ranked[0])
        room[chosen.name] -= 1
        result[shard] = chosen.name
    return result


def _score(shard: int, member: Member) -> tuple[float, str]:
    """Return the score of a node for a shard, as weighted rendezvous hashing defines it."""
    digest = hashlib.blake2b(f"{shard}:{member.name}".encode(), digest_size=8).digest()
    unit = (int.from_bytes(digest, "little") + 0.5) / 2**64
    return -member.weight / math.log(unit), member.name
