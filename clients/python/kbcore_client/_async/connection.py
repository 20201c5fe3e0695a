"""A connection: requests with keys, time limits and retries."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from kbcore_client import http
from kbcore_client.errors import ConnectionFailed, KBError, NotReady, RateLimited, TimedOut
from kbcore_client.event_stream import Message, MessageReader
from kbcore_client.requests import Reply, Request, check_destination
from kbcore_client.settings import RETRIED_STATUSES, Positions, Reconnection, Settings
from kbcore_client.targets import Target
from kbcore_client.trace_context import trace_headers

MAX_REDIRECTS = 3
RECONNECTED = (ConnectionFailed, NotReady, RateLimited)
"""Errors after which a stream of events is opened again."""

REDIRECT = 307


@dataclass(frozen=True, slots=True)
class Destination:
    """The database, tenant and transaction of a request.

    With `known_at`, reads are answered from what was known at that instant. `view` and `labels` are
    the JSON texts of the view that is read, and of the labels of what is stored.
    """

    database: str
    tenant: str
    transaction: str | None = None
    known_at: str | int | None = None
    view: str | None = None
    labels: str | None = None


class AsyncConnection:
    """A connection to a server, or to a knowledge base in this process.

    `read_url` is the address of a follower that answers reads outside of transactions. `ca` is a
    file of the CA certificates with which servers are verified.
    """

    def __init__(
        self,
        target: Target,
        settings: Settings,
        api_key: str | None,
        read_url: str | None,
        ca: str | os.PathLike[str] | None = None,
    ) -> None:
        self.url = target.url
        self.settings = settings
        self._target = target
        self._read_url = read_url or target.url
        self._positions = Positions()
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._timeout = http.timeout(settings.timeouts)
        self._client = http.async_client(
            target.url, settings, target.app, None if ca is None else http.trust(ca)
        )

    async def send(self, request: Request, destination: Destination) -> Reply:
        """Send a request, again if that may help, and return the answer.

        Raises a KBError if there is no answer, or for an error of the server.
        """
        content = request.content()
        headers = self._headers_of(request, destination)
        if request.takes_key and self.settings.idempotency:
            headers["Idempotency-Key"] = secrets.token_hex(16)
        attempt = 0
        while True:
            try:
                reply = await self._exchange(
                    request, self._base(request, destination), content, headers
                )
                if reply.status < 300:
                    if (seq := reply.seq) is not None:
                        self._positions.advance(destination.database, destination.tenant, seq)
                    return reply
                error: KBError = reply.error(request)
                is_retried = _may_retry(
                    reply, error, "Idempotency-Key" in headers, request, attempt
                )
                retry_after = reply.retry_after
            except ConnectionFailed as failure:
                error, retry_after = failure, None
                is_retried = _may_send_again(failure, "Idempotency-Key" in headers, request)
            delay = self.settings.retries.delay(attempt, retry_after) if is_retried else None
            if delay is None:
                raise error
            await http.pause_async(delay)
            attempt += 1

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], destination: Destination, last: str | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream of events, once, and yield its bytes; `last` is the last id received."""
        request = Request(path, method="GET", query=query)
        headers = self._headers_of(request, destination)
        headers["Accept"] = "text/event-stream"
        if last is not None:
            headers["Last-Event-ID"] = last
        url = self._base(request, destination)
        try:
            async with self._client.stream(
                "GET",
                url + path,
                params=query,
                headers=headers,
                timeout=http.stream_timeout(self.settings),
            ) as response:
                if response.status_code >= 300:
                    content = await response.aread()
                    reply = Reply(response.status_code, response.headers, content)
                    raise reply.error(request)
                yield response.aiter_bytes()
        except http.HTTPError as error:
            raise http.failure(error, url) from error

    async def messages(
        self,
        path: str,
        query: Mapping[str, str],
        destination: Destination,
        reconnection: Reconnection | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Yield the messages of a stream of events without an end.

        A lost connection is opened again after the last complete message, as often as
        `Retries.events` says. Raises ConnectionFailed after too many failures in a row, also of the
        first connection, and errors of the server.
        """
        last: str | None = None
        if reconnection is None:
            reconnection = self.reconnection()
        while True:
            try:
                async with self.stream(path, query, destination, last) as parts:
                    reconnection.opened()
                    reader, is_greeting = MessageReader(), True
                    async for part in parts:
                        for message in reader.feed(part):
                            if not is_greeting:
                                reconnection.received()
                            is_greeting = False
                            last = message.id or last
                            if message.data:
                                yield message
                error: KBError = ConnectionFailed(f"{self.url} ended the stream of events")
            except RECONNECTED as failure:
                error = failure
            await self.pause_or_raise(reconnection, error)

    def reconnection(self) -> Reconnection:
        """Return the delays before a stream of this connection is opened again."""
        return Reconnection(self.settings.retries, is_in_process=self._target.app is not None)

    async def pause_or_raise(self, reconnection: Reconnection, error: KBError) -> None:
        """Wait before a stream is opened again after an error, or raise it to give up."""
        delay = reconnection.delay(getattr(error, "retry_after", None))
        if delay is None:
            raise error
        await http.pause_async(delay)

    async def aclose(self) -> None:
        """Close the connections, and the knowledge base if it is in this process."""
        await self._client.aclose()
        if self._target.close is not None:
            self._target.close()

    def _base(self, request: Request, destination: Destination) -> str:
        is_read = not request.writes and destination.transaction is None
        return self._read_url if is_read else self.url

    def _headers_of(self, request: Request, destination: Destination) -> dict[str, str]:
        check_destination(destination.database, destination.tenant)
        headers = {
            **self._headers,
            **trace_headers(),
            "X-Database": destination.database,
            "X-Tenant-ID": destination.tenant,
        }
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        if request.prefer is not None:
            headers["Prefer"] = request.prefer
        if destination.view is not None:
            headers["X-View"] = destination.view
        if destination.labels is not None:
            headers["X-Labels"] = destination.labels
        if destination.transaction is not None:
            headers["X-Transaction-ID"] = destination.transaction
        elif not request.writes and self.settings.read_your_writes:
            seq = self._positions.get(destination.database, destination.tenant)
            if seq is not None:
                headers["X-Min-Seq"] = str(seq)
        return headers

    async def _exchange(
        self, request: Request, base: str, content: bytes | None, headers: dict[str, str]
    ) -> Reply:
        """Send a request once, to the node of a cluster that has the tenant, and return its
        answer.
        """
        url = base + request.path
        timeout = http.timeout_of(self._timeout, request.timeout_ms)
        for _ in range(MAX_REDIRECTS + 1):
            try:
                built = self._client.build_request(
                    request.method,
                    url,
                    content=content,
                    params=request.query or None,
                    headers=headers,
                    timeout=timeout,
                )
                response = await self._client.send(built)
            except http.UNSENT as error:
                failure = http.failure(error, base)
                failure.details = {"sent": False}
                raise failure from error
            except http.HTTPError as error:
                raise http.failure(error, base) from error
            location = response.headers.get("location")
            if response.status_code != REDIRECT or location is None:
                break
            if urlsplit(url).scheme == "https" and not location.startswith("https://"):
                break  # the key must not leave the encrypted connection
            url = location
        return Reply(response.status_code, response.headers, response.content)


def _may_retry(reply: Reply, error: KBError, has_key: bool, request: Request, attempt: int) -> bool:
    """Return True if the server says that the same request may succeed later."""
    if reply.status in RETRIED_STATUSES:
        is_unknown = isinstance(error, NotReady) and (error.details or {}).get("outcome")
        return has_key or request.is_repeatable or not is_unknown
    # A repeated write whose first request is still running: its answer comes soon.
    in_flight = (error.details or {}).get("reason") == "in_flight"
    return reply.status == 409 and attempt > 0 and in_flight


def _may_send_again(failure: ConnectionFailed, has_key: bool, request: Request) -> bool:
    """Return True if a request without answer can be sent again without being carried out twice."""
    if (failure.details or {}).get("sent") is False:
        return True
    return not isinstance(failure, TimedOut) and (has_key or request.is_repeatable)
