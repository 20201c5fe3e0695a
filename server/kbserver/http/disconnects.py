"""While a long goal is worked on: noticing that its client leaves, or that the server gives up on stopping politely.

A client that closes its side of the connection has left, though it could still read: nothing tells that from a closed
connection before an answer is sent. One that has sent more, its next request, has not, and is not watched any longer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import gevent
from gevent.socket import wait_read

from kbcore.errors import CallerLeft, KBError

Stop = Callable[[KBError], None]


class Watches:
    """The long goals under way on the connections of a server."""

    def __init__(self) -> None:
        self._stops: dict[object, Stop] = {}
        self._ended: KBError | None = None

    def __len__(self) -> int:
        return len(self._stops)

    def begin(self, sock: Any, stop: Stop, left: Callable[[], None]) -> Callable[[], None]:
        """Watch a connection nobody reads from; on a leave call `left`, then `stop`. Gives what ends the watch."""
        if self._ended is not None:
            stop(self._ended)
        watched = object()
        self._stops[watched] = stop

        def gone() -> None:
            left()
            stop(CallerLeft())

        watcher = gevent.spawn(_wait, sock, gone)

        def end() -> None:
            del self._stops[watched]
            watcher.kill()

        return end

    def stop_all(self, error: KBError) -> None:
        """Stop what is watched now, and from now on whatever comes."""
        self._ended = error
        for stop in list(self._stops.values()):
            stop(error)


def _wait(sock: Any, gone: Callable[[], None]) -> None:
    try:
        wait_read(sock.fileno())
        left = not sock.recv(1, socket.MSG_PEEK)
    except OSError:
        left = True
    if left:
        gone()
