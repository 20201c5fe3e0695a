"""The owners of the shards, as one node knows them, and the requests that it is carrying out.

A shard is held from the acquisition of its lease on, and open when requests may use it. Requests
that arrive while it changes its node wait here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from kbcore.clock import boot_seconds
from kbcore.errors import NotReady
from kbcore.plug.coordination import Lease


class ShardState(Enum):
    """State of a shard that this node holds."""

    OPENING = "opening"
    OPEN = "open"
    LEAVING = "leaving"


AGAIN_SECONDS = 0.05
"""Pause before a request is sent to an owner that did not have its shard a moment ago."""


@dataclass(slots=True, eq=False)
class HeldShard:
    """A shard that this node holds: its lease, until when it may rely on that (seconds since the
    start of the machine), its state, and the number of requests that use it.
    """

    lease: Lease
    valid_until: float
    state: ShardState = ShardState.OPENING
    requests: int = 0

    @property
    def is_open(self) -> bool:
        """True if requests may use the shard."""
        return self.state is ShardState.OPEN

    @property
    def is_leaving(self) -> bool:
        """True if the shard waits for its last requests."""
        return self.state is ShardState.LEAVING


def moved(shard: int) -> NotReady:
    """Return the error of a request that arrived at a node without its shard."""
    return NotReady(
        "the tenant is moving to another node: nothing was carried out",
        {"reason": "moved", "shard": shard, "outcome": "not_done"},
    )


class Ownership:
    """The owners of all shards, for requests; `name` is that of this node.

    The loop of the node changes it, and requests read it and wait for changes.
    """

    def __init__(self, name: str, shards: int) -> None:
        self.name = name
        self.shards = shards
        self.held: dict[int, HeldShard] = {}
        self._owners: dict[int, str] = {}
        self._tokens: dict[int, int] = {}
        self._changed = threading.Condition()

    # -- requests ----------------------------------------------------------------------------------

    def find(self, shard: int, seconds: float) -> str | None:
        """Return the other node that has a shard, None if it is open here.

        Waits up to `seconds` while no node has it; raises NotReady then.
        """
        held = self.held.get(shard)
        if held is not None and held.is_open:
            return None
        if held is None and (owner := self._owners.get(shard, self.name)) != self.name:
            return owner
        return self._wait(shard, seconds)

    def find_again(self, shard: int, seconds: float) -> str | None:
        """As `find`, a moment after the owner could not be reached or did not have the shard.

        That may be the same one: it may be about to open the shard.
        """
        with self._changed:
            self._changed.wait(min(seconds, AGAIN_SECONDS))
        return self.find(shard, seconds)

    def _wait(self, shard: int, seconds: float) -> str | None:
        deadline = boot_seconds() + seconds
        with self._changed:
            while True:
                held = self.held.get(shard)
                if held is not None and held.is_open:
                    return None
                owner = self._owners.get(shard, self.name)
                if held is None and owner != self.name:
                    return owner
                left = deadline - boot_seconds()
                if left <= 0:
                    raise NotReady(
                        "no node has this tenant at the moment: nothing was carried out",
                        {"reason": "no owner", "shard": shard, "outcome": "not_done"},
                    )
                self._changed.wait(left)

    @contextmanager
    def request(self, shard: int) -> Iterator[HeldShard]:
        """Count a request that uses a shard; raises NotReady unless it is open here."""
        held = self.held.get(shard)
        if held is None or not held.is_open:
            raise moved(shard)
        held.requests += 1
        try:
            yield held
        finally:
            held.requests -= 1
            if held.is_leaving and not held.requests:
                self.notify()

    def check(self, shard: int, held: HeldShard) -> None:
        """Raise NotReady unless this node had the shard from the start of a request until now."""
        if self.held.get(shard) is not held or boot_seconds() >= held.valid_until:
            raise NotReady(
                "this node may not have the tenant any more",
                {"reason": "lease", "shard": shard, "outcome": "unknown"},
            )

    # -- the loop of the node ----------------------------------------------------------------------

    def owners(self) -> Mapping[int, str]:
        """Return the owner of each shard that has one, also of those that are being opened."""
        return dict(self._owners)

    def notify(self) -> None:
        """Wake the requests and calls that wait for a change."""
        with self._changed:
            self._changed.notify_all()

    def learn(self, owners: Mapping[int, tuple[str, int]]) -> None:
        """Take the owners and tokens of the leases that are held now."""
        with self._changed:
            for shard in range(self.shards):
                name, token = owners.get(shard, ("", 0))
                if token and token < self._tokens.get(shard, 0):
                    continue  # a listing from before a change that is known already
                if name:
                    self._owners[shard], self._tokens[shard] = name, token
                else:
                    self._owners.pop(shard, None)
            self._changed.notify_all()

    def hold(self, shard: int, lease: Lease, valid_until: float) -> HeldShard:
        """Record that this node has acquired a shard, which it opens now."""
        held = HeldShard(lease, valid_until)
        with self._changed:
            self.held[shard] = held
            self._owners[shard], self._tokens[shard] = self.name, lease.token
            self._changed.notify_all()
        return held

    def opened(self, shard: int) -> None:
        """Let requests use a shard."""
        with self._changed:
            self.held[shard].state = ShardState.OPEN
            self._changed.notify_all()

    def leave(self, shard: int, seconds: float) -> HeldShard | None:
        """Let no new request use a shard, and wait for those under way; None if it is not open."""
        deadline = boot_seconds() + seconds
        with self._changed:
            held = self.held.get(shard)
            if held is None or not held.is_open:
                return None
            held.state = ShardState.LEAVING
            while held.requests and (left := deadline - boot_seconds()) > 0:
                self._changed.wait(left)
            return held

    def drop(self, shard: int, to: str = "") -> None:
        """Forget a shard that this node has no longer; `to` is the node that has it next."""
        with self._changed:
            self.held.pop(shard, None)
            if to:
                self._owners[shard] = to
            else:
                self._owners.pop(shard, None)
            self._changed.notify_all()
