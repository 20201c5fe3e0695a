"""Base class of the parts of a knowledge base."""

from __future__ import annotations

from dataclasses import replace

from kbcore_client._sync.connection import Connection, Destination
from kbcore_client.errors import InvalidInput
from kbcore_client.requests import Reply, Request

HISTORIC = frozenset(
    {
        *("/ask", "/query", "/explain", "/aggregate", "/neighbours"),
        *("/memory/context", "/context/summary"),
    }
)
"""The paths of the reads that can be answered from an earlier state."""


class Handle:
    """One tenant of a connection, within a transaction or outside of one."""

    def __init__(self, connection: Connection, destination: Destination) -> None:
        self._connection = connection
        self._destination = destination

    def _send(self, request: Request) -> Reply:
        known_at = self._destination.known_at
        if known_at is not None:
            if request.path not in HISTORIC:
                raise InvalidInput("this operation is of the present; known_at is for reads only")
            request = replace(request, body={**(request.body or {}), "knownAt": known_at})
        return self._connection.send(request, self._destination)
