"""Disconnect detection: stops long goals when their client disconnects or the server's shutdown
timeout ends.

A half-closed connection counts as disconnected, because it cannot be told from a closed one before
the response is sent. A client that sends its next request is still connected, and is not watched
any longer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import gevent
from gevent.socket import wait_read

from kbcore.errors import CallerLeft, KBError
from kbserver.http.tls import TLSSocket

Stop = Callable[[KBError], None]


class DisconnectWatcher:
    """Watcher of the connections of active long goals."""

    def __init__(self) -> None:
        self._stops: dict[object, Stop] = {}
        self._ended: KBError | None = None

    def __len__(self) -> int:
        return len(self._stops)

    def begin(self, sock: Any, stop: Stop, left: Callable[[], None]) -> Callable[[], None]:
        """Watch an idle connection; on disconnect call `left`, then `stop`.

        Returns a function that ends the watch.
        """
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
        """Stop all watched goals, and every goal that begins later."""
        self._ended = error
        for stop in list(self._stops.values()):
            stop(error)


def _wait(sock: Any, gone: Callable[[], None]) -> None:
    left = None
    try:
        if isinstance(sock, TLSSocket) and sock.has_early():
            return
        while left is None:
            wait_read(sock.fileno())
            try:
                left = not sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:  # only a part of a TLS record
                continue
    except OSError:
        left = True
    if left:
        gone()
