"""Which worker owns which shard, as the forwarding of requests asks."""

from __future__ import annotations

import socket
from collections.abc import Hashable
from typing import Any

from kbcore.errors import NotReady
from kbserver.forwarding.proofs import CLIENT, PROOF, HopProofs
from kbserver.http.request_head import Head
from kbserver.workers.worker import Worker

_OWN_PATHS = frozenset(("/health",))


class WorkerOwners:
    """`Owners` of the workers of one server: the placement is fixed, connections are local."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._proofs = HopProofs(worker.secret)

    def is_own(self, path: str, environ: dict[str, Any]) -> bool:
        """Return True for the paths that every worker answers."""
        return path in _OWN_PATHS

    def find(self, shard: int) -> int | None:
        """Return the worker with a shard, None if it is this one."""
        owner = shard % self._worker.count
        return None if owner == self._worker.index else owner

    def find_again(self, shard: int, owner: Hashable, *, sent: bool, seconds: float) -> int | None:
        """Raise NotReady: no other worker has the shard."""
        raise NotReady(
            "the worker that owns this tenant has ended; it is being started again",
            {"reason": "worker", "outcome": "unknown" if sent else "not_done"},
        )

    def connect(self, owner: Hashable) -> Any:
        """Return a connection to the private socket of a worker."""
        if not isinstance(owner, int):
            raise TypeError("an owner is the number of a worker")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._worker.path_of(owner))
        except OSError:
            connection.close()
            raise
        return connection

    def introduce(
        self, owner: Hashable, head: Head, client: str, body: bytes | None
    ) -> tuple[list[str], None]:
        """Return the address of the client, and the proof that a worker tells it; no seals."""
        return [f"{CLIENT}: {client}", f"{PROOF}: {self._proofs.forwarded}"], None

    def address_of(self, owner: Hashable) -> str:
        """Raise NotReady: workers share one address."""
        raise NotReady("the workers share one address")
