"""Transactions: groups of writes that become visible together or not at all."""

from __future__ import annotations

from flask import Blueprint, Response

from kbserver.answers import text
from kbserver.http.request_context import in_transaction, outside, runtime
from kbserver.operations import OF_NODES, OF_TRANSACTIONS, as_text, operation
from kbserver.schemas.base import load, nothing

bp = Blueprint("transactions", __name__)


@bp.post("/tx/begin")
@operation(as_text("The id of a new transaction."), body=nothing, errors=OF_NODES)
def begin() -> Response:
    """Open a transaction and return its id."""
    context = outside()
    load(nothing)
    return text(runtime().begin(context.database, context.tenant))


@bp.post("/tx/commit/<id>")
@operation(as_text("That it is committed."), body=nothing, writes=True, errors=OF_TRANSACTIONS)
def commit(id: str) -> Response:
    """Commit a transaction: make all its writes visible and durable together."""
    context = outside()
    load(nothing)
    with in_transaction(context, id, writes=True) as kb:
        kb.commit()
    return text(f"Committed {id}")


@bp.post("/tx/rollback/<id>")
@operation(as_text("That it is rolled back."), body=nothing, errors=OF_TRANSACTIONS)
def rollback(id: str) -> Response:
    """Roll back a transaction: discard all its writes."""
    context = outside()
    load(nothing)
    with in_transaction(context, id, writes=True) as kb:
        kb.roll_back()
    return text(f"Rolled back {id}")
