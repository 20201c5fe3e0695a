"""Calls of a process to the private application of the others of its server or cluster."""

from __future__ import annotations

import http.client
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import orjson

from kbcore.errors import KBError, NotReady
from kbcore.plug.ports import LogSeed
from kbserver.forwarding import private

P = TypeVar("P")

CALL_SECONDS = 60.0
"""Seconds to wait for the answer of another process, which may be starting."""

_OK = 200


class Calls(ABC, Generic[P]):
    """Calls of `private.py`. A method raises NotReady if the other process does not answer."""

    @abstractmethod
    def connection(self, peer: P, seconds: float | None) -> http.client.HTTPConnection:
        """Return a connection to another process, which is not open yet."""

    @abstractmethod
    def headers(self, peer: P, method: str, path: str, body: bytes) -> dict[str, str]:
        """Return the headers with which this process identifies itself in a call."""

    @abstractmethod
    def no_answer(self, peer: P) -> NotReady:
        """Return the error for a process that ended during a call, or does not answer."""

    @abstractmethod
    def refused(self, peer: P, status: int, problem: str) -> KBError:
        """Return the error for a call that was answered with an error."""

    def call(
        self,
        peer: P,
        method: str,
        path: str,
        body: bytes = b"",
        seconds: float | None = CALL_SECONDS,
    ) -> Any:
        """Return the answer of another process."""
        connection, response = self._send(peer, method, path, body, seconds)
        try:
            return orjson.loads(response.read())
        except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
            raise self.no_answer(peer) from error
        finally:
            connection.close()

    def captured(self, peer: P, shard: int) -> tuple[LogSeed, Iterator[bytes]]:
        """Begin to capture a shard of another process; return its log and the snapshot's chunks."""
        connection, response = self._send(
            peer, "GET", f"{private.CAPTURE}{shard}", b"", CALL_SECONDS
        )
        chunks = self._chunks(peer, connection, response)
        return LogSeed(*orjson.loads(next(chunks))), chunks

    def _chunks(
        self, peer: P, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> Iterator[bytes]:
        try:
            while True:
                (size,) = private.LENGTH.unpack(self._read(peer, response, private.LENGTH.size))
                if not size:
                    return
                yield self._read(peer, response, size)
        finally:
            connection.close()

    def _read(self, peer: P, response: http.client.HTTPResponse, size: int) -> bytes:
        try:
            data = response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise self.no_answer(peer) from error
        if len(data) != size:
            raise self.no_answer(peer)
        return data

    def _send(
        self, peer: P, method: str, path: str, body: bytes, seconds: float | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self.connection(peer, seconds)
        try:
            connection.request(method, path, body, self.headers(peer, method, path, body))
            response = connection.getresponse()
            if response.status != _OK:
                problem = orjson.loads(response.read())["message"]
                raise self.refused(peer, response.status, problem)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self.no_answer(peer) from error
        except BaseException:
            connection.close()
            raise
        return connection, response
