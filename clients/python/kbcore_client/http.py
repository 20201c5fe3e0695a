"""HTTP: the only module that imports the HTTP library, for connections and for calls in this
process.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import anyio
import httpx
from anyio import to_thread

from kbcore_client.errors import ConnectionFailed, InvalidInput, TimedOut
from kbcore_client.settings import Settings, Timeouts

AsyncClient = httpx.AsyncClient
Client = httpx.Client
HTTPError = httpx.HTTPError
Response = httpx.Response
URL = httpx.URL

Application = Callable[..., Iterable[bytes]]
"""A WSGI application."""

UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors that occur before a request is sent."""

EXTRA_SECONDS = 5.0
"""Time for the transmission of an answer, added to the limit of the work."""

pause = time.sleep
pause_async = anyio.sleep


def client(
    base_url: str, settings: Settings, app: Application | None, trust: ssl.SSLContext | None
) -> httpx.Client:
    """Return a client for a server, or for an application in this process."""
    return httpx.Client(
        base_url=base_url,
        timeout=timeout(settings.timeouts),
        limits=_limits(settings),
        transport=None if app is None else httpx.WSGITransport(app, raise_app_exceptions=False),
        verify=True if trust is None else trust,
    )


def async_client(
    base_url: str, settings: Settings, app: Application | None, trust: ssl.SSLContext | None
) -> httpx.AsyncClient:
    """Return an asynchronous client for a server, or for an application in this process."""
    return httpx.AsyncClient(
        base_url=base_url,
        timeout=timeout(settings.timeouts),
        limits=_limits(settings),
        transport=None if app is None else ThreadTransport(app),
        verify=True if trust is None else trust,
    )


def trust(ca: str | os.PathLike[str]) -> ssl.SSLContext:
    """Return the context of connections to servers whose CA is in a file; raises InvalidInput."""
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise InvalidInput.at("ca", "must be a readable file of certificates (PEM)") from error


def timeout(limits: Timeouts) -> httpx.Timeout:
    """Return the limits of a request."""
    return httpx.Timeout(
        connect=limits.connect, read=limits.read, write=limits.write, pool=limits.pool
    )


def timeout_of(usual: httpx.Timeout, timeout_ms: int | None) -> httpx.Timeout:
    """Return the limits of a request whose work may take `timeout_ms`, None for the usual ones."""
    if timeout_ms is None or usual.read is None:
        return usual
    limits = httpx.Timeout(usual)
    limits.read = max(usual.read, timeout_ms / 1000 + EXTRA_SECONDS)
    return limits


def stream_timeout(settings: Settings) -> httpx.Timeout:
    """Return the limits of an event stream."""
    limits = timeout(settings.timeouts)
    limits.read = settings.timeouts.events
    return limits


def failure(error: httpx.HTTPError, url: str) -> ConnectionFailed:
    """Return the error of a request that got no answer."""
    if isinstance(error, httpx.TimeoutException):
        return TimedOut(f"no answer from {url} within the time limit ({type(error).__name__})")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return ConnectionFailed(
            f"the certificate of {url} is not trusted; name the file of its CA with ca="
        )
    if isinstance(error, httpx.ConnectError):
        return ConnectionFailed(f"cannot connect to {url}: is the server running?")
    return ConnectionFailed(f"the connection to {url} was lost: {error or type(error).__name__}")


class ThreadTransport(httpx.AsyncBaseTransport):
    """Calls of a WSGI application in threads, so that they do not block the event loop."""

    def __init__(self, app: Application) -> None:
        self._transport = httpx.WSGITransport(app, raise_app_exceptions=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response of the application."""
        content = await request.aread()
        call = httpx.Request(request.method, request.url, headers=request.headers, content=content)
        response = await to_thread.run_sync(
            self._transport.handle_request, call, abandon_on_cancel=True
        )
        stream = response.stream
        if not isinstance(stream, httpx.SyncByteStream):
            raise AssertionError("a WSGI application answers with a stream of bytes")
        return httpx.Response(
            response.status_code, headers=response.headers, stream=_ThreadStream(stream)
        )


class _ThreadStream(httpx.AsyncByteStream):
    """A body that is read in threads."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: Iterator[bytes] = iter(self._stream)
        end: Any = object()
        while True:
            part = await to_thread.run_sync(next, parts, end, abandon_on_cancel=True)
            if part is end:
                return
            yield part

    async def aclose(self) -> None:
        self._stream.close()


def _limits(settings: Settings) -> httpx.Limits:
    return httpx.Limits(
        max_connections=settings.max_connections,
        max_keepalive_connections=settings.max_connections,
    )
