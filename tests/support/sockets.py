"""A server on a real port, in its own thread."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from typing import Any

import gevent
from gevent.event import Event

from kbserver.http.listening import listen
from kbserver.http.tls import ServerTLS
from kbserver.serve import Server


def connected(
    address: tuple[str, int], trust: ssl.SSLContext | None, seconds: float
) -> socket.socket:
    """Return a connection to an address, over TLS if there is a context."""
    sock = socket.create_connection(address, timeout=seconds)
    if trust is None:
        return sock
    return trust.wrap_socket(sock, server_hostname=address[0])


class Running:
    """A server with its own hub in a thread of its own; `options` are those of Server.

    With `tls` it has a certificate, which its clients verify by `trust`.
    """

    def __init__(
        self,
        application: Any,
        *,
        tls: ServerTLS | None = None,
        trust: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        self._tls = tls
        self.trust = trust
        self._application = application
        self._options = options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(10)

    def _run(self) -> None:
        self.server = Server(listen("127.0.0.1", 0), self._application, **self._options)
        if self._tls is not None:
            self.server.use_https(self._tls)
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
        if self.trust is not None:
            return http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=10, context=self.trust
            )
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def socket(self) -> socket.socket:
        """Return a new connection."""
        return connected(("127.0.0.1", self.port), self.trust, 10)

    def raw(self, data: bytes, *, half_close: bool = True) -> bytes:
        """Send bytes and give everything that comes back."""
        with self.socket() as sock:
            sock.sendall(data)
            if half_close:  # not the method of a TLS socket, which could not receive any more
                socket.socket.shutdown(sock, socket.SHUT_WR)
            parts = []
            while part := sock.recv(65_536):
                parts.append(part)
            return b"".join(parts)
