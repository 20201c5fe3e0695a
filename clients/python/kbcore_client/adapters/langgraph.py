"""Store for LangGraph whose items are facts, so that rules and goals can use them.

An item is `langgraph_item(NAMESPACE, KEY, JSON)`, and `langgraph_value(NAMESPACE, KEY, FIELD,
VALUE)` for each text, number and truth value of its JSON that an argument can hold. The JSON of an
item of more than 64 KiB is empty there, and in the parts `langgraph_part(NAMESPACE, KEY, NUMBER,
TEXT)`. A namespace is written as `users.ann`.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from kbcore_client import Conflict, InvalidInput, KnowledgeBase
from kbcore_client.adapters.long_texts import is_long, joined, parts_of, quoted

ITEM, VALUE, PART = "langgraph_item", "langgraph_value", "langgraph_part"

_ATTEMPTS = 5
_MINUTE_MS = 60_000
_WORD = re.compile(r"\w+")

Namespace = tuple[str, ...]
_Row = dict[str, Any]


class KBStore(BaseStore):
    """A LangGraph store in a knowledge base.

    `ttl` has the time to live of items in minutes, as `{"default_ttl": 60, "refresh_on_read":
    True}`; items that have expired are never returned. `scope` is the scope of the facts (None: the
    base).

    `search(query=...)` orders items by the share of the words of the query that their JSON has,
    their `score`; items without any come last, with the score None. `index` of items is not used.

    The reads of a batch see the state before it; its writes are one transaction.
    """

    supports_ttl = True

    def __init__(
        self, kb: KnowledgeBase, *, ttl: TTLConfig | None = None, scope: str | None = None
    ) -> None:
        self._kb = kb
        self._scope = scope
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations, and return their results; raises KBError."""
        results: list[Result] = []
        writes: dict[tuple[Namespace, str], PutOp] = {}
        for op in ops:
            if isinstance(op, GetOp):
                results.append(self._get(op))
            elif isinstance(op, SearchOp):
                results.append(self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(self._namespaces(op))
            elif isinstance(op, PutOp):
                writes[op.namespace, op.key] = op
                results.append(None)
            else:
                raise InvalidInput.at("ops", f"unknown operation {type(op).__name__}")
        if writes:
            self._write(list(writes.values()))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    # ---- reads ----

    def _get(self, op: GetOp) -> Item | None:
        rows = self._items(self._kb, _item_text(op.namespace, op.key))
        if not rows:
            return None
        if op.refresh_ttl:
            self._refresh(rows)
        return _item(rows[0])

    def _search(self, op: SearchOp) -> list[SearchItem]:
        if min(op.limit, op.offset) < 0:
            raise InvalidInput.at("limit", "limit and offset must not be negative")
        prefix = op.namespace_prefix
        rows = [
            row
            for row in self._items(self._kb, f"{ITEM}(?_, ?_, ?_)", ".".join(prefix))
            if _namespace(row["args"][0])[: len(prefix)] == prefix
        ]
        items = [(row, _item(row)) for row in rows]
        if op.filter:
            items = [
                (row, item)
                for row, item in items
                if all(
                    _matches(item.value.get(key), expected) for key, expected in op.filter.items()
                )
            ]
        items.sort(key=lambda each: (each[1].created_at, each[1].namespace, each[1].key))
        scores: dict[int, float | None] = {}
        if op.query:
            words = {word.casefold() for word in _WORD.findall(op.query)}
            for row, _ in items:
                has = {word.casefold() for word in _WORD.findall(row["args"][2])}
                scores[id(row)] = len(words & has) / len(words) if words & has else None
            items.sort(key=lambda each: -(scores[id(each[0])] or 0))
        page = items[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            self._refresh([row for row, _ in page])
        return [
            SearchItem(
                item.namespace,
                item.key,
                item.value,
                item.created_at,
                item.updated_at,
                scores.get(id(row)),
            )
            for row, item in page
        ]

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        rows = self._rows(f"{ITEM}(?_, ?_, ?_)")
        names = {_namespace(row["args"][0]) for row in rows}
        for condition in op.match_conditions or ():
            names = {name for name in names if _fits(condition, name)}
        if op.max_depth is not None:
            names = {name[: op.max_depth] for name in names}
        return sorted(names)[op.offset : op.offset + op.limit]

    def _rows(self, pattern: str, contains: str = "") -> list[_Row]:
        return self._kb.query(pattern, scope=self._scope, contains=contains).rows()

    def _items(self, kb: KnowledgeBase, pattern: str, contains: str = "") -> list[_Row]:
        """Return the rows of items, with the whole JSON of those that are stored in parts."""
        rows = kb.query(pattern, scope=self._scope, contains=contains).rows()
        return [row if row["args"][2] else self._whole(kb, row) for row in rows]

    def _whole(self, kb: KnowledgeBase, row: _Row) -> _Row:
        namespace, key, _ = row["args"]
        pattern = f"{PART}({quoted(namespace)}, {quoted(key)}, ?number, ?text)"
        rows = kb.query(pattern, scope=self._scope).rows()
        text = joined(row["args"][2:] for row in rows)
        return {**row, "args": [namespace, key, text]}

    # ---- writes ----

    def _write(self, ops: Sequence[PutOp]) -> None:
        """Carry out writes together, again if others write the same items at the same time."""
        for attempt in range(_ATTEMPTS):
            try:
                with self._kb.transaction() as kb:
                    for op in ops:
                        self._put(kb, op)
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _put(self, kb: KnowledgeBase, op: PutOp) -> None:
        pattern = _item_text(op.namespace, op.key)
        before = kb.query(pattern, scope=self._scope).rows()
        key = f"{quoted('.'.join(op.namespace))}, {quoted(op.key)}"
        if before:
            kb.retract(pattern, scope=self._scope)
            kb.retract(f"{VALUE}({key}, ?_, ?_)", scope=self._scope)
            kb.retract(f"{PART}({key}, ?_, ?_)", scope=self._scope)
        if op.value is None:
            return
        try:
            text = json.dumps(op.value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput.at("value", f"must be JSON: {error}") from None
        now = datetime.now(timezone.utc).isoformat()
        created = before[0]["metadata"].get("created", now) if before else now
        metadata = {"created": created, "updated": now, "ttl": op.ttl}
        ttl = _milliseconds(op.ttl)
        parts = parts_of(text)
        for number, part in enumerate(parts, 1):
            kb.tell(f"{PART}({key}, {number}, {quoted(part)})", ttl=ttl, scope=self._scope)
        held = "" if parts else text
        kb.tell(f"{ITEM}({key}, {quoted(held)})", metadata=metadata, ttl=ttl, scope=self._scope)
        for name, value in op.value.items():
            if isinstance(value, (str, int, float)):
                written = value if isinstance(value, str) else json.dumps(value)
                if is_long(written):
                    continue
                atom = f"{VALUE}({key}, {quoted(name)}, {quoted(written)})"
                kb.tell(atom, ttl=ttl, scope=self._scope)

    def _refresh(self, rows: Sequence[_Row]) -> None:
        """Let the time to live of items begin again."""
        ops = []
        for row in rows:
            minutes = row["metadata"].get("ttl")
            if minutes is not None:
                item = _item(row)
                ops.append(PutOp(item.namespace, item.key, item.value, ttl=minutes))
        if ops:
            self._write(ops)


def _milliseconds(minutes: float | None) -> int | None:
    """Return a time to live in milliseconds."""
    if minutes is None:
        return None
    if not 0 < minutes < math.inf:
        raise InvalidInput.at("ttl", "must be a positive number of minutes")
    return max(1, int(minutes * _MINUTE_MS))


def _item(row: _Row) -> Item:
    namespace, key, text = row["args"]
    times = (row["metadata"].get(name) or row["createdAt"] for name in ("created", "updated"))
    created, updated = (
        datetime.fromisoformat(time)
        if isinstance(time, str)
        else datetime.fromtimestamp(time / 1000, timezone.utc)
        for time in times
    )
    return Item(
        value=json.loads(text),
        key=key,
        namespace=_namespace(namespace),
        created_at=created,
        updated_at=updated,
    )


def _namespace(text: str) -> Namespace:
    return tuple(text.split("."))


def _item_text(namespace: Namespace, key: str) -> str:
    """Return the pattern of an item."""
    return f"{ITEM}({quoted('.'.join(namespace))}, {quoted(key)}, ?_)"


def _fits(condition: MatchCondition, namespace: Namespace) -> bool:
    """Return True if a namespace begins or ends with a path, in which `*` is any label."""
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)]
    if condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    return all(expected in ("*", label) for label, expected in zip(part, path, strict=True))


def _matches(value: Any, expected: Any) -> bool:
    """Return True if a value of an item fits a filter: equal, or as its operators say."""
    if isinstance(expected, Mapping):
        if any(name.startswith("$") for name in expected):
            return all(_compare(value, name, other) for name, other in expected.items())
        return isinstance(value, Mapping) and all(
            _matches(value.get(name), other) for name, other in expected.items()
        )
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(expected)
            and all(map(_matches, value, expected))
        )
    return bool(value == expected)


def _number(value: Any) -> float:
    """Return a number, whole ones exactly; raise TypeError or ValueError for anything else."""
    if isinstance(value, (int, float)):
        return value
    try:
        return int(value)
    except ValueError:
        return float(value)


def _compare(value: Any, operator: str, other: Any) -> bool:
    if operator == "$eq":
        return bool(value == other)
    if operator == "$ne":
        return bool(value != other)
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise InvalidInput.at("filter", f"unknown operator {operator}")
    try:
        left, right = _number(value), _number(other)
    except (TypeError, ValueError):
        return False  # what is no number is neither more nor less
    comparisons = {
        "$gt": left > right,
        "$gte": left >= right,
        "$lt": left < right,
        "$lte": left <= right,
    }
    return comparisons[operator]
