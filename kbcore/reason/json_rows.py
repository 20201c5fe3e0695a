"""JSON text of answers written by the engine, for rows without metadata and confidence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kbcore.reason.annotate import Answers
from kbcore.reason.budget import Budget
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute
from kbplanner.engine.json_rows import RowShape, rows_json
from kbplanner.ir.schema import RelationSchema

TRUTH = {True: ',"truthVal":true', False: ',"truthVal":false'}
"""The additional member of a stored fact's row."""

ABSENCE: Mapping[str, Any] = {"nonMonotonic": True}
"""The metadata of an answer that depends on an absence."""

MAX_SHAPES = 1024


class RowWriter:
    """JSON writer for the rows of one tenant, with a cache of the constant text per predicate."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._shapes: dict[tuple[str, bool, str | None, bool, bool], RowShape] = {}

    def rows(
        self,
        schema: RelationSchema,
        scope: str | None,
        stored: StoredRelation | None,
        answers: Answers,
        budget: Budget,
        *,
        truth: bool = False,
        absence: bool = False,
    ) -> Iterator[bytes]:
        """Yield the JSON of answer rows in slices, each row with a leading comma; yield to other
        requests between slices.

        With `truth` each row has a truth value, with `absence` the metadata `nonMonotonic`.
        """
        key = (schema.predicate, schema.positive, scope, truth, absence)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            suffix = TRUTH[schema.positive] if truth else ""
            metadata = ABSENCE if absence else None
            shape = self._shapes[key] = row_shape(
                schema.predicate, schema.positive, scope, suffix, metadata
            )
        relation = stored.relation if stored else None
        first = True
        rows, count = answers
        for part in rows_json(self._tenant.engine, shape, relation, rows, schema.arity, count):
            if not first:
                budget.yield_now()
            first = False
            yield part


def plain(stored: StoredRelation | None) -> bool:
    """Return whether the engine can write the rows of a stored relation: none has metadata or a
    confidence.
    """
    return stored is None or not (
        stored.metadata or stored.has_labels or stored.relation.uses(Attribute.CONFIDENCE)
    )


def array_of(parts: list[bytes]) -> list[bytes]:
    """Return the parts as a JSON array; the opening bracket replaces the first comma."""
    if len(parts) < 2:
        return [b"[" + b"".join(parts)[1:] + b"]"]
    return [b"[" + parts[0][1:], *parts[1:], b"]"]


def row_shape(
    predicate: str,
    positive: bool,
    scope: str | None,
    more: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> RowShape:
    """Return the JSON template of rows without confidence that share the same metadata.

    `more` holds further members, each `,"key":value`.
    """
    first = {"predicate": predicate, "args": [], "negated": not positive, "scope": scope}
    first |= {"metadata": dict(metadata or {}), "createdAt": None}
    text = json.dumps(first, ensure_ascii=False, separators=(",", ":"))
    before, _, after = text.partition('"args":[]')
    return RowShape(
        f'{before}"args":[',
        "]" + after.removesuffix("null}"),
        ',"validFrom":',
        ',"validUntil":',
        ',"ttl":',
        f',"confidence":null{more}}}',
    )
