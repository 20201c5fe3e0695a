"""Start of a node of a cluster: the coordinator, the storage, and the node that joins."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from kbcore.cluster.assignment import Member
from kbcore.cluster.node import ClusterNode
from kbcore.cluster.records import ClusterRecord, create_record, find_record
from kbcore.config.settings import Config
from kbcore.config.storage_urls import redacted
from kbcore.errors import ConfigError, NotFound
from kbcore.node.shard_layout import open_logs
from kbcore.plug.coordination import Coordinator
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogReader, LogStore, ReadsAlong, ShardPlaces
from kbcore.replication.leadership import node_name
from kbserver.cluster.other_nodes import NodePeers
from kbserver.cluster.signing import Signatures
from kbserver.http.certificates import client_context, has_tls
from kbserver.http.tls import ServerTLS
from kbserver.process.offload import Offload

CLUSTER_SHARDS = 64
"""Number of shards of a new cluster."""

READ_THREADS = 2
"""Threads that read and open the logs of shards."""

_WILDCARDS = frozenset(("0.0.0.0", "::", ""))  # noqa: S104  # nosec B104 - compared, not bound


class ClusterLogs:
    """The logs of the shards of a cluster; implements `kbcore.cluster.node.LogPlaces`."""

    def __init__(self, config: Config, plugins: Plugins) -> None:
        places = plugins.shard_places()
        if places is None or not isinstance(places, ReadsAlong):
            raise ConfigError(
                f"CLUSTER_URL: the storage {config.storage_backend!r} cannot be shared by several nodes;"
                " use postgresql://user@host/database"
            )
        self._config = config
        self._places: ShardPlaces = places
        self._readers: ReadsAlong = places
        self._factory = plugins.check_storage()
        self._encryption = plugins.encryption

    def open(self, shard: int) -> LogStore:
        """Open the log of a shard as its only writer."""
        return self._factory(self._places.place(self._config, shard, new=False))

    def reader(self, shard: int) -> LogReader:
        """Open the log of a shard for reading."""
        reader = self._readers.reader(self._config, shard)
        if not self._encryption.is_on:
            return reader
        log_ids = self._places.recorded(self._config) or ()
        return self._encryption.reader(reader, log_ids[shard])


def create_storage(config: Config, plugins: Plugins) -> int:
    """Create the logs of a cluster's shards unless they exist; return their number.

    Raises ConfigError for a storage with another number of shards than STORAGE_SHARDS.
    """
    requested = config.storage_shards or CLUSTER_SHARDS
    places = plugins.shard_places()
    recorded = None if places is None else places.recorded(config)
    if recorded is not None and not config.storage_shards and recorded:
        requested = len(recorded)
    shards, logs = open_logs(plugins, replace(config, storage_shards=requested), _none)
    for log in logs.values():
        log.close()
    return shards


def _none(shard: int) -> bool:
    return False


def open_cluster(config: Config, plugins: Plugins) -> tuple[Coordinator, ClusterRecord, bool]:
    """Return the coordinator of a cluster and its record; create the cluster if it does not exist.

    The third result is True if it is new. Raises ConfigError, NotReady.
    """
    coordinator = plugins.open_coordinator(config.coordinator_url or config.cluster_url)
    try:
        record, is_new = create_record(coordinator, lambda: create_storage(config, plugins))
    except BaseException:
        coordinator.close()
        raise
    return coordinator, record, is_new


def find_cluster(config: Config, plugins: Plugins) -> tuple[Coordinator, ClusterRecord, bool]:
    """As `open_cluster`, but raise NotFound for a cluster that does not exist."""
    coordinator = plugins.open_coordinator(config.coordinator_url or config.cluster_url)
    try:
        record = find_record(coordinator)
        if record is None:
            raise NotFound(
                f"there is no cluster in {redacted(config.cluster_url)}; `kbcore cluster create` makes one"
            )
    except BaseException:
        coordinator.close()
        raise
    return coordinator, record, False


@dataclass(frozen=True, slots=True)
class Joined:
    """A node that is ready to join its cluster."""

    node: ClusterNode
    peers: NodePeers
    signatures: Signatures
    offloads: tuple[Offload, ...]

    def close(self, seconds: float) -> None:
        """Leave the cluster; the other nodes have `seconds` to take the shards over."""
        self.node.close(seconds)
        for offload in self.offloads:
            offload.close()


def prepare(
    config: Config, listener: socket.socket, plugins: Sequence[object], tls: ServerTLS | None = None
) -> Joined:
    """Open the cluster for a node that listens on a socket; raises ConfigError, NotReady."""
    if config.workers > 1:
        raise ConfigError(
            f"WORKERS={config.workers}: a node of a cluster is one process; start several nodes,"
            " each with a port of its own"
        )
    url = config.advertise_url or _url_of(config, listener)
    loaded = Plugins(config, plugins)
    places = ClusterLogs(config, loaded)
    call, read = Offload(1), Offload(READ_THREADS)
    coordinator, record, _ = call(lambda: open_cluster(config, loaded))
    member = Member(node_name(url), url, config.cluster_weight)
    node = ClusterNode(member, record, coordinator, config, places, call=call, read=read)
    signatures = Signatures(record.secret, member.name)
    make = partial(client_context, config) if tls is None else tls.client
    trust = make("CLUSTER_CA_FILE", config.cluster_ca_file)
    return Joined(node, NodePeers(node, signatures, trust), signatures, (call, read))


def _url_of(config: Config, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if config.host in _WILDCARDS:
        raise ConfigError(
            "CLUSTER_URL: set ADVERTISE_URL to the address at which the other nodes reach this one"
        )
    scheme = "https" if has_tls(config) else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
