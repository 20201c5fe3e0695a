"""Calls of a process to the others of its server or cluster, and those of a worker."""

from __future__ import annotations

import http.client
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import orjson

from kbcore.errors import KBError, NotReady
from kbcore.node.peers import Directory, TenantSize
from kbcore.plug.ports import LogSeed
from kbserver.workers import private
from kbserver.workers.proofs import PROOF, Proofs
from kbserver.workers.worker import SYSTEM_WORKER, Worker

P = TypeVar("P")

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


class WorkerPeers(Calls[int]):
    """The other workers; implements `kbcore.node.peers.Peers`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._proofs = Proofs(worker.secret)

    def connection(self, peer: int, seconds: float | None) -> http.client.HTTPConnection:
        """Return a connection to the private socket of a worker."""
        return _Connection(self._worker.path_of(peer), seconds)

    def headers(self, peer: int, method: str, path: str, body: bytes) -> dict[str, str]:
        """Return the proof that a worker calls."""
        return {PROOF: self._proofs.call}

    def no_answer(self, peer: int) -> NotReady:
        """Return the error for a worker that ended during a call, or does not answer."""
        details = {"reason": "worker", "worker": peer, "outcome": "unknown"}
        return NotReady(f"worker {peer} does not answer; it may be starting again", details)

    def refused(self, peer: int, status: int, problem: str) -> NotReady:
        """Return the error for a call that was answered with an error."""
        return NotReady(f"worker {peer}: {problem}", {"reason": "worker", "worker": peer})

    @property
    def cluster(self) -> None:
        """None: the shards of a worker never change."""

    @property
    def owns(self) -> Callable[[int], bool]:
        """Function that returns True for the numbers of the shards of this worker."""
        return self._worker.owns

    def directory(self) -> Directory | None:
        """Return the directory of the worker with the system shard; None in that worker."""
        if self._worker.index == SYSTEM_WORKER:
            return None
        # No time limit: that worker may be recovering a large storage.
        answer = self.call(SYSTEM_WORKER, "GET", private.DIRECTORY, seconds=None)
        return Directory.from_json(answer)

    def announce(self, directory: Directory) -> None:
        """Make every other worker act on a directory."""
        body = orjson.dumps(directory.to_json())
        for index in self._worker.others:
            self.call(index, "POST", private.DIRECTORY, body)

    def tenants(self) -> list[TenantSize]:
        """Return the tenants of all other workers."""
        answers = [self.call(index, "GET", private.TENANTS) for index in self._worker.others]
        return [TenantSize(*row) for rows in answers for row in rows]

    def snapshot(self) -> None:
        """Take snapshots in all other workers."""
        for index in self._worker.others:
            self.call(index, "POST", private.SNAPSHOT)

    def health(self) -> list[dict[str, Any]]:
        """Return the readiness of all other workers."""
        return [self.call(index, "GET", private.HEALTH) for index in self._worker.others]

    def expositions(self) -> list[tuple[int, str]]:
        """Return the metrics of every other worker, with its number."""
        return [(i, self.call(i, "GET", private.METRICS)) for i in self._worker.others]

    def capture(self, shard: int) -> tuple[LogSeed, Iterator[bytes]]:
        """Begin to capture a shard of another worker; return its log and the snapshot's chunks."""
        return self.captured(shard % self._worker.count, shard)
