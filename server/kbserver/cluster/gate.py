"""The gate of a node's socket: what it accepts from clients and from other nodes."""

from __future__ import annotations

import hmac
import io
from functools import partial
from typing import Any

from kbcore.errors import Unauthorized
from kbserver.cluster.sealing import MAX_PIECE, SealedBody, sealed_length
from kbserver.cluster.signing import NODE, PIECES, Signature, Signatures, digest_of
from kbserver.forwarding.proofs import CLIENT_KEY, client_of
from kbserver.http.gate import CALL, CALLS, OPEN_BODY, refuse_call, take_internal
from kbserver.http.request_head import Head

FROM_NODE = "kbcore.from_node"
"""Key in the WSGI environment of a request that another node has sent."""

MAX_WHOLE_BODY = MAX_PIECE
"""Bytes of a body whose digest is in the signature; larger ones are sent in pieces."""

_OTHER_BODY = "the body of the request is not the one that its node has signed"
_NODE = NODE.upper().replace("-", "_")


class NodeGate:
    """Accepts requests of clients, calls of other nodes, and requests that these forward.

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
        value = internal.get(_NODE)
        if value is None:
            refuse_call(head)
            return {}
        client = internal.get(CLIENT_KEY, "")
        signature = self._signatures.check(value, head, client)
        if isinstance(signature, str):
            raise Unauthorized(signature)
        self._trusted.add(address)
        more: dict[str, Any] = {FROM_NODE: True, OPEN_BODY: partial(_open, signature, head)}
        if not client and head.target.startswith(CALLS):
            return {CALL: True, **more}
        refuse_call(head)
        return {**client_of(client), **more}


def _open(signature: Signature, head: Head, environ: dict[str, Any]) -> None:
    """Replace the body of a signed request by one that is verified before it is used.

    Raises Unauthorized for a small body that differs; a large one raises OSError where it does.
    """
    source = environ["wsgi.input"]
    kind, _, length = signature.body.partition("=")
    if kind == PIECES:
        size = int(length) if length else None
        if head.length != (None if size is None else sealed_length(size)):
            raise Unauthorized(_OTHER_BODY)
        if size is not None:
            environ["CONTENT_LENGTH"] = length
        environ["wsgi.input"] = io.BufferedReader(
            SealedBody(source, signature.key, size), MAX_PIECE
        )
        return
    if head.chunked or (head.length or 0) > MAX_WHOLE_BODY:
        raise Unauthorized(_OTHER_BODY)
    body = source.read()
    if not hmac.compare_digest(digest_of(body).encode(), signature.body.encode("latin-1")):
        raise Unauthorized(_OTHER_BODY)
    environ["wsgi.input"] = io.BytesIO(body)
