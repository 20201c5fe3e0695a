"""Base class of the parts of a knowledge base."""

from __future__ import annotations

from kbcore_client._async.connection import AsyncConnection, Destination
from kbcore_client.requests import Reply, Request


class AsyncHandle:
    """One tenant of a connection, within a transaction or outside of one."""

    def __init__(self, connection: AsyncConnection, destination: Destination) -> None:
        self._connection = connection
        self._destination = destination

    async def _send(self, request: Request) -> Reply:
        return await self._connection.send(request, self._destination)
