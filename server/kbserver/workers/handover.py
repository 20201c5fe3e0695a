"""Handing of connections to the worker that owns the tenant of their requests.

A connection goes to the owner as an open file descriptor, with the bytes that were read and not yet
served, and the owner goes on with it as if it had accepted it. So a client that keeps to one tenant
on a connection pays once, and later requests are not forwarded. A request is served by one worker
only: this one serves nothing after the descriptor was sent. What a worker has not yet received
waits in the queue of its socket, which the supervisor holds open, like a connection that was not
accepted. TLS connections are not handed over: their keys are in the process.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import sys
from collections.abc import Callable, Hashable
from typing import Any

import gevent
from gevent import monkey
from gevent.server import StreamServer

from kbserver.workers.worker import Worker

MOVE_AFTER = 4
"""Number of requests in a row for the same other worker after which a connection is handed to
it.
"""

MAX_RECEIVED = 64 * 1024
"""Maximum bytes, read from the client and not yet served, that are sent with a connection."""

RECEIVE_SECONDS = 5.0
"""Seconds to wait for a descriptor from a worker that has connected."""

_NEW = -1

log = logging.getLogger(__name__)

# Connecting to a Unix socket and sending a short message there succeed or fail at once. gevent's
# socket would wait if the queue of the owner is full.
_Socket: Any = monkey.get_original("socket", "socket")


class Affinity:
    """The owners of the latest requests of a connection: decides when the connection is handed
    over.
    """

    __slots__ = ("_length", "_owner")

    def __init__(self, *, is_new: bool) -> None:
        self._owner: Hashable | None = _NEW if is_new else None
        self._length = 0

    def moves_to(self, owner: Hashable | None) -> bool:
        """Record the owner of a request, None for this worker.

        Return True if the connection should go to that owner: with the first request of a new
        connection, or after MOVE_AFTER requests in a row. So the connection of a client that
        alternates between tenants stays where it is.
        """
        is_first = self._owner == _NEW
        self._length = self._length + 1 if owner == self._owner else 1
        self._owner = owner
        return owner is not None and (is_first or self._length >= MOVE_AFTER)


class Handover:
    """Sends connections to the other workers."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def send(self, owner: Hashable, sock: Any, received: bytes) -> bool:
        """Send a connection and the bytes received from its client to another worker.

        Return False if that worker cannot take it now; nothing has changed then. Otherwise the
        caller must close `sock` without a shutdown, which leaves the connection open.
        """
        if len(received) > MAX_RECEIVED or not isinstance(owner, int):
            return False
        with _Socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
            channel.setblocking(False)
            try:
                channel.connect(self._worker.handover_path_of(owner))
                socket.send_fds(channel, [received], [sock.fileno()])
            except OSError:  # its queue is full, or too many descriptors are on their way
                return False
        _forget(sock.fileno())
        return True


def _forget(descriptor: int) -> None:
    """Remove a descriptor from the event loop's epoll set.

    Closing a descriptor does this unless another process has the same connection open. Then every
    later event of the connection would wake this process.
    """
    poll = gevent.get_hub().loop.fileno()
    if poll is None or sys.platform != "linux":
        return
    epoll = monkey.get_original("select", "epoll").fromfd(os.dup(poll))
    try:
        epoll.unregister(descriptor)
    except FileNotFoundError:  # the client's bytes were there before anything waited for them
        return
    finally:
        epoll.close()


class HandoverReceiver(StreamServer):  # type: ignore[misc]
    """Receives connections from other workers and has `serve` serve each of them.

    `serve` gets the socket and the bytes received from the client. The connections count in `pool`.
    """

    def __init__(
        self, listener: socket.socket, serve: Callable[[Any, bytes], None], pool: Any
    ) -> None:
        self._serve = serve
        super().__init__(listener, self._receive, spawn=pool)

    def _receive(self, channel: Any, address: object) -> None:
        channel.settimeout(RECEIVE_SECONDS)
        try:
            received, descriptors, _, _ = socket.recv_fds(channel, MAX_RECEIVED, 1)
        except OSError:
            return
        finally:
            channel.close()
        if not descriptors:
            if received:
                log.error("a connection was lost: this process has too many open files")
            return
        sock = socket.socket(fileno=descriptors[0])
        try:
            self._serve(sock, received)
        finally:
            sock.close()


class _Resumed(io.RawIOBase):
    """A raw stream that begins with bytes that were read before."""

    def __init__(self, raw: io.RawIOBase, received: bytes) -> None:
        self._raw = raw
        self._received = received

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read into a buffer; return the number of bytes."""
        if not self._received:
            return self._raw.readinto(buffer)
        size = min(len(buffer), len(self._received))
        buffer[:size] = self._received[:size]
        self._received = self._received[size:]
        return size

    def close(self) -> None:
        """Close the stream."""
        self._raw.close()
        super().close()


def resumed(stream: io.BufferedReader, received: bytes) -> io.BufferedReader:
    """Return a stream with the received bytes in front; one peek returns them all."""
    size = max(io.DEFAULT_BUFFER_SIZE, len(received))
    return io.BufferedReader(_Resumed(stream.detach(), received), size)
