"""The server: gevent's pywsgi made strict about requests, bounded in time, and quick to answer.

Headers and body of an answer leave in one send with Nagle's algorithm off: otherwise the second packet of each answer waits
for the client's delayed acknowledgement, 40 ms a request.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import gevent
from gevent.event import Event
from gevent.pool import Pool
from gevent.pywsgi import Input, WSGIHandler, WSGIServer

from kbcore.config import Config
from kbcore.runtime import open_runtime
from kbserver import logs
from kbserver.app import create_app, stop_process
from kbserver.errors import ErrorAnswer
from kbserver.offload import Offload, pause
from kbserver.wire import BadRequest, Head, read_head, refusal

HEADER_SECONDS = 10.0
BODY_SECONDS = 30.0
IDLE_SECONDS = 75.0
MAX_CONNECTIONS = 1000

_DISCARD = 64 * 1024
_LINGER_SECONDS, _LINGER_BYTES = 1.0, 8 << 20
_SLICE = 1 << 20
_LOOPBACK = ("127.", "::1", "localhost")

log = logging.getLogger(__name__)


class TooSlow(OSError):
    """A client that took longer than it may."""


class BodyInput(Input):  # type: ignore[misc]
    """The body of a request, to be read within a time; what is left unread is read off only if it is little."""

    __slots__ = ("at_hand", "broken", "deadline")

    def __init__(self, rfile: Any, head: Head, sock: Any, at_hand: int) -> None:
        super().__init__(rfile, head.length, socket=sock, chunked_input=head.chunked)
        self.at_hand = at_hand
        self.broken = False
        self.deadline: float | None = None

    def read(self, length: int | None = None) -> bytes:
        """Read up to `length` bytes; raises TooSlow, an OSError, when the client takes too long."""
        if not self.chunked_input and (self.content_length or 0) <= self.at_hand:
            return bytes(super().read(length))
        now = time.monotonic()
        self.deadline = self.deadline or now + BODY_SECONDS
        try:
            with gevent.Timeout(max(0.001, self.deadline - now), TooSlow(f"the body took over {BODY_SECONDS:g} seconds")):
                return bytes(super().read(length))
        except OSError:
            self.broken = True
            raise
        except ValueError as error:  # what pywsgi makes of a chunk without a size
            self.broken = True
            raise OSError("a chunk has no size") from error

    @property
    def abandoned(self) -> bool:
        """Whether too much of the body is unread for the connection to be used again."""
        if self.broken:
            return True
        if self.chunked_input:
            return bool(self.chunk_length != 0)
        left = (self.content_length or 0) - self.position
        return left > 0 and (left > _DISCARD or self.socket is not None)

    def _discard(self) -> None:
        if not self.abandoned:
            super()._discard()


class Handler(WSGIHandler):  # type: ignore[misc]
    """One connection."""

    busy = False
    wsgi_input: BodyInput
    response_headers: list[tuple[bytes, bytes]]

    def handle(self) -> None:
        """Serve requests until one side wants no more."""
        self.server.handlers.add(self)
        try:
            if self.socket.family in (socket.AF_INET, socket.AF_INET6):
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.settimeout(IDLE_SECONDS)
            while self.handle_one_request():
                gevent.sleep(0)  # a client whose next request is here already must not keep the others waiting
        except OSError:
            pass  # the client is gone, or was idle for too long
        finally:
            self.server.handlers.discard(self)
            self._close()

    def handle_one_request(self) -> bool | None:
        """Serve one request; whether the connection may carry another."""
        self.busy = False
        self.close_connection = self.server.stopping
        at_hand = self.rfile.peek(1)
        if not at_hand:
            return None
        self.busy = True
        head = Head()
        try:
            if b"\r\n\r\n" in at_hand:
                read_head(self.rfile.readline, head)
            else:
                with gevent.Timeout(HEADER_SECONDS, TooSlow()):
                    if not read_head(self.rfile.readline, head):
                        return None
        except BadRequest as error:
            self._refuse(head, error.status, error.message)
            return None
        except TooSlow:
            self._refuse(head, 408, f"the headers took over {HEADER_SECONDS:g} seconds")
            return None

        self.command, self.path, self.request_version = head.method, head.target, head.version
        self.close_connection = head.closes or self.server.stopping
        self.environ = self._environ(head, len(at_hand) - head.size)
        self.application = self.server.application
        self._head = head
        self.handle_one_response()
        return None if self.close_connection else True

    def _environ(self, head: Head, at_hand: int) -> dict[str, Any]:
        expects = self.socket if "EXPECT" in head.headers else None
        self.wsgi_input = BodyInput(self.rfile, head, expects, at_hand)
        environ: dict[str, Any] = self.server.get_environ()
        environ.update(head.environ())
        environ["wsgi.input"] = self.wsgi_input
        environ["wsgi.input_terminated"] = True
        if isinstance(self.client_address, tuple):
            environ["REMOTE_ADDR"] = str(self.client_address[0])
            environ["REMOTE_PORT"] = str(self.client_address[1])
        return environ

    def finalize_headers(self) -> None:
        """Say that the connection will be closed where it will be."""
        self.close_connection = self.close_connection or self.wsgi_input.abandoned or self.server.stopping
        if self.close_connection:
            self.response_headers = [header for header in self.response_headers if header[0].lower() != b"connection"]
            self.response_headers.append((b"Connection", b"close"))
        super().finalize_headers()

    def _write_with_headers(self, data: bytes) -> None:
        self.headers_sent = True
        self.finalize_headers()
        start = bytearray(b"HTTP/1.1 " + self.status + b"\r\n")
        for name, value in self.response_headers:
            start += name + b": " + value + b"\r\n"
        start += b"\r\n"
        if self.response_use_chunked:
            start += b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        elif self.command != "HEAD":
            start += data
        self._sendall(start)

    def _write(self, data: bytes) -> None:
        if self.command != "HEAD":
            super()._write(data)

    def _sendall(self, data: bytes | bytearray) -> None:
        if len(data) <= _SLICE:
            super()._sendall(data)
            return
        whole = memoryview(data)  # a slow reader has the idle time for each slice, not for all of them
        for start in range(0, len(whole), _SLICE):
            super()._sendall(whole[start : start + _SLICE])

    def log_request(self) -> None:
        """Do nothing: the application writes the line of each request."""

    def _log_error(self, t: Any, v: Any, tb: Any) -> None:
        log.error("the application failed", exc_info=(t, v, tb))

    def _handle_client_error(self, ex: BaseException) -> None:
        log.info("bad request body: %s", ex)

    def _send_error_response_if_possible(self, error_code: int) -> None:
        self.close_connection = True
        if not self.response_length:
            messages = {400: "the body could not be read", 500: "the server failed to handle this request; the log has more"}
            self._refuse(self._head, error_code, messages[error_code])

    def _refuse(self, head: Head, status: int, message: str) -> None:
        code = "INTERNAL_ERROR" if status == 500 else "VALIDATION_ERROR"
        logs.log_request({"method": head.method, "path": head.target, "status": status, "reason": message})
        self.close_connection = True
        self.socket.sendall(refusal(head, ErrorAnswer(status, code, message)))

    def _close(self) -> None:
        """Close so that the answer arrives: with unread input, a plain close would make the kernel reset the connection."""
        sock = self.__dict__.pop("socket", None)
        if sock is None:
            return
        try:
            if self.busy:
                sock.shutdown(socket.SHUT_WR)
                left = _LINGER_BYTES
                with gevent.Timeout(_LINGER_SECONDS, False):
                    while left > 0 and (part := sock.recv(1 << 16)):
                        left -= len(part)
        except OSError:
            pass
        finally:
            self.rfile.close()
            sock.close()


class Server(WSGIServer):  # type: ignore[misc]
    """Listens, knows its connections, and stops by letting the busy ones finish."""

    handler_class = Handler

    def __init__(self, listener: socket.socket, application: Any, *, connections: int = MAX_CONNECTIONS) -> None:
        self.handlers: set[Handler] = set()
        self.stopping = False
        name = str(listener.getsockname()[0])  # given here because pywsgi would ask the name service for it
        super().__init__(
            listener, application, spawn=Pool(connections), log=None, error_log=log, environ={"SERVER_NAME": name}
        )

    def drain(self, seconds: float) -> None:
        """Take no more connections, close the idle ones, and wait for the others at most so long."""
        self.stopping = True
        for handler in list(self.handlers):
            if not handler.busy:
                try:
                    handler.socket.shutdown(socket.SHUT_RD)
                except OSError:
                    continue
        self.stop(timeout=seconds)


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket, with Nagle's algorithm off for what it accepts."""
    from gevent import socket as green

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = green.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, port))
        sock.listen(1024)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock  # type: ignore[no-any-return]


announce = partial(print, flush=True)
"""Print at once, also into a pipe: somebody may be waiting for the address."""


def run(config: Config, *, plugins: Sequence[object] = (), say: Callable[[str], None] = announce) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. The process is patched by gevent already."""
    logs.configure(config.log_level, config.log_format)
    offload = Offload()
    runtime = open_runtime(config, plugins=plugins, offload=offload, pause=pause, on_failure=stop_process)
    try:
        server = Server(listen(config.host, config.port), create_app(runtime, on_storage_failed=stop_process, pause=pause))
        wanted = Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, wanted.set)
        server.start()
        for line in announcement(config, server.address[:2]):
            say(line)
        wanted.wait()
        log.info("stopping")
        server.drain(config.shutdown_timeout_ms / 1000)
    finally:
        runtime.close()
        offload.close()
    return 0


def announcement(config: Config, address: tuple[str, int]) -> Iterable[str]:
    """Say where the server listens and what it keeps."""
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    yield f"kbcore listens on http://{host}:{address[1]}"
    if config.storage_backend == "wal":
        yield f"data in {os.path.abspath(config.storage_dir)}, fsync policy {config.fsync_policy}"
    else:
        yield f"storage backend {config.storage_backend}"
    if not config.host.startswith(_LOOPBACK):
        yield f"WARNING: no keys are set and {config.host} is not this machine only: whoever reaches it may read and write"
