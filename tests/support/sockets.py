"""A server on a real port, in its own thread."""

from __future__ import annotations

import http.client
import socket
import threading
from typing import Any

import gevent
from gevent.event import Event

from kbserver.http.listening import listen
from kbserver.serve import Server


class Running:
    """A server with its own hub in a thread of its own; `options` are those of Server."""

    def __init__(self, application: Any, **options: Any) -> None:
        self._application = application
        self._options = options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(10)

    def _run(self) -> None:
        self.server = Server(listen("127.0.0.1", 0), self._application, **self._options)
        self.server.start()
        self.port: int = self.server.address[1]
        self._stop = Event()
        self._watcher = gevent.get_hub().loop.async_()
        self._watcher.start(self._stop.set)
        self._ready.set()
        self._stop.wait()
        self.server.drain(5)
        self._watcher.close()
        gevent.get_hub().destroy(destroy_loop=True)

    def signal(self) -> None:
        """Do what SIGTERM does."""
        self._watcher.send()

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.signal()
        self.join()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def raw(self, data: bytes, *, half_close: bool = True) -> bytes:
        """Send bytes and give everything that comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as sock:
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            parts = []
            while part := sock.recv(65_536):
                parts.append(part)
            return b"".join(parts)
