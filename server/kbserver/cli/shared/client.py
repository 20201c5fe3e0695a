"""HTTP client of the commands, on the standard library alone, so that a command starts quickly."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from importlib import import_module
from select import select
from socket import socket
from typing import Any
from urllib.parse import urlencode, urlsplit

from kbserver.cli.shared.exits import STATUS_OF_CODE, UNAVAILABLE, Failed

TIMEOUT_SECONDS = 120.0
"""Timeout of a request; large batches on slow disks take long."""

_PART_BYTES = 1 << 16

_REDIRECTS = range(300, 400)


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """A successful HTTP response; names of headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON; raises Failed if it is none."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Failed("the answer is not JSON, as of a kbcore server; check --url") from error

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


class ServerClient:
    """A running server. Connects directly, without a proxy, and follows no redirects."""

    local = False
    """True if this process has the storage open."""

    def __init__(
        self,
        url: str,
        database: str,
        tenant: str,
        api_key: str | None,
        cacert: str | None = None,
    ) -> None:
        """`cacert` is a file of CA certificates, by default those of the system."""
        self.url = url.rstrip("/")
        self.headers = {
            "X-Database": database,
            "X-Tenant-ID": tenant,
            "Accept": "*/*",
            "User-Agent": "kbcore",
        }
        if api_key:
            self.headers["Authorization"] = f"Bearer {api_key}"
        self._connection, self._prefix = _connection(self.url, cacert)

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        also: int | None = None,
    ) -> ServerAnswer:
        """Send a request and return the response; raises Failed unless it succeeds.

        `also` is a status that counts as success.
        """
        response = self._open(method, path, body, also)
        with self._errors():
            return ServerAnswer(_headers(response), response.read())

    def stream(self, path: str) -> Iterator[bytes]:
        """Return the pieces of a response; raises Failed unless it succeeds and is complete."""
        return self._parts(self._open("GET", path))

    def _parts(self, response: HTTPResponse) -> Iterator[bytes]:
        left = response.length
        while True:
            with self._errors():
                part = response.read(_PART_BYTES)
                if left and not part:
                    raise IncompleteRead(b"", left)
            if not part:
                return
            left = None if left is None else left - len(part)
            yield part

    def events(self, path: str, query: Mapping[str, str]) -> Iterator[str]:
        """Yield the data of the events of a stream, which are JSON texts; raises Failed."""
        response = self._open("GET", f"{path}?{urlencode(query)}")
        while True:
            with self._errors():
                line = response.readline()
            if not line:
                return
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ").decode("utf-8", "replace").rstrip("\r\n")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _open(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        also: int | None = None,
    ) -> HTTPResponse:
        """Send a request and return the response, whose body is not read yet."""
        if not {"", ".", ".."}.isdisjoint(path.partition("?")[0].split("/")[1:]):
            raise Failed(f"{path!r} has a part without a name: a proxy would take another path", 2)
        headers, data = self.headers, None
        if body is not None:
            data = json.dumps(body).encode()
            headers = {**headers, "Content-Type": "application/json"}
        with self._errors():
            response = self._exchange(method, self._prefix + path, data, headers)
            if 200 <= response.status < 300 or response.status == also:
                return response
            raise _refusal(response)

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> HTTPResponse:
        """Send a request, once, and return the response to it.

        A server may close an idle connection; the request then goes over a new one. A request
        without an answer is never repeated: it may have been carried out.
        """
        if self._connection.sock is not None and _is_closed(self._connection.sock):
            self._connection.close()
        self._connection.request(method, path, data, headers)
        return self._connection.getresponse()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Report errors of the connection as Failed."""
        try:
            yield
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError | HTTPException) -> Failed:
        if isinstance(error, TimeoutError):
            problem = f"timeout after {TIMEOUT_SECONDS:g} seconds"
        elif isinstance(error, (HTTPException, ConnectionResetError, BrokenPipeError)):
            problem = "the connection was closed"
        elif "CERTIFICATE" in str(error):
            problem = "its certificate is not trusted; name the file of its CA with --cacert"
        elif isinstance(error, ssl.SSLError):
            problem = "no HTTPS connection is possible; a server without TLS has an http:// address"
        else:
            problem = "cannot connect; is the server running? (kbcore serve starts one)"
        return Failed(f"no answer from {_redacted(self.url)}: {problem}", UNAVAILABLE)


def trust(cacert: str | None) -> ssl.SSLContext:
    """Return the context of connections to servers whose CA is in a file, None for the system's.

    Raises Failed for a file that has no certificates.
    """
    try:
        return ssl.create_default_context(cafile=cacert or None)
    except OSError as error:
        raise Failed(f"--cacert {cacert}: is no readable file of certificates (PEM)", 2) from error


def _connection(url: str, cacert: str | None) -> tuple[HTTPConnection, str]:
    """Return a connection to the address, not yet open, and the path before every route."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise Failed(
            f"not the address of a server: {_redacted(url)}; it looks like http://127.0.0.1:9300", 2
        )
    connection = (
        HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=trust(cacert))
        if parts.scheme == "https"
        else HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    )
    return connection, parts.path.rstrip("/")


def _is_closed(idle: socket) -> bool:
    """Return True if the server closed a connection on which no answer is awaited."""
    return bool(select([idle], [], [], 0)[0])


def _headers(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _refusal(response: HTTPResponse) -> Failed:
    """Return the failure that an error answer describes."""
    body = response.read()
    if response.status in _REDIRECTS:
        target = response.getheader("Location", "another address")
        return Failed(f"the server redirects to {_redacted(target)}; use that address with --url")
    try:
        answer = json.loads(body)
        message, code = str(answer["message"]), str(answer["code"])
    except (ValueError, KeyError, TypeError):
        reason = f"{response.status} {response.reason}"
        return Failed(f"{reason}, which is no answer of a kbcore server; check --url")
    return failure_of(message, code, answer.get("details"))


def failure_of(message: str, code: str, details: Any) -> Failed:
    """Return the failure for an error answer of the HTTP interface."""
    problems = details.get("errors") if isinstance(details, dict) else None
    if not isinstance(problems, list) or not all(_is_placed(each) for each in problems):
        problems = []
    return Failed(message, STATUS_OF_CODE.get(code, 1), code=code, problems=problems)


def _is_placed(problem: Any) -> bool:
    """Return True for a syntax error with its place in a text."""
    return isinstance(problem, dict) and {"line", "column", "code", "message"} <= problem.keys()


def _redacted(url: str) -> str:
    """Return an address without its password; the module is imported only where an error needs
    it.
    """
    text: str = import_module("kbcore.config.storage_urls").redacted(url)
    return text
