"""Declarations of routes: answers, headers and errors, from which the OpenAPI document is generated.

A declaration decorates the function of a route. Name, summary and description come from the function's docstring, the
body from the envelope of its shape, paths and methods from Flask, examples from `example_scenarios/single_node.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kbserver.answers import JSON
from kbserver.notices import UNKNOWN_HEADER
from kbserver.schemas.base import Shape
from kbserver.schemas.jsonschema import COUNT, TEXT, Schema, said

PLAIN = "text/plain"
"""The media type of texts; the charset is utf-8."""

View = TypeVar("View", bound=Callable[..., Any])

ALWAYS = frozenset({400, 401, 403, 429, 500, 503})
"""Statuses of any request: malformed head, missing or insufficient key, rate limit, bug, shutdown."""

OF_TENANTS = frozenset({404})
OF_BODIES = frozenset({413, 415})
OF_GOALS = frozenset({422})
OF_WRITES = frozenset({409, 413, 507})
OF_TRANSACTIONS = frozenset({404, 409})
OF_NODES = frozenset({409})
"""Status of requests that a node's replication role does not allow."""

OF_MODELS = frozenset({501, 502})
OF_PAGES = frozenset({409})

WARNINGS = {
    "X-Answer-Warnings": said(
        COUNT, "How often a function or aggregate had no value for its input."
    )
}
APPLIED = {"Preference-Applied": said(TEXT, "The preferences that were honoured.")}
UNKNOWN = {
    UNKNOWN_HEADER: said(
        TEXT,
        "Predicates of the goal without any fact or rule, with a similar one, percent-encoded, joined by commas: "
        "`lykes/2 (did you mean likes/2?)`.",
    )
}
COUNTED = {"X-Total-Count": said(COUNT, "Of a page: how many there are in all.")}


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful response: description, schema per media type, and headers with schemas."""

    says: str
    content: Mapping[str, Schema]
    status: int = 200
    headers: Mapping[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """The declaration of a route.

    `tenant`: requires X-Tenant-ID. `transaction`: accepts X-Transaction-ID. `writes`, `asks`: can fail like writes, like
    goals. `query`, `headers`: further optional parameters. `prefer`: preferences beside `handling=strict`. `tagged`:
    responses have an ETag, and If-None-Match gives 304. `paged`: accepts `limit` and `cursor`. `errors`: further
    statuses. `listed`: appears in the OpenAPI document.
    """

    answers: tuple[Answer, ...]
    body: Shape[Any] | None = None
    tenant: bool = True
    transaction: bool = False
    writes: bool = False
    asks: bool = False
    query: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)
    prefer: tuple[str, ...] = ()
    tagged: bool = False
    paged: bool = False
    errors: Iterable[int] = ()
    listed: bool = True

    def statuses(self) -> list[int]:
        """Return all error statuses of the route."""
        codes = set(ALWAYS).union(self.errors)
        for holds, more in (
            (self.tenant, OF_TENANTS),
            (self.body is not None, OF_BODIES),
            (self.asks, OF_GOALS),
            (self.writes, OF_WRITES),
            (self.transaction, OF_TRANSACTIONS),
            (self.paged, OF_PAGES),
        ):
            if holds:
                codes |= more
        return sorted(codes)


_OPERATIONS: dict[Callable[..., Any], Operation] = {}


def operation(*answers: Answer, **more: Any) -> Callable[[View], View]:
    """Declare a route: its answers, and fields of `Operation` by name."""
    declared = Operation(answers, **more)

    def mark(view: View) -> View:
        _OPERATIONS[view] = declared
        return view

    return mark


def operation_of(view: Callable[..., Any]) -> Operation | None:
    """Return the declaration of a route, None if it has none."""
    return _OPERATIONS.get(view)


def as_text(says: str, *, status: int = 200, headers: Mapping[str, Schema] | None = None) -> Answer:
    """Declare an answer of plain text."""
    return Answer(says, {PLAIN: TEXT}, status, headers or {})


def as_object(
    says: str, schema: Schema, *, status: int = 200, headers: Mapping[str, Schema] | None = None
) -> Answer:
    """Declare an answer of JSON."""
    return Answer(says, {JSON: schema}, status, headers or {})
