"""Calls of a worker to the others, over their private sockets."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from kbcore.errors import NotReady
from kbcore.node.peers import Directory, TenantSize
from kbcore.plug.ports import LogSeed
from kbserver.workers import private
from kbserver.workers.worker import SYSTEM_WORKER, Worker

CALL_SECONDS = 60.0
"""Seconds to wait for the answer of another worker, which may be starting."""

_OK = 200


class _Connection(http.client.HTTPConnection):
    """A connection to the private socket of a worker."""

    def __init__(self, path: str, seconds: float | None) -> None:
        super().__init__("worker", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Connect to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class WorkerPeers:
    """The other workers; implements `kbcore.node.peers.Peers`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def owns(self) -> Callable[[int], bool]:
        """Function that returns True for the numbers of the shards of this worker."""
        return self._worker.owns

    def directory(self) -> Directory | None:
        """Return the directory of the worker with the system shard; None in that worker."""
        if self._worker.index == SYSTEM_WORKER:
            return None
        # No time limit: that worker may be recovering a large storage.
        answer = self._call(SYSTEM_WORKER, "GET", private.DIRECTORY, seconds=None)
        return Directory.from_json(answer)

    def announce(self, directory: Directory) -> None:
        """Make every other worker act on a directory."""
        body = orjson.dumps(directory.to_json())
        for index in self._worker.others:
            self._call(index, "POST", private.DIRECTORY, body)

    def tenants(self) -> list[TenantSize]:
        """Return the tenants of all other workers."""
        answers = [self._call(index, "GET", private.TENANTS) for index in self._worker.others]
        return [TenantSize(*row) for rows in answers for row in rows]

    def snapshot(self) -> None:
        """Take snapshots in all other workers."""
        for index in self._worker.others:
            self._call(index, "POST", private.SNAPSHOT)

    def health(self) -> list[dict[str, Any]]:
        """Return the readiness of all other workers."""
        return [self._call(index, "GET", private.HEALTH) for index in self._worker.others]

    def expositions(self) -> list[tuple[int, str]]:
        """Return the metrics of every other worker, with its number."""
        return [(i, self._call(i, "GET", private.METRICS)) for i in self._worker.others]

    def capture(self, shard: int) -> tuple[LogSeed, Iterator[bytes]]:
        """Begin to capture a shard of another worker; return its log and the snapshot's chunks."""
        index = shard % self._worker.count
        connection, response = self._send(index, "GET", f"{private.CAPTURE}{shard}", b"")
        chunks = self._chunks(index, connection, response)
        return LogSeed(*orjson.loads(next(chunks))), chunks

    def _chunks(
        self, index: int, connection: _Connection, response: http.client.HTTPResponse
    ) -> Iterator[bytes]:
        try:
            while True:
                (size,) = private.LENGTH.unpack(self._read(index, response, private.LENGTH.size))
                if not size:
                    return
                yield self._read(index, response, size)
        finally:
            connection.close()

    def _read(self, index: int, response: http.client.HTTPResponse, size: int) -> bytes:
        try:
            data = response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise _no_answer(index) from error
        if len(data) != size:
            raise _no_answer(index)
        return data

    def _call(
        self,
        index: int,
        method: str,
        path: str,
        body: bytes = b"",
        seconds: float | None = CALL_SECONDS,
    ) -> Any:
        connection, response = self._send(index, method, path, body, seconds)
        try:
            return orjson.loads(response.read())
        except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
            raise _no_answer(index) from error
        finally:
            connection.close()

    def _send(
        self,
        index: int,
        method: str,
        path: str,
        body: bytes,
        seconds: float | None = CALL_SECONDS,
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        connection = _Connection(self._worker.path_of(index), seconds)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            if response.status != _OK:
                problem = orjson.loads(response.read())["message"]
                raise NotReady(f"worker {index}: {problem}", {"reason": "worker", "worker": index})
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _no_answer(index) from error
        except BaseException:
            connection.close()
            raise
        return connection, response


def _no_answer(index: int) -> NotReady:
    """Return the error for a worker that ended during a call, or does not answer."""
    details = {"reason": "worker", "worker": index, "outcome": "unknown"}
    return NotReady(f"worker {index} does not answer; it may be starting again", details)
