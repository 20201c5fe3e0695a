"""Signatures of requests between the nodes of a cluster.

A signature proves that a request comes from a node: it covers the time, the method, the target and
the address of the client, with the secret that the cluster keeps in its storage. The client's own
key goes with the request, and the node that has the tenant checks it.
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256

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
