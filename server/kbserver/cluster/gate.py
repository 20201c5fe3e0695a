"""The gate of a node's socket: what it accepts from clients and from other nodes."""

from __future__ import annotations

import hmac
import io
from functools import partial
from typing import Any

from kbcore.errors import Unauthorized
from kbserver.cluster.sealing import MAX_PIECE, SealedBody
from kbserver.cluster.signing import NODE, PIECES, Signature, Signatures, digest_of
from kbserver.http.gate import CALL, CALLS, OPEN_BODY, refuse_call, take_internal
from kbserver.http.request_head import Head
from kbserver.workers.proofs import CLIENT_KEY, client_of

FROM_NODE = "kbcore.from_node"
"""Key in the WSGI environment of a request that another node has sent."""

MAX_WHOLE_BODY = MAX_PIECE
"""Bytes of a body whose digest is in the signature; larger ones are sent in pieces."""

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
        if not head.chunked:
            raise Unauthorized("the body of the request is not the one that its node has signed")
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        if length:
            environ["CONTENT_LENGTH"] = length
        else:
            environ["HTTP_TRANSFER_ENCODING"] = "chunked"
        sealed = SealedBody(source, signature.key, int(length) if length else None)
        environ["wsgi.input"] = io.BufferedReader(sealed, MAX_PIECE)
        return
    is_small = not head.chunked and (head.length or 0) <= MAX_WHOLE_BODY
    body = source.read() if is_small else b""
    digest = digest_of(body)
    if not is_small or not hmac.compare_digest(digest.encode(), signature.body.encode("latin-1")):
        raise Unauthorized("the body of the request is not the one that its node has signed")
    environ["wsgi.input"] = io.BytesIO(body)
