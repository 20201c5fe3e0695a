"""Gates of sockets: the first check of every request, before it is routed or forwarded.

Paths that begin with `/-/` are calls between the processes of one server or cluster, and headers
that begin with `X-KBCore-` are those that a process adds for another process. A public socket
refuses such paths and removes such headers, so that no client can be taken for a process. The
private sockets of workers and the nodes of a cluster have gates of their own, which ask for a
proof.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from kbcore.errors import NotFound
from kbserver.http.request_head import Head

CALLS = "/-/"
"""Beginning of the paths of calls between processes."""

INTERNAL = "X_KBCORE_"
"""Beginning of the names of headers between processes, in the form of WSGI."""

CALL = "kbcore.call"
"""Key in the WSGI environment of a request that is a call of another process."""

OPEN_BODY = "kbcore.open_body"
"""Key of an addition: a function that verifies the body in the WSGI environment, or replaces it."""

MAX_DECODINGS = 8
"""Percent decodings of a path that are tried; a path with more is refused."""


class Gate(Protocol):
    """Decides what a socket accepts."""

    def admit(self, head: Head, address: str) -> dict[str, Any]:
        """Remove internal headers from a request; return additions to its WSGI environment.

        `address` is that of the connection. Raises KBError for a request that is refused.
        """


class PublicGate:
    """The gate of a socket to which anybody may connect."""

    def admit(self, head: Head, address: str) -> dict[str, Any]:
        """Remove internal headers; return no additions. Raises NotFound for a call."""
        take_internal(head)
        refuse_call(head)
        return {}


def take_internal(head: Head) -> dict[str, str]:
    """Remove the internal headers from a request and return them."""
    names = [name for name in head.headers if name.startswith(INTERNAL)]
    return {name: head.headers.pop(name) for name in names}


def refuse_call(head: Head) -> None:
    """Raise NotFound, as for any unknown path, if a request has the path of a call."""
    if is_call(head.target):
        raise NotFound("no such path")


def is_call(target: str) -> bool:
    """Return True if the path of a request target begins with CALLS in any form.

    Percent encodings, also repeated ones, empty and dot segments, and backslashes do not hide it.
    """
    text = target.partition("?")[0]
    if "-" not in text and "%" not in text:
        return False
    path, before = text.encode("latin-1"), b""
    for _ in range(MAX_DECODINGS):
        if path == before:
            break
        path, before = unquote_to_bytes(path), path
    if unquote_to_bytes(path) != path:
        return True
    segments: list[bytes] = []
    for segment in path.replace(b"\\", b"/").split(b"/"):
        if segment == b"..":
            del segments[-1:]
        elif segment not in (b"", b"."):
            segments.append(segment)
        if segments == [b"-"]:
            return True
    return False
