"""Texts that were said and need no place in a window, because the facts read in them are known."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from kbcore.context.capacity import FactKey, RankedCandidate
from kbcore.context.ranking import Supply
from kbcore.reason.budget import Budget
from kbcore.state.episodes.evidence import evidence_of
from kbcore.state.facts import Row
from kbcore.state.partition import RowKey, StoredRelation
from kbplanner.engine.backend import Engine
from kbplanner.ir.schema import RelationSchema

FACTS_PER_YIELD = 500
"""Facts of an episode looked at between two turns of others: about a millisecond."""

QUOTATION = "episode"
"""Metadata of a fact `said(speaker, text, when)` that holds what was said as it was said."""


class Quotations:
    """Lookup of the facts that were read in texts; the caller holds the read lock."""

    def __init__(self, supply: Supply, engine: Engine, budget: Budget) -> None:
        self._supply = supply
        self._engine = engine
        self._budget = budget
        self._relations: list[StoredRelation] | None = None

    def is_told(self, text: RankedCandidate, taken: Container[FactKey]) -> bool:
        """Return whether the window has, or is about to have, a fact that was read in a text, or
        whether a newer value replaced that fact: then the text would repeat it, or bring back what
        is no longer believed.
        """
        if text.row["metadata"].get(QUOTATION) is not True:
            return False
        return any(
            self._is_known(stored, row, taken)
            for span in text.row.get("evidence", ())
            for stored, row in self._read_in(span)
        )

    def _read_in(self, span: dict[str, Any]) -> Iterator[tuple[StoredRelation, RowKey]]:
        """Yield the facts that were read in a span."""
        if self._relations is None:
            relations = (each for part in self._supply.partitions for each in part.relations())
            self._relations = [each for each in relations if each.metadata]
        for stored in self._relations:
            for row in self._budget.paced(stored.supported_by(span["episode"]), FACTS_PER_YIELD):
                metadata = stored.metadata[row]
                if metadata.get(QUOTATION) is not True and any(
                    _overlap(span, other) for other in evidence_of(metadata)
                ):
                    yield stored, row

    def _is_known(self, stored: StoredRelation, row: RowKey, taken: Container[FactKey]) -> bool:
        (fact,) = self._rows(stored, row)
        key = fact["scope"], fact["predicate"], fact["negated"], tuple(fact["args"])
        ids = stored.relation.match(list(row))[1]
        if ids:
            return key in taken or (stored, ids[0]) in self._supply.lexical
        return self._is_replaced(stored, row, fact["validUntil"])

    def _is_replaced(self, stored: StoredRelation, row: RowKey, until: int | None) -> bool:
        """Return whether a fact ended when another value, or its opposite, began."""
        if until is None:
            return False
        rivals = self._rows(stored, (*row[:-1], 0))
        schema = stored.schema
        opposite = RelationSchema(schema.predicate, schema.arity, not schema.positive)
        for partition in self._supply.partitions:
            denied = partition.get(opposite) if partition.name == stored.scope else None
            rivals += [] if denied is None else self._rows(denied, row)
        return until in [rival["validFrom"] for rival in rivals]

    def _rows(self, stored: StoredRelation, pattern: RowKey) -> list[Row]:
        """Return the facts of a relation with some symbols, hidden ones too; 0 is any symbol."""
        rows, ids = stored.relation.match(list(pattern), hidden=True)
        return stored.rows(self._engine, rows, ids)


def _overlap(first: dict[str, Any], second: dict[str, Any]) -> bool:
    if first["episode"] != second["episode"]:
        return False
    if "start" not in first or "start" not in second:
        return True
    return bool(first["start"] < second["end"] and second["start"] < first["end"])
