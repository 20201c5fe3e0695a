"""The other processes of a node that is divided into workers, as the node sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kbcore.durable.records import KEY_CODEC
from kbcore.node.instruments import Value
from kbcore.node.readiness import Check
from kbcore.plug.ports import LogSeed
from kbcore.state.catalog import Catalog, DatabaseEntry
from kbcore.state.keys import StoredKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Directory:
    """The decisions of the system shard for all shards: which databases and API keys exist.

    `version` grows with every change. A database has its name and the times at which it was created
    and last emptied; `drops` are the databases that were dropped (`Catalog.drops`). Only what is
    among these is dropped in a shard: a database that is missing may be one that this directory
    does not know.
    """

    version: int
    databases: tuple[tuple[str, int, int], ...]
    drops: tuple[tuple[str, int], ...]
    keys_used: bool
    keys: tuple[StoredKey, ...]

    @classmethod
    def of(cls, version: int, catalog: Catalog) -> Directory:
        """Return the directory in the catalog of the system shard."""
        databases = (
            (database.name, database.created_at, database.emptied_at)
            for database in catalog.databases()
        )
        drops = tuple(catalog.drops.items())
        return cls(version, tuple(databases), drops, catalog.keys.used, tuple(catalog.keys.all()))

    def fill(self, catalog: Catalog) -> None:
        """Replace the databases and keys of a catalog without tenants."""
        catalog.mirror(
            [DatabaseEntry(name, created, emptied) for name, created, emptied in self.databases],
            dict(self.drops),
            self.keys,
            used=self.keys_used,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the directory as a JSON object."""
        return {
            "version": self.version,
            "databases": self.databases,
            "drops": self.drops,
            "keysUsed": self.keys_used,
            "keys": [KEY_CODEC.encode(key) for key in self.keys],
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Directory:
        """Return the directory of a JSON object."""
        return cls(
            body["version"],
            tuple((name, created, emptied) for name, created, emptied in body["databases"]),
            tuple((name, created) for name, created in body["drops"]),
            body["keysUsed"],
            tuple(KEY_CODEC.decode(key) for key in body["keys"]),
        )


@dataclass(frozen=True, slots=True)
class TenantSize:
    """A tenant with its number of stored facts."""

    database: str
    name: str
    facts: int


class Control(Protocol):
    """Operations on a cluster; see `kbcore.cluster.control.ClusterControl`."""

    def status(self) -> dict[str, Any]:
        """Return the cluster as a JSON object."""

    def move(self, shard: int, name: str) -> None:
        """Move a shard to a node."""

    def drain(self, name: str) -> None:
        """Move all shards away from a node."""

    def rebalance(self) -> None:
        """Forget all moves and drains."""


class Cluster(Protocol):
    """The cluster of a node, as the node sees it."""

    @property
    def count(self) -> int:
        """Number of shards of the cluster."""

    @property
    def name(self) -> str:
        """Name of this node."""

    def open_shards(self) -> list[int]:
        """Return the shards that requests may use on this node."""

    def failed(self, shard: int) -> None:
        """Give up a shard whose log failed."""

    def control(self, use: Callable[[Control], T]) -> T:
        """Let an operator see or change the cluster."""

    def check(self) -> Check:
        """Return the check of the readiness report."""

    def values(self) -> Iterator[Value]:
        """Yield the current metrics."""


class Peers(Protocol):
    """The other processes: workers, or nodes of a cluster.

    Every method raises NotReady if one does not answer: nothing is left out.
    """

    @property
    def cluster(self) -> Cluster | None:
        """The cluster; None for workers, whose shards never change."""

    @property
    def owns(self) -> Callable[[int], bool]:
        """Function that returns True for the numbers of the shards of this worker."""

    def directory(self) -> Directory | None:
        """Return the directory of the worker with the system shard; None in that worker."""

    def announce(self, directory: Directory) -> None:
        """Make every other worker act on a directory."""

    def tenants(self) -> list[TenantSize]:
        """Return the tenants of all other workers."""

    def snapshot(self) -> None:
        """Take snapshots in all other workers."""

    def capture(self, shard: int) -> tuple[LogSeed, Iterator[bytes]]:
        """Begin to capture a shard of another worker; return its log and the snapshot's chunks."""

    def health(self) -> list[dict[str, Any]]:
        """Return the readiness of all other workers."""

    def expositions(self) -> list[tuple[int, str]]:
        """Return the metrics of every other worker, with its number."""
