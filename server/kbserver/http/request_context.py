"""Context of a request from its headers: database, tenant, transaction, and preferences for the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from flask import current_app, g, request

from kbcore.errors import InvalidInput, MissingHeader, UnknownTransaction
from kbcore.operations.base import Actor
from kbcore.state.keys import ADMIN
from kbcore.state.names import NAME_RULE, is_name

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbcore.operations.tenant_kb import TenantKB
    from kbcore.operations.transaction import TransactionKB
    from kbserver.http.body_memory import Bodies

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


DEFAULT = "default"

_SHOWN = 128
_WAIT_DIGITS = 9
_MAX_WAIT_MS = 10**12

WHO = "kbcore.principal"
"""Key of the request's Principal in the WSGI environment."""

CALLER = "kbcore.caller"
"""Key in the WSGI environment of the caller, if the server can detect its disconnect."""


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


def current() -> RequestContext:
    """Return the context of the current request."""
    if "context" not in g:
        g.context = read_headers(request.environ)
    context: RequestContext = g.context
    return context


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
    g.setdefault("applied", []).append(preference)


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
    """Return the knowledge base or transaction to write to; any error of the request ends the transaction."""
    return _knowledge_base(current(), writes=True)


def release(error: BaseException | None) -> None:
    """Release the transaction of the request, if any; `error` is the exception of the request."""
    held: TransactionKB | None = g.pop("transaction", None)
    if held is not None:
        held.__exit__(type(error) if error else None, error, None)


def outside(tenant_default: str | None = None) -> RequestContext:
    """Return the context of a request outside transactions; raises InvalidInput if it names one.

    With `tenant_default` the tenant header is optional.
    """
    context = g.context = read_headers(request.environ, tenant_default)
    if context.transaction is not None:
        raise InvalidInput("this cannot be part of a transaction", {"header": "X-Transaction-ID"})
    return context


def _knowledge_base(context: RequestContext, writes: bool) -> TenantKB:
    if context.transaction is None:
        kb = runtime().knowledge_base(context.database, context.tenant, request.environ.get(CALLER))
        kb.actor = actor_of(request.environ.get(WHO))
        return kb
    if "transaction" not in g:
        g.transaction = in_transaction(context, context.transaction, writes).__enter__()
        g.transaction.actor = actor_of(request.environ.get(WHO))
    held: TransactionKB = g.transaction
    return held


def actor_of(who: Principal | None) -> Actor | None:
    """Return the key of a request for the core, None on a server without keys."""
    return None if who is None else Actor(who.key or who.name, who.role == ADMIN)


def in_transaction(context: RequestContext, id: str, writes: bool) -> TransactionKB:
    """Return a handle on a transaction.

    Raises UnknownTransaction, and on entry Conflict if the transaction has ended.
    """
    if len(id) > _SHOWN:
        raise UnknownTransaction(id[:_SHOWN])
    caller = request.environ.get(CALLER)
    return runtime().in_transaction(
        context.database, context.tenant, id, writes=writes, caller=caller
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
