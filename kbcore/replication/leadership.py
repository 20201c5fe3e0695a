"""The leader of a cluster and its in-sync set, as the coordinator keeps them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from kbcore.errors import NotReady

LEADER_LEASE = "replication/leader"
"""Name of the lease that the leader holds."""

_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Leadership:
    """The last leader and its in-sync set, stored under the lease.

    Only these nodes have every acknowledged write, so that only they may lead next. `term` is
    larger than that of every leader before.
    """

    term: int
    log_id: str
    leader: str
    in_sync: tuple[str, ...]

    def encode(self) -> bytes:
        """Return the value for the coordinator."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> Leadership:
        """Return the leadership of a stored value; raises NotReady for any other value."""
        try:
            content = json.loads(value)
            return cls(**{**content, "in_sync": tuple(content["in_sync"])})
        except (ValueError, TypeError, KeyError) as error:
            raise NotReady(
                f"the value stored under {LEADER_LEASE} is not one of this version"
            ) from error


@dataclass(frozen=True, slots=True)
class LeaderAddress:
    """The holder of the lease: name and address, the value of the lease."""

    name: str
    url: str

    def encode(self) -> bytes:
        """Return the value for the coordinator."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> LeaderAddress:
        """Return the address in the value of a lease; raises NotReady for any other value."""
        try:
            return cls(**json.loads(value))
        except (ValueError, TypeError) as error:
            raise NotReady(
                f"the value of the lease {LEADER_LEASE} is not one of this version"
            ) from error


def node_name(url: str) -> str:
    """Return the name of the node with an address: its host, port and path, as a node name.

    The in-sync set has these names, and two nodes never have the same address.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    text = f"{parts.hostname}-{port}{parts.path}"
    return "".join(char if char.isalnum() and char.isascii() else "-" for char in text)[
        -_NAME_CHARS:
    ]
