"""One worker of several: its number, its sockets, and the shards that it owns."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

SYSTEM_WORKER = 0
"""The worker with the system shard."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker: its number, of `count`, and the sockets that it inherits as file descriptors.

    `listener` is the public socket, which all workers share. Of the Unix sockets of this worker in
    `folder`, `private` gets requests and `handover` connections. `alive` ends when the supervisor
    ends. On `ready` the worker writes the lines of its announcement when it serves. `secret` is
    that of this run (`proofs.py`); it goes through `secret_pipe`, so that neither the command nor
    the environment shows it.
    """

    index: int
    count: int
    folder: str
    listener: int
    private: int
    handover: int
    alive: int
    ready: int = -1
    secret_pipe: int = -1
    secret: bytes = field(default=b"", repr=False)

    @property
    def owns(self) -> Callable[[int], bool]:
        """Function that returns True for the numbers of the shards of this worker."""
        return lambda shard: shard % self.count == self.index

    @property
    def others(self) -> list[int]:
        """Numbers of the other workers."""
        return [index for index in range(self.count) if index != self.index]

    def public_socket(self) -> socket.socket:
        """Return the public socket."""
        return socket.socket(fileno=self.listener)

    def private_socket(self) -> socket.socket:
        """Return the private socket of this worker."""
        return socket.socket(fileno=self.private)

    def handover_socket(self) -> socket.socket:
        """Return the socket on which this worker gets connections from others."""
        return socket.socket(fileno=self.handover)

    def path_of(self, index: int) -> str:
        """Return the path of the private socket of a worker."""
        return private_path(self.folder, index)

    def handover_path_of(self, index: int) -> str:
        """Return the path of the socket on which a worker gets connections."""
        return handover_path(self.folder, index)

    def encode(self) -> str:
        """Return the worker as a text for the command line, without the secret."""
        fields = asdict(self)
        del fields["secret"]
        return json.dumps(fields)

    @classmethod
    def decode(cls, text: str) -> Worker:
        """Return the worker that a text describes, with the secret that waits in its pipe."""
        worker = cls(**json.loads(text))
        with os.fdopen(worker.secret_pipe, "rb") as pipe:
            return replace(worker, secret_pipe=-1, secret=pipe.read())


def private_path(folder: str, index: int) -> str:
    """Return the path of the private socket of a worker."""
    return f"{folder}/worker-{index}"


def handover_path(folder: str, index: int) -> str:
    """Return the path of the socket on which a worker gets connections."""
    return f"{folder}/handover-{index}"
