"""TLS connections of a server: the handshake, the sockets, and the reload of certificates."""

from __future__ import annotations

import _ssl
import errno
import logging
import socket as plain
import ssl
from collections.abc import Callable
from datetime import datetime, timezone
from time import monotonic
from typing import Any, cast

import gevent
from gevent import ssl as gevent_ssl
from gevent.socket import socket

from kbcore.config.settings import Config
from kbcore.errors import ConfigError
from kbserver.http.certificates import client_context, load

HSTS = (b"Strict-Transport-Security", b"max-age=86400")
"""Header by which browsers use HTTPS only, for one day after the latest answer."""

CERTIFIED_PATHS = ("/replication/log", "/replication/snapshot")
"""Paths for followers only, which need a client certificate if there is a CA for these."""

_HANDSHAKE = b"\x16"
"""First byte of a TLS connection."""

_RECORD_BYTES = 1 << 14
"""Maximum size of the content of a TLS record."""

MAX_HANDSHAKE_MESSAGES = 64
"""Messages of the handshake protocol that a connection may receive, ten of them to begin.

The others are changes of keys, which are needed every 2**24 records, and refused renegotiations.
OpenSSL handles all that have arrived before it returns from a read: a client that sends them
without a pause would stop the process.
"""

READS_BETWEEN = 64
"""Reads between two turns of others: a client can send records of one byte without a pause."""

_HANDSHAKE_PROTOCOL = 22
_DRAIN_READS = 1024

log = logging.getLogger(__name__)


class PlainText(OSError):
    """The client does not speak TLS. The socket has become a plain one, for the answer."""


class TLSSocket(gevent_ssl.SSLSocket):  # type: ignore[misc]
    """A TLS connection that can be used like a plain one.

    One greenlet can see with MSG_PEEK whether something has arrived while another one sends or
    receives, and a connection can be shut down in one direction.
    """

    _early = b""
    """Bytes that were read for a peek."""

    _sslobj: Any

    _ended = False
    """True if the end of the stream was sent; what arrives later is read undecrypted."""

    _messages = 0
    """Number of messages of the handshake protocol that have arrived."""

    _reads = 0
    """Number of reads since the last turn of others."""

    yield_now: Callable[[], None] = staticmethod(gevent.sleep)
    """Lets other greenlets run."""

    def handshake(self) -> None:
        """Do the handshake of a server. Raises PlainText, OSError."""
        first = socket.recv(self, 1, plain.MSG_PEEK)
        if first and first != _HANDSHAKE:
            self._sslobj = None
            raise PlainText
        self.do_handshake()

    def read(self, nbytes: int = 1024, buffer: Any = None) -> Any:
        """Return the next bytes, or their number if they are written into a buffer.

        Raises TimeoutError also if a record arrives too slowly.
        """
        self._reads += 1
        if self._reads > READS_BETWEEN and self.timeout != 0.0:
            self._reads = 0
            self.yield_now()
        began = None
        while True:
            if self._early:
                data, self._early = self._early[:nbytes], self._early[nbytes:]
                if buffer is None:
                    return data
                buffer[: len(data)] = data
                return len(data)
            try:
                if buffer is None:
                    return self._sslobj.read(nbytes)
                return self._sslobj.read(nbytes, buffer)
            except ssl.SSLWantReadError:
                if self.timeout == 0.0:
                    raise
                began = monotonic() if began is None else began
                if self.timeout is not None and monotonic() - began > self.timeout:
                    raise TimeoutError("a TLS record took too long") from None
                self._wait(self._read_event)  # until then a peek may take the bytes
            except ssl.SSLWantWriteError:
                if self.timeout == 0.0:
                    raise
                self._wait(self._write_event)
            except ssl.SSLEOFError:
                return b"" if buffer is None else 0

    def recv(self, buflen: int = 1024, flags: int = 0) -> Any:
        """Return the next bytes; with MSG_PEEK without waiting (raises BlockingIOError)."""
        if self._sslobj is None or self._ended:
            return socket.recv(self, buflen, flags)
        return self._peek(buflen) if flags == plain.MSG_PEEK else super().recv(buflen, flags)

    def _peek(self, size: int) -> bytes:
        if not self._early:
            try:
                self._early = self._sslobj.read(_RECORD_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError(errno.EAGAIN, "no whole record has arrived") from None
            except ssl.SSLEOFError:
                return b""
        return self._early[:size]

    def has_early(self) -> bool:
        """Return True if decrypted bytes wait, so that the descriptor may not become readable."""
        return bool(self._early or self.pending())

    def shutdown(self, how: int) -> None:
        """Shut down a direction; for the sending one the end of the stream is sent."""
        if how != plain.SHUT_RD:
            self._end()
        socket.shutdown(self, how)

    def _end(self) -> None:
        """Send the end of the stream, without waiting for that of the client."""
        if self._sslobj is None or self._ended:
            return
        self._ended = True
        try:
            self._sslobj.shutdown()
        except (OSError, ValueError):  # usually SSLWantReadError: the client has not ended yet
            return

    def count_message(self) -> None:
        """Count a message of the handshake protocol; after too many there is nothing to read."""
        self._messages += 1
        if self._messages <= MAX_HANDSHAKE_MESSAGES:
            return
        try:
            self._sock.shutdown(plain.SHUT_RDWR)
            for _ in range(_DRAIN_READS):  # what has arrived could still be read otherwise
                if not self._sock.recv(1 << 16):
                    break
        except OSError:
            return

    def _real_close(self) -> None:
        if self._messages > MAX_HANDSHAKE_MESSAGES:
            log.warning("a TLS connection had over %d handshake messages", MAX_HANDSHAKE_MESSAGES)
        self._end()
        super()._real_close()


class TLSContext(gevent_ssl.SSLContext):  # type: ignore[misc]
    """A context whose sockets are TLSSocket, and count the messages of the handshake protocol."""

    sslsocket_class = TLSSocket

    def __init__(self, protocol: int) -> None:  # which `__new__` uses
        super().__init__()
        # Not by the property of `ssl`, which looks up the names of all numbers for each record.
        _ssl._SSLContext._msg_callback.__set__(self, _count_message)  # type: ignore[attr-defined]


def _count_message(sock: object, direction: str, _version: int, kind: int, *_: object) -> None:
    """Count a message of a connection; OpenSSL calls this, so that nothing here may wait.

    `sock` is the socket within a TLSSocket, or an object without a socket.
    """
    if kind == _HANDSHAKE_PROTOCOL and direction == "read" and hasattr(sock, "_sslsock"):
        whole = sock._sslsock()
        if whole is not None:
            whole.count_message()


class ServerTLS:
    """The certificate of a server, which can be read again while it serves."""

    def __init__(self, config: Config) -> None:
        """Read the files; raises ConfigError for unusable ones."""
        self._config = config
        self._context = load(config, TLSContext).context
        self._clients: list[ssl.SSLContext] = []

    def client(self, setting: str, ca_file: str) -> ssl.SSLContext:
        """Return a context for connections to other nodes, with the certificate of this one."""
        context = client_context(self._config, setting, ca_file, TLSContext)
        self._clients.append(context)
        return context

    def wrap(self, sock: Any, yield_now: Callable[[], None]) -> TLSSocket:
        """Return the TLS socket of a new connection, before the handshake; raises OSError.

        `yield_now` is called between its reads, and lets other requests run.
        """
        wrapped: Any = self._context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False
        )
        wrapped.yield_now = yield_now
        return cast("TLSSocket", wrapped)

    def needs_certificate(self, path: str, *, is_node: bool) -> bool:
        """Return True if a request is for nodes and followers only, which have certificates."""
        return bool(self._config.tls_client_ca) and (is_node or path.startswith(CERTIFIED_PATHS))

    def reload(self) -> None:
        """Read the files again, for new connections; if they cannot be used, change nothing."""
        try:
            certificate = load(self._config, TLSContext)
            for context in self._clients:
                context.load_cert_chain(self._config.tls_cert, self._config.tls_key)
        except (ConfigError, OSError) as error:
            problem = error.message if isinstance(error, ConfigError) else "the files have changed"
            log.error("TLS files cannot be used, those read before stay in use: %s", problem)
            return
        self._context = certificate.context
        ends = datetime.fromtimestamp(certificate.ends, timezone.utc)
        log.info("TLS files were read again; the certificate ends %s", f"{ends:%Y-%m-%d %H:%M}Z")


def secured(context: ssl.SSLContext, sock: Any, host: str) -> Any:
    """Return a TLS connection to another node, which the caller has connected.

    Raises OSError; why is in the log.
    """
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLError as error:
        log.warning("no TLS connection with %s: %s", host, describe(error))
        raise


def describe(error: OSError) -> str:
    """Return why a handshake failed, without the text of foreign exceptions."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError):
        return "it closed the connection"
    return (error.reason or "unknown").lower().replace("_", " ")


def is_about_certificate(error: OSError) -> bool:
    """Return True if a handshake failed because of the certificate of the client."""
    return isinstance(error, ssl.SSLCertVerificationError)
