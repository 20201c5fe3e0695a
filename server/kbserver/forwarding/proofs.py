"""Proofs by which the workers of one server recognise each other's requests on private sockets.

The supervisor makes a random secret for each run and passes it to each worker through a pipe. Two
proofs follow from it: that of a call, and that of a request which is forwarded for a client. So a
forwarded request is never taken for a call, whatever its path and headers.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any

from kbcore.errors import NotFound
from kbserver.http.gate import CALL, CALLS, refuse_call, take_internal
from kbserver.http.request_head import Head

PROOF = "X-KBCore-Worker"
"""Header with the proof that a request comes from a worker."""

CLIENT = "X-KBCore-Client"
"""Header of a forwarded request: address and port of the client. It counts on private sockets, with
a proof, and with the signature of a node.
"""

SECRET_BYTES = 32


class HopProofs:
    """The proofs of a call and of a forwarded request."""

    def __init__(self, secret: bytes) -> None:
        self.call, self.forwarded = (
            hmac.digest(secret, purpose, sha256).hex() for purpose in (b"call", b"forwarded")
        )


class WorkerGate:
    """The gate of a private socket: it accepts only requests with a proof."""

    def __init__(self, proofs: HopProofs) -> None:
        self._proofs = proofs

    def admit(self, head: Head, address: str) -> dict[str, Any]:
        """Return the mark of a call, or the address of the client of a forwarded request.

        Raises NotFound for every other request.
        """
        internal = take_internal(head)
        proof = internal.get(_PROOF, "").encode("latin-1")
        if hmac.compare_digest(proof, self._proofs.call.encode()):
            if head.target.startswith(CALLS):
                return {CALL: True}
        elif hmac.compare_digest(proof, self._proofs.forwarded.encode()):
            refuse_call(head)
            return client_of(internal.get(CLIENT_KEY, ""))
        raise NotFound("no such path")


def client_of(value: str) -> dict[str, Any]:
    """Return the address and port in a header CLIENT for the WSGI environment."""
    client, _, port = value.partition(" ")
    return {"REMOTE_ADDR": client, "REMOTE_PORT": port}


_PROOF, CLIENT_KEY = (name.upper().replace("-", "_") for name in (PROOF, CLIENT))
