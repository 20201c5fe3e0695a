"""Strict parsing of HTTP request heads, and error responses to requests that cannot be dispatched.

If two parsers of one request disagree about its end, a second request can be hidden from one of
them (request smuggling). Everything that the grammar does not allow is therefore refused: bare line
feeds, folded headers, spaces before a colon, several lengths, and a length together with a transfer
coding.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

from kbserver.errors import ErrorAnswer
from kbserver.http.request_id import identity_headers, request_id

MAX_LINE = 8192
MAX_HEAD = 32 * 1024
MAX_HEADERS = 100

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_VERSION = re.compile(rb"HTTP/1\.[01]")
HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_ORIGIN = re.compile(rb"(?i:https?)://([^/?#]*)")
_SINGLE = frozenset(
    ("HOST", "CONTENT_LENGTH", "CONTENT_TYPE", "TRANSFER_ENCODING", "AUTHORIZATION", "EXPECT")
)
_DIGITS = 18


@dataclass(slots=True)
class Head:
    """A request line and its headers, with the header names of WSGI."""

    method: str = ""
    target: str = ""
    version: str = "HTTP/1.1"
    headers: dict[str, str] = field(default_factory=dict)
    size: int = 0
    authority: str | None = None
    """The host of a target in absolute form, which counts instead of the header (RFC 9112,
    3.2.2).
    """

    @property
    def chunked(self) -> bool:
        """Return True if the body is chunked."""
        return "TRANSFER_ENCODING" in self.headers

    @property
    def length(self) -> int | None:
        """The declared length of the body."""
        stated = self.headers.get("CONTENT_LENGTH")
        return None if stated is None else int(stated)

    @property
    def closes(self) -> bool:
        """Return True if the client wants the connection closed after the response."""
        wish = self.headers.get("CONNECTION", "").lower()
        return "close" in wish or (self.version == "HTTP/1.0" and "keep-alive" not in wish)

    def environ(self) -> dict[str, str]:
        """Return the part of the WSGI environment that comes from the request."""
        path, _, query = self.target.partition("?")
        environ = {
            "REQUEST_METHOD": self.method,
            "SERVER_PROTOCOL": self.version,
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1") if "%" in path else path,
            "QUERY_STRING": query,
        }
        for name, value in self.headers.items():
            environ[name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + name] = value
        return environ


class BadRequest(Exception):
    """A malformed request; `status` is 400, 414, 417 or 431."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def read_head(readline: Callable[[int], bytes], head: Head) -> bool:
    """Fill `head` from lines; return False if the client left before the first one.

    On BadRequest `head` keeps what was read, so that the error response can carry the request id.
    """
    line = readline(MAX_LINE + 1)
    if line == b"\r\n":  # some old clients send an extra line after a body
        line = readline(MAX_LINE + 1)
    if not line:
        return False
    head.size = len(line)
    if len(line) > MAX_LINE:
        raise BadRequest(f"the request line is longer than {MAX_LINE} bytes", 414)
    _request_line(_without_end(line), head)
    for _ in range(MAX_HEADERS + 1):
        line = readline(MAX_HEAD + 1)
        if line == b"\r\n":
            _check_framing(head)
            if head.authority is not None:
                head.headers["HOST"] = head.authority
            return True
        head.size += len(line)
        if head.size > MAX_HEAD:
            raise BadRequest(f"the headers are longer than {MAX_HEAD} bytes", 431)
        _header(_without_end(line), head)
    raise BadRequest(f"the request has more than {MAX_HEADERS} headers", 431)


def _without_end(line: bytes) -> bytes:
    if not line.endswith(b"\r\n"):
        raise BadRequest("a line of the head does not end in CR LF")
    return line[:-2]


def _request_line(line: bytes, head: Head) -> None:
    words = line.split(b" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]) or not _TARGET.fullmatch(words[1]):
        raise BadRequest("the request line is not METHOD TARGET VERSION")
    if not _VERSION.fullmatch(words[2]):
        raise BadRequest("the HTTP version must be HTTP/1.0 or HTTP/1.1")
    target = words[1]
    if origin := _ORIGIN.match(target):
        head.authority, target = origin[1].decode("ascii"), target[origin.end() :]
    if not target.startswith((b"/", b"?")) and target not in (b"", b"*"):
        raise BadRequest("the request target is not a path")
    head.method, head.version = words[0].decode("ascii"), words[2].decode("ascii")
    head.target = (target if target.startswith((b"/", b"*")) else b"/" + target).decode("ascii")


def _header(line: bytes, head: Head) -> None:
    match = HEADER.fullmatch(line)
    if match is None:
        raise BadRequest("a header is not NAME: VALUE, without control characters")
    name, value = match.groups()
    key = _key(name)
    if not key:
        return
    text = value.strip(b" \t").decode("latin-1")
    if key in head.headers:
        if key in _SINGLE:
            raise BadRequest(f"header {name.decode('ascii')} occurs twice")
        text = f"{head.headers[key]}{'; ' if key == 'COOKIE' else ','}{text}"
    head.headers[key] = text


@lru_cache(maxsize=512)
def _key(name: bytes) -> str:
    """Return the WSGI name of a header.

    A name with an underscore is dropped: it could be mistaken for the same name with hyphens.
    """
    return "" if b"_" in name else name.decode("ascii").replace("-", "_").upper()


def _check_framing(head: Head) -> None:
    headers = head.headers
    stated, coding = headers.get("CONTENT_LENGTH"), headers.get("TRANSFER_ENCODING")
    if coding is not None:
        if stated is not None:
            raise BadRequest("Transfer-Encoding and Content-Length exclude each other")
        if coding.lower() != "chunked" or head.version == "HTTP/1.0":
            raise BadRequest("the only transfer coding is chunked, of HTTP/1.1")
    if stated is not None and not (
        stated.isascii() and stated.isdigit() and len(stated) <= _DIGITS
    ):
        raise BadRequest("Content-Length is not a number of bytes")
    if headers.get("EXPECT", "100-continue").lower() != "100-continue":
        raise BadRequest("the only expectation is 100-continue", 417)


def refusal(head: Head, answer: ErrorAnswer) -> bytes:
    """Return the bytes of a whole response, after which the connection is closed."""
    body = answer.body()
    id = request_id(head.headers.get("X_REQUEST_ID"))
    headers = (*identity_headers(id), *answer.headers.items())
    lines = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
        "Connection: close",
    ]
    return (
        "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + (b"" if head.method == "HEAD" else body)
    )
