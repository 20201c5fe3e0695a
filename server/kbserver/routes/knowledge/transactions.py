"""Transactions: groups of writes that become visible together or not at all."""

from __future__ import annotations

from flask import Response

from kbcore.state.keys import WRITER
from kbserver.answers import text
from kbserver.http.request_context import (
    current,
    current_request,
    in_transaction,
    runtime,
    viewed,
    whole,
)
from kbserver.operations import OF_NODES, OF_TRANSACTIONS, as_text, operation
from kbserver.schemas.requests import Nothing, load


@operation(
    "POST /tx/begin",
    role=WRITER,
    replies=(as_text("The id of a new transaction."),),
    body=Nothing,
    viewed=True,
    on_leader=True,
    errors=OF_NODES,
)
def begin() -> Response:
    """Open a transaction and return its id."""
    load(Nothing)
    seen = viewed(whole(), current_request())
    return text(runtime().begin(current().database, current().tenant, seen.view))


@operation(
    "POST /tx/commit/<id>",
    role=WRITER,
    again=lambda outcome, arguments: _committed(arguments["id"]),
    replies=(as_text("The transaction is committed."),),
    body=Nothing,
    viewed=True,
    writes=True,
    errors=OF_TRANSACTIONS,
)
def commit(id: str) -> Response:
    """Commit a transaction: make all its writes visible and durable together."""
    load(Nothing)
    with in_transaction(current(), id, writes=True) as kb:
        viewed(kb, current_request()).commit()
    return _committed(id)


def _committed(id: str) -> Response:
    return text(f"Committed {id}")


@operation(
    "POST /tx/rollback/<id>",
    role=WRITER,
    replies=(as_text("The transaction is rolled back."),),
    body=Nothing,
    viewed=True,
    on_leader=True,
    errors=OF_TRANSACTIONS,
)
def rollback(id: str) -> Response:
    """Roll back a transaction: discard all its writes."""
    load(Nothing)
    with in_transaction(current(), id, writes=True) as kb:
        viewed(kb, current_request()).roll_back()
    return text(f"Rolled back {id}")
