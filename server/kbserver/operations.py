"""What a route says about itself: its answers, headers and errors. The OpenAPI document is made of it.

The declaration stands above the function of a route. Name, summary and description come from the function's docstring, the
body from the envelope of its shape, the paths and methods from Flask, the examples from `example_scenarios/single_node.py`.
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
"""Statuses any request may meet: a head nobody can read, no key or one that may not, too much at once, a bug, a stop."""

OF_TENANTS = frozenset({404})
OF_BODIES = frozenset({413, 415})
OF_GOALS = frozenset({422})
OF_WRITES = frozenset({409, 413, 507})
OF_TRANSACTIONS = frozenset({404, 409})
OF_NODES = frozenset({409})
"""Of what a node refuses for what it is: a follower, no leader."""

OF_MODELS = frozenset({501, 502})
OF_PAGES = frozenset({409})

WARNINGS = {"X-Answer-Warnings": said(COUNT, "How often a function or aggregate had no value for its input.")}
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
    """An answer that is no error: what it says, and its schema for each media type it may have; headers with schemas."""

    says: str
    content: Mapping[str, Schema]
    status: int = 200
    headers: Mapping[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route says about itself.

    `tenant`: it needs X-Tenant-ID. `transaction`: it takes X-Transaction-ID. `writes`, `asks`: it meets the errors of
    writes, of goals. `query`, `headers`: more of the request's parameters, none required. `prefer`: what it honours of
    `Prefer` beside `handling=strict`. `tagged`: a body has an ETag, and who has it gets 304. `paged`: it takes `limit` and
    `cursor`. `errors`: more statuses. `listed`: it is in the document.
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
        """Give every status of an error it may answer."""
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
    """Declare the route below: its answers, and the fields of `Operation` by name."""
    declared = Operation(answers, **more)

    def mark(view: View) -> View:
        _OPERATIONS[view] = declared
        return view

    return mark


def operation_of(view: Callable[..., Any]) -> Operation | None:
    """Give what a route says about itself, None where it says nothing."""
    return _OPERATIONS.get(view)


def as_text(says: str, *, status: int = 200, headers: Mapping[str, Schema] | None = None) -> Answer:
    """Declare an answer of plain text."""
    return Answer(says, {PLAIN: TEXT}, status, headers or {})


def as_object(says: str, schema: Schema, *, status: int = 200, headers: Mapping[str, Schema] | None = None) -> Answer:
    """Declare an answer of JSON."""
    return Answer(says, {JSON: schema}, status, headers or {})
