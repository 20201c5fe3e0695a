"""A TCP proxy between two processes that can drop, hold and refuse connections."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Passes connections on to an address. `cut` drops all and takes no more, `hold` passes on
    nothing, `heal` ends both.

    `record`, if it is set, gets the bytes of both directions as they are passed on.
    """

    def __init__(self, target):
        self.target = target
        self.record = None
        self._open = threading.Event()
        self._open.set()
        self._dropping = False
        self._sockets = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return "http://{}:{}".format(*self.address)

    def cut(self):
        self._dropping = True
        for sock in list(self._sockets):
            self._end(sock)

    def hold(self):
        self._open.clear()

    def heal(self):
        self._dropping = False
        self._open.set()

    def close(self):
        self._listener.close()
        self.cut()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self.target, 5) if not self._dropping else None
                except OSError:
                    far = None
                if far is None:
                    near.close()
                    continue
                self._sockets |= {near, far}
                if self._dropping:  # cut in the meantime
                    self._end(near)
                    self._end(far)
                    continue
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near), daemon=True).start()

    def _pass(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._open.wait()
                if self.record is not None:
                    self.record(data)
                sink.sendall(data)
        self._end(source)
        self._end(sink)

    def _end(self, sock):
        self._sockets.discard(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            sock.close()
