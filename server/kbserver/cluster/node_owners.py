"""Which node owns which shard, as the forwarding of requests asks."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Hashable
from typing import Any
from urllib.parse import urlsplit

from kbcore.cluster.node import ClusterNode
from kbcore.cluster.ownership import moved
from kbcore.errors import NotReady
from kbserver.cluster.gate import FROM_NODE
from kbserver.cluster.sealing import Seals, sealed_length
from kbserver.cluster.signing import NODE, Signatures, digest_of, pieces_of
from kbserver.forwarding.proofs import CLIENT
from kbserver.http.request_head import Head
from kbserver.http.tls import secured

WAIT_TTLS = 2.0
"""Times to live for which a request waits while no node has its tenant."""

_OWN_PATHS = ("/health", "/metrics", "/replication/", "/admin/cluster")


class NodeOwners:
    """`Owners` of the nodes of a cluster."""

    def __init__(self, node: ClusterNode, signatures: Signatures, context: ssl.SSLContext) -> None:
        """`context` verifies nodes with https addresses."""
        self._node = node
        self._context = context
        self._ownership = node.ownership
        self._signatures = signatures
        self._wait_seconds = WAIT_TTLS * node.ttl

    def is_own(self, path: str, environ: dict[str, Any]) -> bool:
        """Return True for requests about this node, and for those that another node has sent."""
        return FROM_NODE in environ or path.startswith(_OWN_PATHS)

    def find(self, shard: int) -> str | None:
        """Return the node that has a shard, None if it is this one; waits while it is moving."""
        return self._ownership.find(shard, self._wait_seconds)

    def find_again(self, shard: int, owner: Hashable, *, sent: bool, seconds: float) -> str | None:
        """Return the next owner after one that did not carry out a request."""
        if sent:
            raise NotReady(
                f"node {owner} ended or lost the tenant before it answered",
                {"reason": "owner lost", "shard": shard, "outcome": "unknown"},
            )
        if seconds >= self._wait_seconds:
            raise moved(shard)
        return self._ownership.find_again(shard, self._wait_seconds - seconds)

    def connect(self, owner: Hashable) -> Any:
        """Return a connection to a live node."""
        parts = urlsplit(self._live_url(owner))
        host, is_https = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_https else 80)
        connection: Any = socket.create_connection((host, port), timeout=self._node.ttl)
        try:
            if is_https:
                connection = secured(self._context, connection, host)
            self._live_url(owner)  # the exchanges with a node that was lost are ended only once
        except OSError:
            connection.close()
            raise
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _live_url(self, owner: Hashable) -> str:
        try:
            return self._node.url_of(str(owner))
        except NotReady as error:
            raise OSError(error.message) from error

    def introduce(
        self, owner: Hashable, head: Head, client: str, body: bytes | None
    ) -> tuple[list[str], Callable[[bytes], bytes] | None]:
        """Return the signature and the address of the client, and the seals of a large body."""
        signed = pieces_of(head.length) if body is None else digest_of(body)
        value, key = self._signatures.make(str(owner), head, client, signed)
        lines = [f"{CLIENT}: {client}", f"{NODE}: {value}"]
        if body is not None:
            return lines, None
        if head.length is not None:
            lines.append(f"Content-Length: {sealed_length(head.length)}")
        return lines, Seals(key).seal

    def address_of(self, owner: Hashable) -> str:
        """Return the address to which clients of a node are redirected."""
        return self._node.url_of(str(owner))
