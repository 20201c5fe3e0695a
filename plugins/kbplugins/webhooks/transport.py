"""A transport of HTTP requests that gives up when a whole exchange takes too long.

The timeouts of httpx hold for each read and write: a receiver that sends a byte from time to time
would hold a delivery, and the stop of the server, for as long as it likes. One that sends
informational answers (1xx) without end or pause would hold the whole server, which reads them
without a turn for others.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

WRITTEN_BYTES = 16 * 1024
"""Bytes that are written between two looks at the deadline."""

MAX_READ_BYTES = 128 * 1024
"""Bytes that are read of an answer: its head, and those of informational answers before it."""

SocketOptions = Iterable[tuple[Any, ...]] | None


class DeadlineTransport(httpx.BaseTransport):
    """Opens a connection for each request, and gives the exchange `seconds` in all.

    Answers have no body: it is not read. Exceptions are those of httpx.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ssl = httpx.create_ssl_context(trust_env=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the status and the headers of the answer."""
        network = _Network(httpcore.SyncBackend(), time.monotonic() + self._seconds)
        url = request.url
        target = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        extensions = {
            name: value for name, value in request.extensions.items() if name != "timeout"
        }
        try:
            with (
                httpcore.ConnectionPool(self._ssl, network_backend=network) as pool,
                pool.stream(
                    request.method,
                    target,
                    headers=request.headers.raw,
                    content=request.read(),
                    extensions=extensions,
                ) as answer,
            ):
                return httpx.Response(answer.status, headers=answer.headers)
        except httpcore.TimeoutException as error:
            raise httpx.TimeoutException("the receiver is too slow", request=request) from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise httpx.TransportError(type(error).__name__, request=request) from error


class _Network(httpcore.NetworkBackend):
    """A network whose operations all end at a deadline, in seconds of the monotonic clock."""

    def __init__(self, network: httpcore.NetworkBackend, deadline: float) -> None:
        self._network = network
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore.NetworkStream:
        left = _left(self._deadline, httpcore.ConnectTimeout)
        stream = self._network.connect_tcp(host, port, left, local_address, socket_options)
        return _ReceiverStream(stream, self._deadline)


class _ReceiverStream(httpcore.NetworkStream):
    """A connection whose operations all end at a deadline."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline
        self._left = MAX_READ_BYTES

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, _left(self._deadline, httpcore.ReadTimeout))
        self._left -= len(data)
        if self._left < 0:
            raise httpcore.ReadError("the answer is too long")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITTEN_BYTES):
            left = _left(self._deadline, httpcore.WriteTimeout)
            self._stream.write(buffer[start : start + WRITTEN_BYTES], left)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(self._deadline, httpcore.ConnectTimeout)
        return _ReceiverStream(
            self._stream.start_tls(ssl_context, server_hostname, left), self._deadline
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(deadline: float, error: type[httpcore.TimeoutException]) -> float:
    """Return the seconds until a deadline; raise the error if there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise error("the exchange takes too long")
    return left
