"""Answers: text as the interface writes it, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, overload

import orjson
from flask import Request, Response

from kbcore.columns.answer_table import AnswerTable
from kbcore.columns.ipc import MEDIA_TYPE
from kbcore.reason.budget import Notes
from kbplanner.pacing import YieldNow, current_yield, in_parts
from kbserver.notices import unknown_headers
from kbserver.pace import writing

PLAIN = "text/plain"
"""The media type of texts; the charset is utf-8."""

TEXT = f"{PLAIN}; charset=utf-8"
JSON = "application/json"
ARROW = MEDIA_TYPE
"""The media type of answers as columns; it is the same as in `Accept` and `Content-Type`."""

SLICE_ROWS = 2000
SLICE_OBJECTS = 200
SLICE_CHARS = 1 << 18
"""Rows of a list, objects made for it, and characters of a text, written at a time: about a
millisecond."""

MAX_CHECKED_ELEMENTS = 16
"""Longest list whose elements may be large."""


class Objects(Sequence[dict[str, Any]]):
    """The objects of a long list in an answer; each is made when it is read."""

    def __init__(self, make: Callable[[Any], dict[str, Any]], outcomes: Sequence[Any]) -> None:
        self._make = make
        self._outcomes = outcomes

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """Return an object, or the list of those of a slice."""
        if isinstance(index, slice):
            return [self._make(each) for each in self._outcomes[index]]
        return self._make(self._outcomes[index])

    def __len__(self) -> int:
        return len(self._outcomes)

    def lean(self) -> Objects:
        """Return the objects without their null members."""
        return Objects(lambda outcome: present_members(self._make(outcome)), self._outcomes)


def present_members(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its null members."""
    return {key: value for key, value in members.items() if value is not None}


def text(body: str, headers: Mapping[str, str] | None = None, status: int = 200) -> Response:
    """Answer with plain text."""
    return Response(
        body.encode(), status=status, content_type=TEXT, headers=dict(headers) if headers else None
    )


def as_json(value: Any, headers: Mapping[str, str] | None = None, status: int = 200) -> Response:
    """Answer with JSON; keys go out in the order they are in."""
    return Response(
        written(value),
        status=status,
        content_type=JSON,
        headers=dict(headers) if headers else None,
    )


DISCARDED = "X-Facts-Discarded"
"""The header with the number of facts that a conflict strategy did not store."""


def discarded(count: int) -> dict[str, str]:
    """Return the header that tells how many facts were not stored, if any."""
    return {DISCARDED: str(count)} if count else {}


def noted(notes: Notes) -> dict[str, str]:
    """Return the headers that describe an answer."""
    headers = {"X-Answer-Warnings": str(notes.warnings)} if notes.warnings else {}
    if notes.total is not None:
        headers["X-Total-Count"] = str(notes.total)
    return headers | unknown_headers(notes.unknown)


def parts_as_json(parts: list[bytes], headers: Mapping[str, str] | None = None) -> Response:
    """Answer with finished JSON in parts, which go out one by one."""
    response = Response(parts, content_type=JSON, headers=dict(headers) if headers else None)
    response.content_length = sum(map(len, parts))
    return response


def accepts_arrow(request: Request) -> bool:
    """Return True if a client prefers answers as columns to JSON."""
    return request.accept_mimetypes.best_match((JSON, ARROW)) == ARROW


def table_as_arrow(table: AnswerTable, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with an Arrow IPC stream."""
    parts = list(table.ipc_stream())
    response = Response(parts, content_type=ARROW, headers=dict(headers) if headers else None)
    response.content_length = sum(map(len, parts))
    return response


NODES_AT_ONCE = 100
"""Nodes of proofs written before other requests may run: about a millisecond."""


def written(value: Any) -> bytes:
    """Write JSON on one line; other requests run between pieces of a large value."""
    if not _is_large(value):
        return _written(value)
    whole = BytesIO()  # unlike a join of all pieces at the end, it takes each between two turns
    with writing():
        whole.writelines(_pieces(value, current_yield()))
    return whole.getvalue()


def _is_large(value: Any) -> bool:
    """Return True if a value has a long text or list, or is one; elements of lists count in short
    ones only.
    """
    if isinstance(value, Objects):
        return True
    if isinstance(value, str):
        return len(value) > SLICE_CHARS
    if isinstance(value, list):
        return len(value) > SLICE_ROWS or (
            len(value) <= MAX_CHECKED_ELEMENTS and any(map(_is_large, value))
        )
    return isinstance(value, dict) and any(map(_is_large, value.values()))


def _pieces(value: Any, yield_now: YieldNow) -> Iterator[bytes]:
    if not _is_large(value):
        yield _written(value)
    elif isinstance(value, dict):
        for number, (key, member) in enumerate(value.items()):
            yield (b"," if number else b"{") + _written(key) + b":"
            yield from _pieces(member, yield_now)
        yield b"}"
    elif isinstance(value, str):
        yield b'"'
        for part in in_parts(value, yield_now, SLICE_CHARS):
            yield _written(part)[1:-1]
        yield b'"'
    elif isinstance(value, Objects) or len(value) > SLICE_ROWS:
        size = SLICE_OBJECTS if isinstance(value, Objects) else SLICE_ROWS
        for number, rows in enumerate(in_parts(value, yield_now, size)):
            yield (b"," if number else b"[") + _written(rows)[1:-1]
        yield b"]"
    else:
        for number, element in enumerate(value):
            yield b"," if number else b"["
            yield from _pieces(element, yield_now)
        yield b"]"


def members(shape: Mapping[str, Any]) -> bytes:
    """Write the members of an object without its braces."""
    return _written(shape)[1:-1]


def rows_written(rows: list[dict[str, Any]], yield_now: Callable[[], None]) -> bytes:
    """Write rows, which are used up: written and let go in slices yielding to other requests
    between slices.
    """
    return b"".join(row_parts(rows, yield_now))


def row_parts(rows: list[dict[str, Any]], yield_now: Callable[[], None]) -> list[bytes]:
    """Write rows as `rows_written` does, in parts: to join those of very many rows takes long."""
    if len(rows) <= SLICE_ROWS:
        return [_written(rows)]
    parts: list[bytes] = []
    for start in range(0, len(rows), SLICE_ROWS):
        parts += b"," if start else b"[", _written(rows[start : start + SLICE_ROWS])[1:-1]
        rows[start : start + SLICE_ROWS] = [{}] * len(rows[start : start + SLICE_ROWS])
        yield_now()
    return [*parts, b"]"]


def proofs_written(proofs: Iterable[dict[str, Any]], yield_now: Callable[[], None]) -> list[bytes]:
    """Write proof objects as a JSON array in parts, yielding between them; none is kept.

    A tree may be nested deeper than a JSON library follows: its nodes are written one by one.
    """
    parts: list[bytes] = []
    for proof in proofs:
        parts.append(b"," if parts else b"[")
        yield_now()
        if "root" in proof["proof"]:
            parts += _dag_written(proof, yield_now)
        else:
            parts += (
                b'{"result":',
                _written(proof["result"]),
                b',"proof":',
                *_tree_written(proof["proof"], yield_now),
                b"}",
            )
    return [b"".join(parts) + b"]"] if parts else [b"[]"]


def _dag_written(proof: dict[str, Any], yield_now: Callable[[], None]) -> list[bytes]:
    nodes = proof["proof"]["nodes"]
    parts = [
        _written({**proof, "proof": {**proof["proof"], "nodes": 0}}).removesuffix(b"0}}"),
        b"{",
    ]
    names = list(nodes)
    for start in range(0, len(names), NODES_AT_ONCE):
        if start:
            parts.append(b",")
            yield_now()
        parts.append(
            _written({name: nodes[name] for name in names[start : start + NODES_AT_ONCE]})[1:-1]
        )
    return [*parts, b"}}}"]


def _tree_written(top: dict[str, Any], yield_now: Callable[[], None]) -> list[bytes]:
    parts: list[bytes] = []
    todo: list[bytes | dict[str, Any]] = [top]
    while todo:
        if len(parts) % NODES_AT_ONCE == NODES_AT_ONCE - 1:
            yield_now()
        node = todo.pop()
        if isinstance(node, bytes):
            parts.append(node)
            continue
        below = node["step"]["bodyProofs"]
        if not below:
            parts.append(_written(node))
            continue
        # Everything but the step's nodes, then the nodes below, then what ends this one.
        step = {key: value for key, value in node["step"].items() if key != "bodyProofs"}
        start = _written({"goal": node["goal"], "step": {**step, "bodyProofs": 0}})
        parts.append(start.removesuffix(b"0}}") + b"[")
        todo.append(b']},"substitution":' + _written(node["substitution"]) + b"}")
        for i, premise in enumerate(reversed(below)):
            todo += (b",", premise) if i else (premise,)
    return parts


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_objects)
    except TypeError:  # an integer of more than 64 bits, such as a sum may be
        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), default=_objects
        ).encode()


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, Objects):
        return value[:]
    raise TypeError(f"{type(value).__name__} is not JSON")
