"""What upkeep did, and what was recalled, in the shapes of the HTTP interface: for routes and commands alike."""

from __future__ import annotations

from typing import Any

from kbcore.state.facts import Row
from kbcore.upkeep.consolidate import ConsolidateOutcome
from kbcore.upkeep.decay import DecayOutcome


def decayed(found: DecayOutcome) -> dict[str, Any]:
    """Show what decay removed or would remove; the rows are `removedAtoms`."""
    shape: dict[str, Any] = {
        "expiredCount": found.expired,
        "evictedCount": found.evicted,
        "removedAtoms": found.atoms,
        "timestamp": found.timestamp,
    }
    if found.truncated:
        shape["truncated"] = True
    return _marked(shape, found.dry_run)


def consolidated(found: ConsolidateOutcome) -> dict[str, Any]:
    """Show what a consolidation did or would do; the rows are `newFacts`."""
    shape = {
        "factsConsolidated": found.consolidated,
        "summariesRemoved": found.removed,
        "newFacts": found.facts,
        "timestamp": found.timestamp,
    }
    return _marked(shape, found.dry_run)


def recalled(rows: list[Row]) -> list[Row]:
    """Add the truth value to recalled rows."""
    for row in rows:
        row["truthVal"] = not row["negated"]
    return rows


def _marked(shape: dict[str, Any], dry_run: bool) -> dict[str, Any]:
    return {**shape, "dryRun": True} if dry_run else shape
