"""The facts that episodes support."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from kbcore.reason.budget import Budget
from kbcore.state.episodes.evidence import Span, evidence_of
from kbcore.state.partition import RowKey, StoredRelation
from kbcore.state.tenant import Tenant

FACTS_PER_YIELD = 1000
"""Facts whose evidence is looked at between two calls of `yield_now`: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Supported:
    """A stored fact with evidence, by its relation and symbols."""

    stored: StoredRelation
    row: RowKey
    spans: list[Span]


def supported(tenant: Tenant, episodes: Container[str], budget: Budget) -> Iterator[Supported]:
    """Yield the stored facts with evidence in any of these episodes; the caller holds the lock."""
    for _, stored in tenant.stored():
        for row, metadata in budget.paced(stored.metadata.items(), FACTS_PER_YIELD):
            spans = evidence_of(metadata)
            if any(span["episode"] in episodes for span in spans):
                yield Supported(stored, row, spans)
