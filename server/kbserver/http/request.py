"""The request: one object for each, made where it enters and passed down until it is answered.

The life of a request:

1. `kbserver.fast_path.Entry`, the outermost WSGI layer, makes the `Request` and puts it into the
   WSGI environment (`REQUEST`) and into `CURRENT`. It asks the browser guard, then CORS if there is
   any.
2. A common request of a hot route is answered there, by the fast path; every other one goes to
   Flask, whose hooks find the same object in the environment. Both count it as active
   (`Accounting.begin`), and have the guard admit it: that sets the `principal` and the `rate`.
3. The body is read within its limit of bytes and parsed. The readers of schemas know no request:
   what they notice, such as unknown keys, they add to that of `CURRENT`, which also says at whose
   pace they read.
4. The operation works on the handle of a tenant that `headers` name, for the `caller` that may
   disconnect, as the `actor` whose key the log names.
5. The answer gets its status, its body, and the headers that `answer_headers` reads from the
   object.
6. `Accounting.finish` writes metrics, the audit line and the access line from it, and `end` stops
   counting it.

A part of a request that has notices of its own, such as the call of a tool in a message of an
agent, is a `Request` too, for as long as `part_of_request` lasts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from kbcore.operations.base import Actor
from kbcore.state.keys import ADMIN
from kbcore.tracing.spans import TraceSpan
from kbserver.http.request_id import identity_headers, request_id
from kbserver.notices import MAX_NAMES, IgnoredFields, time_header
from kbserver.rate_headers import Rate, rate_headers

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbcore.operations.transaction import TransactionKB
    from kbserver.http.request_context import RequestContext

    class Principal(Protocol):
        """The part of a principal that the core uses; `hookspecs` defines the class."""

        @property
        def name(self) -> str:
            """The name of the caller."""

        @property
        def role(self) -> str:
            """The role of the caller."""

        @property
        def key(self) -> str | None:
            """The id of the API key, None if a plugin authenticated the caller."""


REQUEST = "kbcore.request"
"""Key in the WSGI environment of the `Request`."""

CALLER = "kbcore.caller"
"""Key in the WSGI environment of the caller, if the server can detect its disconnect."""


class Request:
    """One request, from its arrival until it is answered.

    `id` is the request id, `started` the time of its arrival in seconds of the monotonic clock.
    `caller` is the client that may disconnect, None if the server cannot detect that.
    """

    __slots__ = (
        "applied",
        "arguments",
        "audited",
        "body_limit",
        "caller",
        "counted",
        "environ",
        "headers",
        "id",
        "ignored",
        "is_active",
        "is_admitted",
        "is_audited",
        "is_of_present",
        "keyed",
        "principal",
        "rate",
        "runtime",
        "span",
        "started",
        "takes_view",
        "time_warnings",
        "transaction",
        "turn",
        "viewed",
    )

    def __init__(self, environ: dict[str, Any], runtime: Runtime) -> None:
        self.environ = environ
        self.id = request_id(environ.get("HTTP_X_REQUEST_ID"))
        self.runtime = runtime
        self.started = runtime.clock.monotonic()
        self.caller = environ.get(CALLER)

        self.principal: Any = None
        """The `hookspecs.Principal` that was admitted; None without authentication."""
        self.is_admitted = False
        self.rate: Rate | None = None
        """The state of the rate limit that is closest to being exceeded."""
        self.counted: Any = None
        """The limits of `security.limits` that the request was counted against."""
        self.turn: int | None = None
        """The replication turn in which the request was begun."""
        self.span: TraceSpan | None = None
        """The span of the request while tracing is on."""
        self.is_active = False
        """True while the request is counted as being answered."""

        self.headers: RequestContext | None = None
        """Database, tenant, transaction and preferences, once they are read."""
        self.transaction: TransactionKB | None = None
        """The handle on the transaction that the request is part of, while it is held."""
        self.arguments: dict[str, Any] | None = None
        """The arguments of the core, once the body is read."""
        self.body_limit: Any = None
        self.is_of_present = False
        """True if a body that names another instant than the present is refused."""
        self.takes_view = False
        """True if the body may name a view and labels."""
        self.viewed: dict[str, Any] | None = None
        """The view and the labels that a body names."""
        self.keyed: Any = None
        """The notes of `idempotency` about a request that carries out one of its keys."""

        self.ignored: IgnoredFields | None = None
        self.time_warnings: dict[str, None] | None = None
        """Warnings of instants that look like seconds."""
        self.applied: list[str] = []
        """The preferences that were honoured."""
        self.is_audited = True
        """False for a request of an address with too many wrong credentials: it has no audit
        line."""
        self.audited: dict[str, Any] | None = None
        """Further fields of the audit line."""

    @property
    def actor(self) -> Actor | None:
        """The key of the request for the core, None on a server without keys."""
        return None if self.principal is None else actor_of(self.principal)

    def ignore(self, paths: Iterable[str]) -> None:
        """Note that fields of the body are ignored."""
        if self.ignored is None:
            self.ignored = IgnoredFields()
        if not self.ignored.is_cut:
            self.ignored.add(paths)

    def answer_headers(self, present: Container[str]) -> list[tuple[str, str]]:
        """Return the headers that every response has: request id, version, rate limit, ignored
        fields, and preferences that were honoured.

        Rate limit headers in `present` are kept: an error names the limit that was exceeded.
        """
        headers = list(identity_headers(self.id))
        if self.rate is not None:
            headers += (pair for pair in rate_headers(self.rate).items() if pair[0] not in present)
        if self.ignored is not None:
            headers += self.ignored.headers()
        if self.time_warnings is not None:
            headers.append(time_header(self.time_warnings))
        if self.applied:
            headers.append(("Preference-Applied", ", ".join(dict.fromkeys(self.applied))))
        return headers


CURRENT: ContextVar[Request | None] = ContextVar("kbserver-request", default=None)
"""The request that is carried out, for code that it is not passed to; None outside of requests."""


def actor_of(who: Principal | None) -> Actor | None:
    """Return the key of a principal for the core, None on a server without keys."""
    return None if who is None else Actor(who.key or who.name, who.role == ADMIN)


def ignore(paths: Iterable[str]) -> None:
    """Note that fields are ignored, for the current request if there is one."""
    request = CURRENT.get()
    if request is not None:
        request.ignore(paths)


def warn_of_time(warning: str) -> None:
    """Note a warning of an instant, for the current request if there is one."""
    request = CURRENT.get()
    if request is not None:
        warnings = request.time_warnings = request.time_warnings or {}
        if len(warnings) < MAX_NAMES:
            warnings[warning] = None


@contextmanager
def part_of_request(runtime: Runtime) -> Iterator[Request]:
    """Carry out a part of a request that has notices of its own, or work outside of requests."""
    request = Request({}, runtime)
    token = CURRENT.set(request)
    try:
        yield request
    finally:
        CURRENT.reset(token)
