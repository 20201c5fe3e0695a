"""Paging of long answers: `?limit=&cursor=`, with a `Link` to the next page.

A cursor belongs to one request and one state of the tenant. It is signed, so that clients cannot
forge one. After a change it is refused, because pages from two states would not fit together.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from flask import Response, request

from kbcore.errors import Conflict, InvalidInput
from kbserver.http.etags import tag
from kbserver.http.request_context import current, runtime

Row = TypeVar("Row")

_FIELDS = struct.Struct(">Q8s8s")
_MAC = 16
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Page:
    """A page of an answer: `limit` rows after the first `offset`."""

    offset: int
    limit: int
    asked: bytes
    state: bytes

    def linked(self, response: Response, more: bool, total: int | None = None) -> Response:
        """Add the link to the next page, if any, and the total number of rows if known."""
        if more:
            cursor = _signed(_FIELDS.pack(self.offset + self.limit, self.asked, self.state))
            query = {**request.args.to_dict(), "limit": str(self.limit), "cursor": cursor}
            response.headers["Link"] = f'<{request.path}?{urlencode(query)}>; rel="next"'
        if total is not None:
            response.headers["X-Total-Count"] = str(total)
        return response


def page(asked: Any) -> Page | None:
    """Return the page that the query string asks for, or None for the whole answer.

    `asked` identifies the request by its `repr`. Raises InvalidInput, and Conflict for a cursor
    from an earlier state.
    """
    if "limit" not in request.args and "cursor" not in request.args:
        return None
    context = current()
    if context.transaction is not None:
        raise InvalidInput(
            "answers inside a transaction have no pages", {"header": "X-Transaction-ID"}
        )
    text = request.args.get("limit", "")
    if not (text.isascii() and text.isdigit() and len(text) < 8 and 1 <= int(text) <= _MOST):
        raise InvalidInput.at("limit", f"must be a whole number from 1 to {_MOST}")
    asked_by = _digest(repr((request.path, context.database, context.tenant, asked)))
    state = _digest(tag())
    cursor = request.args.get("cursor")
    if cursor is None:
        return Page(0, int(text), asked_by, state)
    offset, request_digest, state_digest = _FIELDS.unpack(_opened(cursor))
    if request_digest != asked_by:
        raise InvalidInput.at("cursor", "belongs to another request")
    if state_digest != state:
        raise Conflict(
            "the knowledge base has changed since that page; start again without the cursor",
            {"reason": "changed"},
        )
    return Page(offset, int(text), asked_by, state)


def answer_list(rows: list[Row], asked: Any, answer: Callable[[list[Row]], Response]) -> Response:
    """Return the answer for the rows on the requested page, with its link and the total number.

    Without a page, return the answer for all rows. Raises what `page` raises.
    """
    requested = page(asked)
    if requested is None:
        return answer(rows)
    end = requested.offset + requested.limit
    return requested.linked(answer(rows[requested.offset : end]), end < len(rows), len(rows))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _mac(fields: bytes) -> bytes:
    context = current()
    key = runtime().log_id(context.database, context.tenant).encode()[:64]
    return hashlib.blake2b(fields, key=key, digest_size=_MAC).digest()


def _signed(fields: bytes) -> str:
    return base64.urlsafe_b64encode(fields + _mac(fields)).rstrip(b"=").decode()


def _opened(cursor: str) -> bytes:
    try:
        whole = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        whole = b""
    fields, mac = whole[: _FIELDS.size], whole[_FIELDS.size :]
    if (
        len(whole) != _FIELDS.size + _MAC
        or not hmac.compare_digest(mac, _mac(fields))
        or _signed(fields) != cursor
    ):
        raise InvalidInput.at("cursor", "was not issued by this server")
    return fields
