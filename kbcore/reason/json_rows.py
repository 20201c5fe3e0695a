"""Answers as finished JSON, where nothing about them needs Python: no metadata, no confidence."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from kbcore.reason.budget import Budget
from kbcore.state.facts import row_shape
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute
from kbplanner.engine.written import RowShape, rows_json
from kbplanner.ir.schema import RelationSchema

TRUTH = {True: ',"truthVal":true', False: ',"truthVal":false'}
"""What a row of stored facts says beside the members of every row."""

MAX_SHAPES = 1024


class Written:
    """Writes rows of one tenant; keeps the text around their values, which is the same for each predicate."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._shapes: dict[tuple[str, bool, str | None, bool, bool], RowShape] = {}

    def rows(
        self,
        schema: RelationSchema,
        scope: str | None,
        stored: StoredRelation | None,
        rows: array[int],
        count: int,
        budget: Budget,
        *,
        truth: bool = False,
        absence: bool = False,
    ) -> Iterator[bytes]:
        """The JSON of answer rows in slices, each row with a comma before it; others have their turn in between.

        With `truth` they have a truth value, with `absence` they say that they rest on something being absent.
        """
        key = (schema.predicate, schema.positive, scope, truth, absence)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            more = TRUTH[schema.positive] if truth else ""
            metadata = {"nonMonotonic": True} if absence else None
            shape = self._shapes[key] = row_shape(schema.predicate, schema.positive, scope, more, metadata)
        relation = stored.relation if stored else None
        first = True
        for part in rows_json(self._tenant.engine, shape, relation, rows, schema.arity, count):
            if not first:
                budget.rest()
            first = False
            yield part


def plain(stored: StoredRelation | None) -> bool:
    """Whether rows of a stored relation can be written by the engine: none has metadata or a confidence."""
    return stored is None or not (stored.metadata or stored.relation.uses(Attribute.CONFIDENCE))


def array_of(parts: list[bytes]) -> list[bytes]:
    """The parts as a JSON array: the first comma opens it."""
    if len(parts) < 2:
        return [b"[" + b"".join(parts)[1:] + b"]"]
    return [b"[" + parts[0][1:], *parts[1:], b"]"]
