"""What the headers of a request say: whose knowledge base it is for, and how the answer is wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flask import current_app, g, request

from kbcore.errors import InvalidInput, MissingHeader, UnknownTransaction

if TYPE_CHECKING:
    from kbcore.kb import KnowledgeBase
    from kbcore.runtime import Runtime

NAME_RULE = "1 to 128 characters of letters, digits and _ - . : @, other than . and .."
DEFAULT = "default"

_NAME = re.compile(r"[A-Za-z0-9_.:@-]{1,128}")
_SHOWN = 128


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The headers of one request, read.

    `strict` asks for unknown keys to be refused, `representation` for JSON instead of an acknowledgement.
    """

    database: str
    tenant: str
    transaction: str | None
    strict: bool
    representation: bool


def is_name(text: str) -> bool:
    """Whether a text may name a database, tenant, scope or session."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


def read_headers(environ: Mapping[str, Any]) -> RequestContext:
    """Read the headers of a WSGI request that needs a tenant; raises MissingHeader and InvalidInput."""
    tenant = _name(environ, "X-Tenant-ID", "HTTP_X_TENANT_ID", None)
    database = _name(environ, "X-Database", "HTTP_X_DATABASE", DEFAULT)
    prefer = environ.get("HTTP_PREFER")
    wishes = _wishes(prefer) if prefer else {}
    return RequestContext(
        database=database,
        tenant=tenant,
        transaction=environ.get("HTTP_X_TRANSACTION_ID") or None,
        strict=wishes.get("handling") == "strict",
        representation=wishes.get("return") == "representation",
    )


def current() -> RequestContext:
    """Give the context of the request being served."""
    if "context" not in g:
        g.context = read_headers(request.environ)
    context: RequestContext = g.context
    return context


def runtime() -> Runtime:
    """Give the runtime this application serves."""
    found: Runtime = current_app.extensions["kbcore"]
    return found


def reader() -> KnowledgeBase:
    """Give the knowledge base the request reads."""
    return _knowledge_base(current())


def writer() -> KnowledgeBase:
    """Give the knowledge base the request writes to."""
    return _knowledge_base(current())


def _knowledge_base(context: RequestContext) -> KnowledgeBase:
    found = runtime().knowledge_base(context.database, context.tenant)
    if context.transaction is not None:
        raise UnknownTransaction(context.transaction[:_SHOWN])
    return found


def _name(environ: Mapping[str, Any], header: str, key: str, default: str | None) -> str:
    text = environ.get(key) or default
    if not text:
        raise MissingHeader(header)
    name = str(text)
    if not is_name(name):
        raise InvalidInput(f"header {header} is not a name: it has {NAME_RULE}", {"header": header})
    return name


def _wishes(prefer: str) -> dict[str, str]:
    """Read a `Prefer` header; as its specification says, what is not understood is ignored."""
    wishes: dict[str, str] = {}
    for part in prefer.split(","):
        name, _, value = part.split(";")[0].partition("=")
        wishes.setdefault(name.strip().lower(), value.strip().strip('"').lower())
    return wishes
