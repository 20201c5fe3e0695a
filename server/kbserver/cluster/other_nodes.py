"""Calls of a node to the other nodes of its cluster."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson

from kbcore.cluster.node import ClusterNode
from kbcore.errors import Conflict, KBError, NotReady
from kbcore.node.other_processes import Directory, TenantSize
from kbcore.node.shard_layout import SYSTEM
from kbcore.plug.ports import LogSeed
from kbcore.replication.leadership import node_name
from kbserver.cluster.signing import NODE, Signatures, digest_of
from kbserver.forwarding import private
from kbserver.forwarding.calls import Calls
from kbserver.http.gate import CALLS
from kbserver.http.request_head import Head
from kbserver.http.tls import secured

RELEASE = CALLS + "release"
"""Call with which a node asks for a shard that it takes over."""

SHARDS = CALLS + "shards"
"""Call that returns the open shards of a node with their tenants."""

CALL_SECONDS = 10.0
"""Time limit of a call; a node that is gone is noticed earlier, by its lease."""

ANNOUNCE_TTLS = 4.0
"""Times to live for which a change of databases or keys is announced to a node that is silent."""

_TRIES = 5
_RETRY_SECONDS = 0.1
_CONFLICT = 409


class _SecureConnection(http.client.HTTPConnection):
    """A connection to a node with an https address."""

    def __init__(
        self, context: ssl.SSLContext, host: str, port: int, seconds: float | None
    ) -> None:
        super().__init__(host, port, timeout=seconds)
        self._context = context

    def connect(self) -> None:
        """Connect, and verify the certificate of the node."""
        super().connect()
        self.sock = secured(self._context, self.sock, self.host)


class NodePeers(Calls[str]):
    """The other nodes by name; implements `kbcore.node.other_processes.Peers` and `OtherNodes`."""

    def __init__(self, node: ClusterNode, signatures: Signatures, context: ssl.SSLContext) -> None:
        """`context` verifies nodes with https addresses."""
        self._node = node
        self._signatures = signatures
        self.context = context

    def connection(self, peer: str, seconds: float | None) -> http.client.HTTPConnection:
        """Return a connection to a node, by its name or address."""
        parts = urlsplit(self._url(peer))
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            return _SecureConnection(self.context, host, port or 443, seconds)
        return http.client.HTTPConnection(host, port, timeout=seconds)

    def headers(self, peer: str, method: str, path: str, body: bytes) -> dict[str, str]:
        """Return the headers of a call, with their signature."""
        url = self._url(peer)
        headers = {"HOST": urlsplit(url).netloc, "ACCEPT_ENCODING": "identity"}
        head = Head(method, path, headers=headers)
        value, _ = self._signatures.make(node_name(url), head, "", digest_of(body))
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return {**named, NODE: value}

    def _url(self, peer: str) -> str:
        return peer if "://" in peer else self._node.url_of(peer)

    def no_answer(self, peer: str) -> NotReady:
        """Return the error for a node that does not answer."""
        return NotReady(
            f"node {peer} does not answer", {"reason": "node", "node": peer, "outcome": "unknown"}
        )

    def refused(self, peer: str, status: int, problem: str) -> KBError:
        """Return the error for a call that was answered with an error."""
        if status == _CONFLICT:
            return Conflict(f"node {peer}: {problem}")
        return NotReady(f"node {peer}: {problem}", {"reason": "node", "node": peer})

    @property
    def cluster(self) -> ClusterNode:
        """The cluster as this node sees it."""
        return self._node

    @property
    def owns(self) -> Callable[[int], bool]:
        """Function that returns True for the numbers of the shards that are open here."""
        return lambda shard: shard in self._node.open_shards()

    @property
    def _others(self) -> list[str]:
        return [name for name in self._node.members if name != self._node.member.name]

    def directory(self) -> Directory | None:
        """Return the directory of the node with the system shard; None if this one has it."""
        owner = self._node.ownership.owners().get(SYSTEM)
        if owner is None:
            raise NotReady("no node has the system shard yet")
        if owner == self._node.member.name:
            if SYSTEM not in self._node.open_shards():
                raise NotReady("the system shard is being opened")
            return None
        return Directory.from_json(self.call(owner, "GET", private.DIRECTORY, seconds=CALL_SECONDS))

    def announce(self, directory: Directory) -> None:
        """Make every live node act on a directory; a node that dies before is left out."""
        body = orjson.dumps(directory.to_json())
        deadline = time.monotonic() + ANNOUNCE_TTLS * self._node.ttl
        pending = self._others
        while pending:
            name = pending[0]
            try:
                self.call(name, "POST", private.DIRECTORY, body, self._node.ttl)
                pending.pop(0)
            except NotReady:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
                pending = [name for name in pending if name in self._others]

    def tenants(self) -> list[TenantSize]:
        """Return the tenants of all other nodes; raises NotReady unless every shard is open."""
        for _ in range(_TRIES):
            answers = [self.call(name, "GET", SHARDS) for name in self._others]
            shards = [shard for answer in answers for shard in answer["shards"]]
            if sorted(shards + self._node.open_shards()) == list(range(self._node.record.shards)):
                return [TenantSize(*row) for answer in answers for row in answer["tenants"]]
            time.sleep(_RETRY_SECONDS)
        raise NotReady("some tenants are moving to another node", {"reason": "moved"})

    def snapshot(self) -> None:
        """Take snapshots in all other nodes."""
        for name in self._others:
            self.call(name, "POST", private.SNAPSHOT)

    def capture(self, shard: int) -> tuple[LogSeed, Iterator[bytes]]:
        """Begin to capture a shard of another node; return its log and the snapshot's chunks."""
        owner = self._node.ownership.owners().get(shard)
        if owner is None:
            raise NotReady(f"no node has shard {shard} at the moment")
        return self.captured(owner, shard)

    def health(self) -> list[dict[str, Any]]:
        """Return nothing: each node reports its own readiness."""
        return []

    def expositions(self) -> list[tuple[int, str]]:
        """Return nothing: each node reports its own metrics."""
        return []

    def release(self, url: str, shard: int, to: str) -> None:
        """Make the node at an address release a shard; returns when it has."""
        body = orjson.dumps({"shard": shard, "to": to})
        self.call(url, "POST", RELEASE, body, CALL_SECONDS)
