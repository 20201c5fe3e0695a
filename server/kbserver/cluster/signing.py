"""Signatures of requests between the nodes of a cluster.

A signature proves that a request comes from a node: it covers the time, the method, the target and
the address of the client, with the secret that the cluster keeps in its storage. The client's own
key goes with the request, and the node that has the tenant checks it.
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256
from typing import Any

from kbcore.errors import Unauthorized
from kbserver.http.gate import CALL, CALLS, refuse_call, take_internal
from kbserver.http.request_head import Head
from kbserver.workers.proofs import CLIENT_KEY, client_of

FROM_NODE = "kbcore.from_node"
"""Key in the WSGI environment of a request that another node has sent."""

NODE = "X-KBCore-Node"
"""Header with the signature of a node."""

VALID_SECONDS = 60
"""Largest difference between the clocks of two nodes, and time for which a signature is accepted."""


class Signatures:
    """Makes and checks signatures with the secret of a cluster."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def make(self, method: str, target: str, client: str = "") -> str:
        """Return the value of the header NODE for a request."""
        now = str(int(time.time()))
        return f"{now}:{self._digest(now, method, target, client)}"

    def problem(self, value: str, method: str, target: str, client: str) -> str:
        """Return "" for a valid signature, otherwise what is wrong."""
        at, _, digest = value.partition(":")
        expected = self._digest(at, method, target, client)
        if not hmac.compare_digest(digest.encode("latin-1"), expected.encode()):
            return "the signature of the node is wrong: it belongs to another cluster"
        if not at.isdigit() or abs(time.time() - int(at)) > VALID_SECONDS:
            return (
                f"the clocks of the nodes differ by more than {VALID_SECONDS} seconds, or the request was sent"
                " before"
            )
        return ""

    def _digest(self, at: str, method: str, target: str, client: str) -> str:
        message = "\n".join((at, method, target, client)).encode("latin-1")
        return hmac.digest(self._secret, message, sha256).hex()


class NodeGate:
    """The gate of a node's socket: it accepts calls of other nodes, and requests that they forward.

    `trusted` gets the addresses from which other nodes have sent requests.
    """

    def __init__(self, signatures: Signatures, trusted: set[str]) -> None:
        self._signatures = signatures
        self._trusted = trusted

    def admit(self, head: Head, address: str) -> dict[str, Any]:
        """Return the mark of a call, or the address of the client of a forwarded request.

        Raises Unauthorized for a wrong signature, and NotFound for a call without one.
        """
        internal = take_internal(head)
        signature = internal.get(_NODE)
        if signature is None:
            refuse_call(head)
            return {}
        client = internal.get(CLIENT_KEY, "")
        problem = self._signatures.problem(signature, head.method, head.target, client)
        if problem:
            raise Unauthorized(problem)
        self._trusted.add(address)
        if not client and head.target.startswith(CALLS):
            return {CALL: True, FROM_NODE: True}
        refuse_call(head)
        return {FROM_NODE: True, **client_of(client)}


_NODE = NODE.upper().replace("-", "_")
