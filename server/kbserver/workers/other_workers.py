"""Calls of a worker to the other workers of its server."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from kbcore.errors import NotReady
from kbcore.node.other_processes import Directory, TenantSize
from kbcore.plug.ports import LogSeed
from kbserver.forwarding import private
from kbserver.forwarding.calls import Calls
from kbserver.forwarding.proofs import PROOF, HopProofs
from kbserver.workers.worker import SYSTEM_WORKER, Worker


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


class WorkerPeers(Calls[int]):
    """The other workers; implements `kbcore.node.other_processes.Peers`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._proofs = HopProofs(worker.secret)

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
