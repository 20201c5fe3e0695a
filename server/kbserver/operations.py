"""Operations: one record for each, from which the route, its permission, its MCP tool and its
documentation are made.

`@operation` above a function declares one. With a `core` method, the route reads the body, calls
the method on the knowledge base of the request, and passes the outcome to the function, which makes
the response. Without one, the function is the view of the route. Summary and description come from
the docstring of the function, examples from `docs/scenarios/single_node.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from flask import Flask, Response, request
from marshmallow import Schema

from kbcore.config.settings import Config
from kbcore.errors import InvalidInput
from kbcore.operations.queries import FactInWords
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.idempotency import Outcome
from kbcore.state.keys import ADMIN, READER, WRITER
from kbserver.answers import JSON, PLAIN
from kbserver.http.json_body import BodyLimit, bulk_limit, text_limit
from kbserver.http.request import Request
from kbserver.http.request_context import (
    DEFAULT,
    current_request,
    outside,
    reader,
    refuse_view,
    runtime,
    writer,
)
from kbserver.notices import UNKNOWN_HEADER
from kbserver.schemas.base import Body, instance
from kbserver.schemas.fields import Json
from kbserver.schemas.requests import KNOWN_AT, opened, require_present, seen
from kbserver.security.permissions import ADMIN_OF_NODE, PLUGIN_READ, PLUGIN_WRITE, About, Need

Shape = Mapping[str, Any] | type[Schema]
"""A JSON Schema, whose values may be marshmallow schemas, or a marshmallow schema."""

TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}

ALWAYS = frozenset({400, 401, 403, 429, 500, 503})
"""Statuses of any request: malformed head, missing or insufficient key, rate limit, bug,
shutdown.
"""

OF_TENANTS = frozenset({404})
OF_BODIES = frozenset({413, 415, 422})
"""Statuses of requests with a body: too large, of another type, or read until the deadline."""

OF_GOALS = frozenset({422})
OF_WRITES = frozenset({409, 413, 507})
OF_TRANSACTIONS = frozenset({404, 409})
OF_NODES = frozenset({409})
"""Status of requests that a node's replication role does not allow."""

OF_MODELS = frozenset({501, 502})
OF_PAGES = frozenset({409})

WARNINGS = {
    "X-Answer-Warnings": {
        **COUNT,
        "description": "How often a function or aggregate had no value for its input.",
    }
}
UNKNOWN = {
    UNKNOWN_HEADER: {
        **TEXT,
        "description": "Predicates of the goal without any fact or rule, with a similar one, "
        "percent-encoded, joined by commas: `lykes/2 (did you mean likes/2?)`.",
    }
}
COUNTED = {"X-Total-Count": {**COUNT, "description": "Of a page: how many there are in all."}}


@dataclass(frozen=True, slots=True)
class OperationReply:
    """A successful response: description, shape per media type, and headers with schemas."""

    description: str
    content: Mapping[str, Shape]
    status: int = 200
    headers: Mapping[str, Json] = field(default_factory=dict)


def as_text(
    description: str, *, status: int = 200, headers: Mapping[str, Json] | None = None
) -> OperationReply:
    """Declare a response of plain text."""
    return OperationReply(description, {PLAIN: TEXT}, status, headers or {})


def as_object(
    description: str, shape: Shape, *, status: int = 200, headers: Mapping[str, Json] | None = None
) -> OperationReply:
    """Declare a response of JSON."""
    return OperationReply(description, {JSON: shape}, status, headers or {})


Candidates = Callable[[TenantKB, Json, bool], Sequence[FactInWords] | None]
"""The facts that the arguments of a call may mean: knowledge base, arguments, strict mode. None if
they name one fact, or cannot be read.
"""


@dataclass(frozen=True, slots=True)
class UserChoice:
    """An argument of a tool that may mean several facts, of which the user chooses one."""

    argument: str
    message: str
    candidates: Candidates


Work = Callable[[TenantKB, Json, bool, int], Json]
"""A tool: knowledge base, arguments, strict mode (unknown arguments are refused), now in epoch
ms.
"""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """The MCP tool of an operation.

    `takes` are the keys of the body that are shown, `gives` the members of the answer; those that
    end in `?` may be absent. The description is all that a model knows of the tool, and every
    client carries all descriptions in its prompts, so they are short.

    Of tools that write, `destroys` says that they may remove something, `repeats` that a second
    call with the same arguments changes nothing more. `profile` is the value of MCP_TOOLS with
    which the tool is offered; `all` offers every tool. `model` tools need a language model. `body`,
    `answer` and `work` replace those of the operation. `choice` is what clients ask the user.
    """

    name: str
    description: str
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    destroys: bool = False
    repeats: bool = True
    profile: str = "all"
    model: bool = False
    body: type[Body] | None = None
    answer: type[Schema] | None = None
    work: Work | None = None
    choice: UserChoice | None = None


@dataclass(frozen=True, eq=False)
class Method:
    """A method of the Python clients that only translates; `docs/client_methods.py` writes it.

    `like` is the method of the Python interface whose name, arguments and docstring it has; without
    one, `signature` has the name and the arguments, and the docstring is that of the operation.
    With both, the arguments are those of `signature`. `keys` has the members of the body, the query
    and the path that are not named like their argument, `sends` members of the body that are always
    the same. `result` is the type of the result where the core returns a class of its own, `of` the
    member of the answer that has the result. `keyed`: sent with an idempotency key.
    """

    like: Callable[..., Any] | None = None
    signature: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    sends: Mapping[str, Any] = field(default_factory=dict)
    result: str | None = None
    of: str | None = None
    prefer: str | None = None
    keyed: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One operation.

    `routes` are methods and path templates, such as "POST /tell"; `role` and `about` say who may
    use them, and `counted` whether they count against rate limits. `core` is the method of the
    knowledge base, `body` its arguments. `tenant`: requires X-Tenant-ID. `transaction`: accepts
    X-Transaction-ID. `headers_checked`: reads these headers before the view. `writes`, `asks`: can
    fail like writes, like goals. `checked_inside`: the body decides whether it writes, and on a
    follower the core refuses what does. `on_leader`: a follower refuses it although it writes
    nothing. `query` describes the query string and `headers` more headers. `prefer`: preferences
    beside `handling=strict`. `tagged`: responses have an ETag, and If-None-Match gives 304.
    `paged`: accepts `limit` and `cursor`. `errors`: further statuses. `listed`: appears in the
    OpenAPI document. `audited`: has a line in the audit log, also if a tool calls it. `bulk`: a
    body has up to MAX_BODY_BYTES, others have MAX_TEXT_BODY_BYTES. `further_tools`: MCP tools for
    other uses of the same body. `methods`: methods of the clients that only translate. `again`
    makes the answer of an executed write from its outcome and its arguments (of the body and the
    path), for a repetition with the same idempotency key; a header that depends on the state of
    then may be missing. `example`: a body for the documentation, of an operation that has no step
    in the example scenario. `dry_runs`: a reader is admitted, and the view demands the role unless
    nothing is stored. `viewed`: reads what the view of the request admits, and labels what it
    stores.
    """

    routes: tuple[str, ...]
    respond: Callable[..., Response]
    role: str
    replies: tuple[OperationReply, ...] = ()
    about: About = About.TENANT
    counted: bool = True
    body: type[Body] | None = None
    core: Callable[..., Any] | None = None
    tool: Tool | None = None
    further_tools: tuple[Tool, ...] = ()
    methods: tuple[Method, ...] = ()
    again: Callable[[Outcome, Json], Response] | None = None
    tenant: bool = True
    transaction: bool = False
    headers_checked: bool = True
    writes: bool = False
    asks: bool = False
    checked_inside: bool = False
    on_leader: bool = False
    query: Mapping[str, Json] = field(default_factory=dict)
    headers: Mapping[str, Json] = field(default_factory=dict)
    prefer: tuple[str, ...] = ()
    tagged: bool = False
    paged: bool = False
    errors: Iterable[int] = ()
    bulk: bool = False
    listed: bool = True
    audited: bool = False
    dry_runs: bool = False
    viewed: bool = False
    example: Json | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The MCP tools."""
        return self.further_tools if self.tool is None else (self.tool, *self.further_tools)

    @property
    def group(self) -> str:
        """The subject of the operation: the name of its module."""
        return self.respond.__module__.rpartition(".")[2]

    @property
    def documentation(self) -> tuple[str, str]:
        """The summary and the description."""
        first, _, rest = inspect.cleandoc(self.respond.__doc__ or "").partition("\n\n")
        return first.rstrip("."), rest

    @cached_property
    def need(self) -> Need:
        """The role that a request needs, and where its key must be valid."""
        role = READER if self.dry_runs else self.role
        return Need(role, self.about, self.counted, self.viewed)

    @property
    def takes_key(self) -> bool:
        """True if a POST or PUT may carry an idempotency key."""
        return self.role == WRITER and self.routes[0].startswith(("POST ", "PUT "))

    @cached_property
    def is_audited(self) -> bool:
        """True for administrative actions that change something, for the first key, and for
        operations that are declared so.
        """
        changes = not self.routes[0].startswith("GET ")
        return (
            self.audited
            or (self.role == ADMIN and changes)
            or "POST /auth/bootstrap" in self.routes
        )

    @property
    def needs_leader(self) -> bool:
        """True if a follower refuses every request."""
        return (self.writes or self.on_leader) and not self.checked_inside

    @property
    def body_reader(self) -> Body | None:
        """The body as an object that reads it."""
        return None if self.body is None else instance(self.body)

    @cached_property
    def answer(self) -> type[Schema] | None:
        """The schema of the JSON answer; None if the answer is no JSON or has no schema class."""
        shapes = (reply.content.get(JSON) for reply in self.replies)
        return next((shape for shape in shapes if isinstance(shape, type)), None)

    def body_limit(self, config: Config) -> BodyLimit:
        """Return the most bytes of a body."""
        return bulk_limit(config) if self.bulk else text_limit(config)

    def statuses(self) -> list[int]:
        """Return all error statuses of the routes."""
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

    def view(self, **path: str) -> Response:
        """Return the response to the current request."""
        if self.headers_checked and not self.transaction:
            outside(None if self.tenant else DEFAULT)
        served = current_request()
        served.body_limit = self.body_limit(runtime().config)
        if self.role == READER:
            self._check_known_at(served)
        served.takes_view = self.viewed
        if not self.viewed:
            refuse_view(served)
        if self.core is None:
            return self.respond(**path)
        kb, arguments = opened(self.body, writer if self.role == WRITER else reader)
        served.arguments = arguments
        return self.respond(self.core(seen(kb, arguments), **arguments), arguments)

    def _check_known_at(self, served: Request) -> None:
        """Raise InvalidInput if an instant is given that this read would not see."""
        if KNOWN_AT in request.args and KNOWN_AT not in self.query:
            if self.is_historic:
                raise InvalidInput.at(KNOWN_AT, "belongs in the body of this request")
            require_present(request.args)
        served.is_of_present = not self.is_historic

    @cached_property
    def is_historic(self) -> bool:
        """True if the body may name an instant whose knowledge answers."""
        return self.body_reader is not None and self.body_reader.has(KNOWN_AT)


_BY_ROUTE: dict[tuple[str, str], Operation] = {}


def operation(
    *routes: str, role: str, replies: tuple[OperationReply, ...] = (), **more: Any
) -> Callable[[Callable[..., Response]], Operation]:
    """Declare an operation; `more` are fields of `Operation` by name."""

    def declare(respond: Callable[..., Response]) -> Operation:
        declared = Operation(routes=routes, respond=respond, role=role, replies=replies, **more)
        for route in routes:
            method, template = route.split()
            if (method, template) in _BY_ROUTE:
                raise ValueError(f"two operations have the route {route}")
            _BY_ROUTE[method, template] = declared
        return declared

    return declare


def operations() -> list[Operation]:
    """Return every operation, in the order of declaration."""
    return list(dict.fromkeys(_BY_ROUTE.values()))


def routes() -> dict[tuple[str, str], Operation]:
    """Return the operation of each method and path template."""
    return dict(_BY_ROUTE)


def operation_at(method: str, template: str) -> Operation | None:
    """Return the operation of a route; None for routes of plugins and unknown ones."""
    return _BY_ROUTE.get(("GET" if method == "HEAD" else method, template))


def need_of(method: str, template: str) -> Need:
    """Return what a request to a route needs; only an admin may use an unknown route."""
    declared = operation_at(method, template)
    if declared is not None:
        return declared.need
    if template.startswith("/x/"):
        return PLUGIN_READ if method in ("GET", "HEAD") else PLUGIN_WRITE
    return ADMIN_OF_NODE


def install(app: Flask) -> None:
    """Add the routes of all declared operations to an application, unless it has them already."""
    for (method, template), declared in _BY_ROUTE.items():
        endpoint = f"{method} {template}"
        if endpoint not in app.view_functions:
            app.add_url_rule(template, endpoint, declared.view, methods=[method])
