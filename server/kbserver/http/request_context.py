"""Context of a request from its headers: database, tenant, transaction, and preferences for the
response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from flask import current_app, request

from kbcore.errors import InvalidInput, MissingHeader, UnknownTransaction
from kbcore.operations.views import ALL, Grant
from kbcore.state.names import NAME_RULE, is_name
from kbserver.http.request import REQUEST, Request

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbcore.operations.tenant_kb import TenantKB
    from kbcore.operations.transaction import TransactionKB
    from kbserver.http.body_memory import Bodies


DEFAULT = "default"

_SHOWN = 128
_WAIT_DIGITS = 9
_MAX_WAIT_MS = 10**12


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The parsed headers of one request.

    `strict` refuses unknown keys, `representation` asks for JSON instead of an acknowledgement,
    `minimal` for an answer without null members.
    `wait` is the unparsed time limit in seconds; `wait_wanted` validates it.
    """

    database: str
    tenant: str
    transaction: str | None
    strict: bool
    representation: bool
    minimal: bool
    wait: str | None = None


def read_headers(environ: Mapping[str, Any], tenant_default: str | None = None) -> RequestContext:
    """Read the headers of a WSGI request; the tenant is required unless there is a default.

    Raises MissingHeader and InvalidInput.
    """
    tenant = _name(environ, "X-Tenant-ID", "HTTP_X_TENANT_ID", tenant_default)
    database = _name(environ, "X-Database", "HTTP_X_DATABASE", DEFAULT)
    prefer = environ.get("HTTP_PREFER")
    wishes = _wishes(prefer) if prefer else {}
    return RequestContext(
        database=database,
        tenant=tenant,
        transaction=environ.get("HTTP_X_TRANSACTION_ID") or None,
        strict=wishes.get("handling") == "strict",
        representation=wishes.get("return") == "representation",
        minimal=wishes.get("return") == "minimal",
        wait=wishes.get("wait"),
    )


def current_request() -> Request:
    """Return the current request of Flask."""
    served: Request | None = request.environ.get(REQUEST)
    if served is None:  # a command calls an operation without the entry of the server
        served = request.environ[REQUEST] = Request(request.environ, runtime())
    return served


def current() -> RequestContext:
    """Return the context of the current request."""
    served = current_request()
    if served.headers is None:
        served.headers = read_headers(served.environ)
    return served.headers


def named(kind: str, name: str) -> str:
    """Check a name in a path; raises InvalidInput."""
    if not is_name(name):
        raise InvalidInput.at(kind, f"is not a name: it has {NAME_RULE}")
    return name


def wait_wanted() -> int | None:
    """Return the milliseconds of `Prefer: wait` (RFC 7240) or None, and confirm the preference.

    The header has whole seconds. Raises InvalidInput.
    """
    text = current().wait
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(
            "header Prefer: wait must be a whole number of seconds", {"header": "Prefer"}
        )
    applied(f"wait={text}")
    return (
        int(text[-_WAIT_DIGITS:]) * 1000 if len(text.lstrip("0")) <= _WAIT_DIGITS else _MAX_WAIT_MS
    )


def applied(preference: str) -> None:
    """Record an honoured preference for the header `Preference-Applied`."""
    current_request().applied.append(preference)


def runtime() -> Runtime:
    """Return the runtime that this application serves."""
    value: Runtime = current_app.extensions["kbcore"]
    return value


def bodies() -> Bodies:
    """Return the counter of request bodies."""
    value: Bodies = current_app.extensions["kbcore.bodies"]
    return value


def reader() -> TenantKB:
    """Return the knowledge base to read, seen through the request's transaction if it has one."""
    return _knowledge_base(current(), writes=False)


def writer() -> TenantKB:
    """Return the knowledge base or transaction to write to; any error of the request ends the
    transaction.
    """
    return _knowledge_base(current(), writes=True)


def release(error: BaseException | None) -> None:
    """Release the transaction of the request, if any; `error` is the exception of the request."""
    served = current_request()
    held, served.transaction = served.transaction, None
    if held is not None:
        held.__exit__(type(error) if error else None, error, None)


def outside(tenant_default: str | None = None) -> RequestContext:
    """Return the context of a request outside transactions; raises InvalidInput if it names one.

    With `tenant_default` the tenant header is optional.
    """
    context = read_context(tenant_default)
    if context.transaction is not None:
        raise InvalidInput("this cannot be part of a transaction", {"header": "X-Transaction-ID"})
    return context


def read_context(tenant_default: str | None) -> RequestContext:
    """Read the headers of the current request again, with a default of the tenant."""
    served = current_request()
    served.headers = read_headers(served.environ, tenant_default)
    return served.headers


def whole() -> TenantKB:
    """Return the knowledge base of the current request without its view, and outside of its
    transaction.
    """
    context, served = current(), current_request()
    kb = served.runtime.knowledge_base(context.database, context.tenant, served.caller)
    kb.actor = served.actor
    return kb


def _knowledge_base(context: RequestContext, writes: bool) -> TenantKB:
    served = current_request()
    if context.transaction is None:
        return viewed(whole(), served)
    return viewed(enter_transaction(context, context.transaction, writes), served)


def enter_transaction(context: RequestContext, id: str, writes: bool) -> TransactionKB:
    """Return the handle on the transaction of the current request, which locks it until the end of
    the request.
    """
    served = current_request()
    if served.transaction is None:
        served.transaction = in_transaction(context, id, writes).__enter__()
        served.transaction.actor = served.actor
    return served.transaction


Viewed = TypeVar("Viewed", bound="TenantKB")

VIEW, LABELS = "X-View", "X-Labels"
"""The headers with the view of a request, and with the labels of what it stores, as JSON
objects."""

_MAX_HEADER = 4096


def grant_of(who: Any) -> Grant:
    """Return the view of a principal, and the labels that it gives to what it stores."""
    return ALL if who is None else Grant(who.view, who.labels)


def asks_view(served: Request) -> bool:
    """Return True if a request names a view or labels."""
    environ = served.environ
    return served.viewed is not None or "HTTP_X_VIEW" in environ or "HTTP_X_LABELS" in environ


def refuse_view(served: Request) -> None:
    """Raise InvalidInput if a request names a view or labels: the operation would not see them."""
    for name, key in ((VIEW, "HTTP_X_VIEW"), (LABELS, "HTTP_X_LABELS")):
        if key in served.environ:
            raise InvalidInput(f"header {name} is not available here", {"header": name})


def viewed(kb: Viewed, served: Request) -> Viewed:
    """Return a knowledge base as a request sees it: within the view of its key and of its headers
    or its body.

    The body is read before: a view in one that is read later is refused. Raises InvalidInput and
    Forbidden.
    """
    served.takes_view = False
    return kb.viewed(**view_asked(served), grant=grant_of(served.principal))


def view_asked(served: Request) -> dict[str, Any]:
    """Return the view and the labels that the body of a request names, or its headers.

    Raises InvalidInput.
    """
    members = served.viewed or {}
    return {
        "view": members.get("view", _header(served, VIEW, "HTTP_X_VIEW")),
        "labels": members.get("labels", _header(served, LABELS, "HTTP_X_LABELS")),
    }


def _header(served: Request, name: str, key: str) -> Any:
    text = served.environ.get(key)
    if text is None:
        return None
    if len(text) > _MAX_HEADER:
        raise InvalidInput(f"header {name} has at most {_MAX_HEADER} characters", {"header": name})
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidInput(f"header {name} is not a JSON object", {"header": name}) from None


def in_transaction(context: RequestContext, id: str, writes: bool) -> TransactionKB:
    """Return a handle on a transaction.

    Raises UnknownTransaction, and on entry Conflict if the transaction has ended.
    """
    if len(id) > _SHOWN:
        raise UnknownTransaction(id[:_SHOWN])
    served = current_request()
    return served.runtime.in_transaction(
        context.database, context.tenant, id, writes=writes, caller=served.caller
    )


def _name(environ: Mapping[str, Any], header: str, key: str, default: str | None) -> str:
    text = environ.get(key) or default
    if not text:
        raise MissingHeader(header)
    name = str(text)
    if not is_name(name):
        raise InvalidInput(f"header {header} is not a name: it has {NAME_RULE}", {"header": header})
    return name


def _wishes(prefer: str) -> dict[str, str]:
    """Parse a `Prefer` header; unknown preferences are ignored, as RFC 7240 says."""
    wishes: dict[str, str] = {}
    for part in prefer.split(","):
        name, _, value = part.split(";")[0].partition("=")
        wishes.setdefault(name.strip().lower(), value.strip().strip('"').lower())
    return wishes
