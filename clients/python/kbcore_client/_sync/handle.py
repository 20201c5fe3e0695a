"""Base class of the parts of a knowledge base."""

from __future__ import annotations

from kbcore_client._sync.connection import Connection, Destination
from kbcore_client.requests import Reply, Request


class Handle:
    """One tenant of a connection, within a transaction or outside of one."""

    def __init__(self, connection: Connection, destination: Destination) -> None:
        self._connection = connection
        self._destination = destination

    def _send(self, request: Request) -> Reply:
        return self._connection.send(request, self._destination)
