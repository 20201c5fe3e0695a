"""Base class of the parts of a knowledge base."""

from __future__ import annotations

from dataclasses import replace

from kbcore_client._sync.connection import Connection, Destination
from kbcore_client.errors import InvalidInput
from kbcore_client.historic import HISTORIC
from kbcore_client.requests import Reply, Request

_NEEDS_PRESENT = "known_at is not available here: this operation uses the present state"


class Sender:
    """A sender of requests, which methods use."""

    def _send(self, request: Request) -> Reply:
        raise NotImplementedError


class Handle(Sender):
    """One tenant of a connection, within a transaction or outside of one."""

    def __init__(self, connection: Connection, destination: Destination) -> None:
        self._connection = connection
        self._destination = destination

    def _require_present(self) -> None:
        """Raise InvalidInput if this reads an earlier state."""
        if self._destination.known_at is not None:
            raise InvalidInput(_NEEDS_PRESENT)

    def _send(self, request: Request) -> Reply:
        known_at = self._destination.known_at
        if known_at is not None:
            folder = request.path.rpartition("/")[0]
            is_historic = request.path in HISTORIC or f"{folder}/*" in HISTORIC
            if request.writes or not is_historic:
                raise InvalidInput(_NEEDS_PRESENT)
            if request.method == "GET":
                query = {**request.query, "knownAt": str(known_at)}
                request = replace(request, query=query)
            else:
                request = replace(request, body={**(request.body or {}), "knownAt": known_at})
        return self._connection.send(request, self._destination)
