"""Forwarding of requests to the process that owns their tenant, as they are, in both directions.

A request goes over a kept connection to its owner, and the response comes back unchanged. The owner
authenticates, accounts and answers. A request is carried out once: if the owner ends before it
answers, the response is 503, and `details.outcome` is `not_done` if the owner cannot have got the
request, else `unknown`. Only a request that was certainly not carried out is sent again, to the
next owner. A forwarded request is never forwarded again.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Hashable, Iterator
from io import BytesIO
from typing import Any, Protocol

import gevent

from kbcore.errors import KBError
from kbcore.tracing import spans
from kbserver.forwarding.request_shards import RequestShards
from kbserver.http.gate import INTERNAL
from kbserver.http.request_head import Head
from kbserver.http.request_id import request_id

SHARD = "kbcore.shard"
"""Key in the WSGI environment of the shard that a request is for."""

MOVED = b"\r\nx-kbcore-moved:"
"""Header of a response by a process that does not own the tenant any more: nothing was carried
out.
"""

IDLE_SECONDS = 30.0
"""Idle time after which a connection to an owner is not used again."""

MAX_IDLE = 64
"""Number of idle connections kept to each owner."""

WATCH_SECONDS = 0.1
"""Time without a response after which the client is watched for a disconnect."""

SEND_SECONDS = 15.0
"""Seconds after which a client that reads nothing is disconnected."""

BLOCK = 64 * 1024
"""Bytes read at a time; smaller bodies are sent together with the head."""

_NOT_FORWARDED = frozenset(
    (
        "CONNECTION",
        "KEEP_ALIVE",
        "TE",
        "TRAILER",
        "UPGRADE",
        "PROXY_CONNECTION",
        "EXPECT",
        "TRANSFER_ENCODING",
        "X_REQUEST_ID",
    )
)
_CONNECTION = re.compile(rb"\r\nconnection:([^\r]*)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_WITHOUT_BODY = frozenset((b"204", b"304"))


class Client(Protocol):
    """A connection of a client with a request that was read up to its body."""

    environ: dict[str, Any]
    head: Head
    socket: Any
    close_connection: bool
    left: bool

    def watch(self, stop: Callable[[KBError], None]) -> Callable[[], None]:
        """Call `stop` if the client disconnects; return a function that ends the watch."""

    def refuse(self, status: int, message: str, details: dict[str, Any] | None = None) -> None:
        """Answer with an error and close the connection."""


class Owners(Protocol):
    """Which process has which shard. An owner is a number or a name that can be a key."""

    def is_own(self, path: str, environ: dict[str, Any]) -> bool:
        """Return True if every process answers this request itself, or it was forwarded already.

        Raises KBError for a request that pretends to be forwarded.
        """

    def find(self, shard: int) -> Hashable | None:
        """Return the owner of a shard, None for this process; raises NotReady without one."""

    def find_again(
        self, shard: int, owner: Hashable, *, sent: bool, seconds: float
    ) -> Hashable | None:
        """As `find`, after `owner` did not carry out a request, or could not be reached.

        `sent` is True if the owner may have got the request, which is then not sent again: raises
        NotReady, as after too many `seconds` since the first attempt.
        """

    def connect(self, owner: Hashable) -> Any:
        """Return a new connection to an owner; raises OSError."""

    def introduce(
        self, owner: Hashable, head: Head, client: str, body: bytes | None
    ) -> tuple[list[str], Callable[[bytes], bytes] | None]:
        """Return the headers that tell an owner from which client a request is.

        `head` has the headers that are forwarded; `body` is None for one that is sent in blocks.
        The second result makes the pieces in which such blocks are sent, with that of an empty one
        at the end; the headers then have their length. None if blocks are sent as they are.
        """

    def address_of(self, owner: Hashable) -> str:
        """Return the address to which a client is redirected; raises NotReady."""


class _Ended(OSError):
    """The owner closed the connection."""


class Forwarder:
    """Finds the owner of a request, and forwards requests of other owners.

    With `redirects` clients are sent to the owner instead.
    """

    def __init__(self, owners: Owners, shards: RequestShards, *, redirects: bool = False) -> None:
        self._owners = owners
        self._shards = shards
        self._redirects = redirects
        self._idle: dict[Hashable, list[tuple[float, Any]]] = {}
        self._active: dict[Hashable, set[Any]] = {}

    def owner_of(self, environ: dict[str, Any]) -> Hashable | None:
        """Return the other owner that a request is for, None if it is for this process.

        The shard that it is for is stored in the environment. Raises KBError if no process has it.
        """
        shard = environ[SHARD] = self._shards.find(environ)
        is_own = self._owners.is_own(environ["PATH_INFO"], environ)
        return None if is_own else self._owners.find(shard)

    def release(self, environ: dict[str, Any]) -> None:
        """Stop counting the body of a request that is answered."""
        self._shards.release(environ)

    def redirect(self, owner: Hashable) -> str:
        """Return the address to which clients are redirected, "" if requests are forwarded."""
        return self._owners.address_of(owner) if self._redirects else ""

    def forward(self, client: Client, owner: Hashable) -> bool:
        """Pass a request to its owner and the response to the client.

        `close_connection` of the client is set if its connection must not be used again. Return
        False if this process has become the owner: nothing was carried out yet.
        """
        if spans.tracer is None:
            return self._forward(client, owner)
        known = client.head.headers
        with spans.tracer.begin_remote(
            "forward", spans.CLIENT, known.get("TRACEPARENT"), known.get("TRACESTATE")
        ):
            return self._forward(client, owner)

    def _forward(self, client: Client, owner: Hashable) -> bool:
        shard: int = client.environ[SHARD]
        exchange = _Exchange(client, self._owners)
        begun = time.monotonic()
        target: Hashable | None = owner
        while target is not None:
            try:
                if self._exchanged(exchange, target):
                    return True
                may_have_happened = False
            except _Ended:
                client.close_connection = True
                if exchange.answered or client.left:
                    return True
                may_have_happened = exchange.sent
            try:
                is_lost = may_have_happened or not exchange.repeatable
                waited = time.monotonic() - begun
                target = self._owners.find_again(shard, target, sent=is_lost, seconds=waited)
            except KBError as error:
                client.refuse(503, error.message, error.details)
                return True
            client.close_connection = exchange.closes
            exchange.again()
        client.environ["wsgi.input"] = BytesIO(exchange.body)
        return False

    def drop(self, owner: Hashable) -> None:
        """End the exchanges with an owner that is gone, and forget the connections to it."""
        for connection in list(self._active.get(owner, ())):
            _shut_down(connection)
        for _, connection in self._idle.pop(owner, ()):
            connection.close()

    def _exchanged(self, exchange: _Exchange, owner: Hashable) -> bool:
        """Send the request to an owner; return False if it did not carry it out. Raises _Ended."""
        connection = self._send_head(exchange, owner)
        active = self._active.setdefault(owner, set())
        active.add(connection)
        is_reusable = False
        try:
            is_reusable = exchange.run(connection)
        finally:
            active.discard(connection)
            if not active:
                self._active.pop(owner, None)
            if is_reusable:
                self._keep(owner, connection)
            else:
                connection.close()
        return not exchange.moved

    def _send_head(self, exchange: _Exchange, owner: Hashable) -> Any:
        """Send the head of a request with a small body; return the connection."""
        idle = self._idle.get(owner, [])
        while idle:
            since, connection = idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and not _is_closed(connection):
                try:
                    connection.sendall(exchange.first_block(owner))
                except OSError:  # the owner has ended since the check and got nothing
                    connection.close()
                    continue
                exchange.sent = True
                return connection
            connection.close()
        try:
            connection = self._owners.connect(owner)
        except OSError as error:
            raise _Ended(str(error)) from error
        try:
            first = exchange.first_block(owner)
            exchange.sent = True
            connection.sendall(first)
        except OSError as error:
            connection.close()
            raise _Ended(str(error)) from error
        return connection

    def _keep(self, owner: Hashable, connection: Any) -> None:
        idle = self._idle.setdefault(owner, [])
        if len(idle) < MAX_IDLE:
            idle.append((time.monotonic(), connection))
        else:
            connection.close()


class _Exchange:
    """One request and its response.

    `moved` is True if the owner has answered that it is not the owner any more.
    """

    def __init__(self, client: Client, owners: Owners) -> None:
        self._client = client
        self._owners = owners
        self._input = client.environ["wsgi.input"]
        self._pending = True
        self._seal: Callable[[bytes], bytes] | None = None
        self.body = b""
        self.moved = False
        self.closes: bool = client.close_connection
        self._sender: gevent.Greenlet | None = None
        self._body_error: OSError | None = None
        self._end_watch: Callable[[], None] | None = None
        self.sent = False
        self.answered = False
        self._request_id = request_id(client.head.headers.get("X_REQUEST_ID"))

    @property
    def repeatable(self) -> bool:
        """True if the whole request can be sent again."""
        return not self._pending

    def again(self) -> None:
        """Prepare to send the request to another owner."""
        self.moved = self.sent = False

    def first_block(self, owner: Hashable) -> bytes:
        """Return the head of the request for an owner, with the body if it is small."""
        head = self._client.head
        if self._pending and not head.chunked and (head.length or 0) <= BLOCK:
            self.body = self._input.read() if head.length else b""
            self._pending = False
        return self._head(owner) + self.body

    def _head(self, owner: Hashable) -> bytes:
        head, environ = self._client.head, self._client.environ
        headers = {
            name: value
            for name, value in head.headers.items()
            if name not in _NOT_FORWARDED and not name.startswith(INTERNAL)
        }
        headers["X_REQUEST_ID"] = self._request_id
        for name, value in spans.trace_headers().items():
            headers[name.upper()] = value
        outgoing = Head(head.method, head.target, head.version, headers)
        address, port = environ.get("REMOTE_ADDR", ""), environ.get("REMOTE_PORT", "")
        body = None if self._pending else self.body
        more, self._seal = self._owners.introduce(owner, outgoing, f"{address} {port}", body)
        if self._seal is not None:
            headers.pop("CONTENT_LENGTH", None)
        lines = [f"{head.method} {head.target} {head.version}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += more
        if head.chunked:
            lines.append("Transfer-Encoding: chunked")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    def run(self, connection: Any) -> bool:
        """Send the rest of the request and relay the response, which may come first.

        Return True if the connection to the owner can be used again. Raises _Ended, and the error
        of a body that cannot be read.
        """
        if self._pending:
            self._sender = gevent.spawn(self._send_body, connection)
        try:
            return self._relay(connection)
        except _Ended:
            if self._body_error is not None:
                raise self._body_error from None
            raise
        finally:
            if self._sender is not None:
                self._sender.kill()
            end_watch, self._end_watch = self._end_watch, None
            if end_watch is not None:
                end_watch()

    def _send_body(self, connection: Any) -> None:
        """Send a large body, until the owner reads no more of it."""
        seal = self._seal
        chunked = self._client.head.chunked
        while True:
            try:
                block = self._input.read(BLOCK)
            except OSError as error:
                self._body_error = error
                _shut_down(connection)
                return
            try:
                if block or seal is not None:
                    sealed = block if seal is None else seal(block)
                    connection.sendall(_chunk(sealed) if chunked else sealed)
                if chunked and not block:
                    connection.sendall(_chunk(b""))
            except OSError:  # the owner has answered already, for example with 413, or has ended
                return
            if not block:
                return

    def _relay(self, connection: Any) -> bool:
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive(connection)
        head, body = data[:end], data[end + 4 :]
        if MOVED in head.lower():
            self.moved = True
            return False
        closing = _CONNECTION.search(head)
        reusable = closing is None or b"close" not in closing[1].lower()
        length, chunked = _LENGTH.search(head), _CHUNKED.search(head)
        is_bodiless = self._client.head.method == "HEAD" or head[9:12] in _WITHOUT_BODY
        is_sending = self._sender is not None and not self._sender.ready()
        if is_sending or not (is_bodiless or length or chunked):
            self._client.close_connection = True
            reusable = False
        head = _CONNECTION.sub(b"", head)
        if self._client.close_connection:
            head += b"\r\nConnection: close"
        elif self._client.head.version == "HTTP/1.0":
            head += b"\r\nConnection: keep-alive"
        self.answered = True
        send = self._client.socket.sendall
        if is_bodiless:
            send(head + b"\r\n\r\n")
        elif length is not None:
            left = int(length[1]) - len(body)
            send(head + b"\r\n\r\n" + body)
            while left > 0:
                block = self._receive(connection)
                left -= len(block)
                send(block)
        else:
            self._client.socket.settimeout(SEND_SECONDS)
            send(head + b"\r\n\r\n")
            for block in (
                _chunks(body, connection, self._receive) if chunked else self._all(body, connection)
            ):
                send(block)
        return reusable

    def _all(self, body: bytes, connection: Any) -> Iterator[bytes]:
        while True:
            if body:
                yield body
            try:
                body = self._receive(connection)
            except _Ended:
                return

    def _receive(self, connection: Any) -> bytes:
        """Return what the owner has sent; watch the client while that takes long."""
        data: bytes | None = None
        try:
            if self._end_watch is None:
                with gevent.Timeout(WATCH_SECONDS, False):
                    data = connection.recv(BLOCK)
                if data is None:
                    self._end_watch = self._client.watch(lambda error: _shut_down(connection))
            if data is None:
                data = connection.recv(BLOCK)
        except OSError as error:
            raise _Ended(str(error)) from error
        if not data:
            raise _Ended("the owner closed the connection")
        return data


def _chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body; the one without data ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _chunks(data: bytes, connection: Any, receive: Callable[[Any], bytes]) -> Iterator[bytes]:
    """Yield the bytes of a chunked body, as they are, up to its end."""
    while True:
        while b"\r\n" not in data:
            data += receive(connection)
        line = data[: data.index(b"\r\n")]
        size = int(line.partition(b";")[0], 16)
        left = len(line) + 2 + size + 2
        while len(data) < left:
            if data:
                yield data
            left -= len(data)
            data = receive(connection)
        yield data[:left]
        data = data[left:]
        if size == 0:
            return


def _is_closed(connection: Any) -> bool:
    """Return True if the owner has closed an idle connection."""
    try:
        connection.setblocking(False)
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.setblocking(True)
    return True


def _shut_down(connection: Any) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
