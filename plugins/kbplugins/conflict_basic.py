"""Conflict strategies for a fact whose opposite is stored: keep both, refuse, newest wins, highest
confidence wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import ConflictingFact, Keep, MergeConflict, MergeStrategy, Resolution
from kbplugins.merge_basic import Always


class HighestConfidence:
    """The higher confidence wins; an unknown confidence counts as 1, and the new fact wins a
    tie.
    """

    always = None

    def resolve(self, conflict: MergeConflict) -> Resolution:
        """Return the winner."""
        return Resolution(
            Keep.TARGET
            if _confidence(conflict.target) > _confidence(conflict.source)
            else Keep.SOURCE
        )


def _confidence(facts: Sequence[ConflictingFact]) -> float:
    return max((1.0 if fact.confidence is None else fact.confidence for fact in facts), default=0.0)


@hookimpl
def kb_conflict_strategies() -> Mapping[str, MergeStrategy]:
    """Offer the four strategies of the HTTP interface."""
    return {
        "KEEP_BOTH": Always(Keep.BOTH),
        "REJECT": Always(Keep.REFUSE),
        "NEWEST_WINS": Always(Keep.SOURCE),
        "CONFIDENCE": HighestConfidence(),
    }
