"""Facts that are replaced in a window by the summary that a consolidation created."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from kbcore.context.capacity import RankedCandidate
from kbcore.context.ranking import Supply
from kbcore.context.window import SUMMARY_SUFFIX
from kbcore.state.partition import Partition, StoredRelation
from kbplanner.ir.schema import RelationSchema


def is_summary(metadata: Mapping[str, Any] | None) -> bool:
    """Return whether a fact with this metadata is the summary of a group."""
    return metadata is not None and metadata.get("consolidated") is True


class Summaries:
    """Lookup of the summaries that replace facts in a window; the caller holds the read lock."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._partitions: dict[str | None, Partition] = {
            partition.name: partition for partition in supply.partitions
        }
        self._known: dict[tuple[StoredRelation, int], RankedCandidate | None] = {}
        self._behind: dict[StoredRelation, StoredRelation | None] = {}

    def of(self, fact: RankedCandidate) -> RankedCandidate | None:
        """Return the summary that replaces a stored fact, or None.

        The result is None if the fact has no summary or the salience of the summary is too low.
        """
        ranked = fact.ranked
        stored = None if ranked is None else self._summarized(ranked.stored)
        if stored is None or ranked is None or is_summary(fact.row["metadata"]):
            return None
        first = ranked.stored.relation.rows(array("I", [ranked.row_id]))[0]
        key = stored, first
        if key not in self._known:
            _, ids = stored.relation.match([first, 0])
            candidates = self._supply.candidates(self._supply.placed(stored, ids))
            seen = [
                candidate
                for candidate in candidates
                if is_summary(candidate.row["metadata"])
                and candidate.salience >= self._supply.minimum
            ]
            self._known[key] = seen[0] if seen else None
        return self._known[key]

    def _summarized(self, facts: StoredRelation) -> StoredRelation | None:
        """Return the relation with the summaries of a relation's facts, or None."""
        if facts not in self._behind:
            schema, stored = facts.schema, None
            if schema.positive and schema.arity > 1:
                stored = self._partitions[facts.scope].get(
                    RelationSchema(schema.predicate + SUMMARY_SUFFIX, 2)
                )
            self._behind[facts] = stored if stored is not None and stored.metadata else None
        return self._behind[facts]

    def covered(self, summary: RankedCandidate) -> int:
        """Return the number of currently valid facts that a summary represents."""
        ranked, row = summary.ranked, summary.row
        if ranked is None or not row["predicate"].endswith(SUMMARY_SUFFIX):
            return 0
        first = ranked.stored.relation.rows(array("I", [ranked.row_id]))[0]
        return sum(
            stored.relation.total([first, *[0] * (stored.schema.arity - 1)], None).matched
            for stored in self._partitions[row["scope"]].named(
                row["predicate"].removesuffix(SUMMARY_SUFFIX), None, True
            )
            if stored.schema.arity > 1
        )
