"""Requests and replies of the HTTP interface, independent of how they are sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from kbcore_client.errors import InvalidInput, KBError, NotAServer, error_of
from kbtypes.values import Arg, arguments, present, text_of

_EMPTY: dict[str, Any] = {}
_CAMEL = re.compile(r"(?<=[a-z])[A-Z]")
_FACT = re.compile(r"^facts\[0\]\.?")


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the HTTP interface.

    `body` is None for a GET or DELETE. `writes` requests go to the leader and have an idempotency
    key. `names` are the arguments of Python for fields of the body that have other names than in
    snake case. `timeout_ms` is the limit of the work itself. A route that takes no idempotency key
    is not `keyed`.
    """

    path: str
    body: Mapping[str, Any] | None = None
    method: str = "POST"
    query: Mapping[str, str] = field(default_factory=dict)
    writes: bool = False
    prefer: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int | None = None
    keyed: bool = True

    @property
    def is_repeatable(self) -> bool:
        """True if carrying the request out twice is the same as once, without a key."""
        return not self.writes

    @property
    def takes_key(self) -> bool:
        """True if the server accepts an idempotency key for this request."""
        return self.writes and self.keyed and self.method in ("POST", "PUT")

    def content(self) -> bytes | None:
        """Return the body as JSON, without members that are None; raise InvalidInput."""
        if self.body is None:
            return None
        body = present(self.body)
        if self.timeout_ms is not None:
            body["timeoutMs"] = self.timeout_ms
        try:
            return _encoded(body)
        except (TypeError, ValueError) as error:
            argument = _argument(_unwritable(body, ""), self.names)
            raise InvalidInput.at(argument, f"JSON cannot hold this value: {error}") from None


def path_part(field_name: str, value: str) -> str:
    """Return the argument `field_name` as a part of a path; raise InvalidInput.

    A part that is empty or made of dots would name another path: of `..` the path before it.
    """
    if text_of(field_name, value) in ("", ".", ".."):
        raise InvalidInput.at(field_name, f"{value!r} is not a name")
    return quote(value, safe="")


def query_of(members: Mapping[str, object]) -> dict[str, str]:
    """Return the members of a query string that are not None."""
    return {name: str(value) for name, value in members.items() if value is not None}


def goal_form(field_name: str, goal: str, args: Sequence[Arg] | None) -> dict[str, Any]:
    """Return a goal or a fact as members of a body: a text, or a predicate with arguments.

    Raises InvalidInput that names `field_name`.
    """
    if args is None:
        return {"text": text_of(field_name, goal)}
    return {"predicate": text_of(field_name, goal), "args": arguments(args)}


def check_destination(database: str, tenant: str) -> None:
    """Raise InvalidInput for a name that a header cannot carry; the server checks the others."""
    for field_name, name in (("database", database), ("tenant", tenant)):
        if not (isinstance(name, str) and name.isascii() and name.isprintable() and name.strip()):
            raise InvalidInput.at(field_name, f"{name!r} is not a name")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the server; `headers` have names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the JSON of the answer; raise NotAServer if it has none."""
        try:
            return json.loads(self.content)
        except ValueError:
            problem = f"status {self.status} without JSON; check the address"
            raise NotAServer.answered(problem, status=self.status) from None

    @property
    def text(self) -> str:
        """The answer as text."""
        return self.content.decode("utf-8", "replace")

    @property
    def seq(self) -> int | None:
        """The position in the log of the write that this answers, or None."""
        return _number(self.headers.get("x-commit-seq"))

    @property
    def retry_after(self) -> float | None:
        """The seconds that the server asks to wait before the request is sent again, or None."""
        return _number(self.headers.get("retry-after"))

    @property
    def next_page(self) -> str | None:
        """The address of the next page, or None."""
        link = re.match(r'<([^>]*)>; rel="next"', self.headers.get("link", ""))
        return None if link is None else link[1]

    def error(self, request: Request) -> KBError:
        """Return the error that this answer describes, with the argument names of Python."""
        try:
            answer: object = json.loads(self.content)
        except ValueError:
            answer = None
        error = error_of(
            self.status,
            answer,
            request_id=self.headers.get("x-request-id"),
            retry_after=self.retry_after,
        )
        return _renamed(error, request.names) if isinstance(error, InvalidInput) else error


def _encoded(value: Any) -> bytes:
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=True
    ).encode()


def _unwritable(value: Any, path: str) -> str:
    """Return the path of the first part of a value that JSON cannot hold; `path` is its own."""
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        parts = ((f"{path}.{name}" if path else str(name), part) for name, part in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"{path}[{index}]", part) for index, part in enumerate(value))
    for name, part in parts:
        try:
            _encoded(part)
        except (TypeError, ValueError):
            return _unwritable(part, name)
    return path


def _renamed(error: InvalidInput, names: Mapping[str, str]) -> InvalidInput:
    """Return an error that names arguments as Python does."""
    details = error.details or _EMPTY
    fields = details.get("fields")
    if not isinstance(fields, dict):
        return error
    renamed = {}
    for name, problems in fields.items():
        argument = _argument(name, names)
        renamed[argument] = problems
        if error.message.startswith(f"{name}: "):
            error.message = (argument + error.message.removeprefix(name)).removeprefix(": ")
    error.args = (error.message,)
    error.details = {**details, "fields": renamed}
    return error


def _argument(path: str, names: Mapping[str, str]) -> str:
    path = _FACT.sub("", path)
    name = re.split(r"[.\[]", path)[0]
    snake = _CAMEL.sub(lambda match: f"_{match[0].lower()}", name)
    return names.get(name, snake) + path[len(name) :]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
