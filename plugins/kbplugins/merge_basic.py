"""The merge strategies every node has: the source wins, the target wins, both stay, or nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Keep, MergeConflict, MergeStrategy, Resolution


@dataclass(frozen=True, slots=True)
class Always:
    """Decides every conflict alike."""

    always: Keep | None

    def resolve(self, conflict: MergeConflict) -> Resolution:
        """What it always decides."""
        return Resolution(self.always or Keep.REFUSE)


@hookimpl
def kb_merge_strategies() -> Mapping[str, MergeStrategy]:
    """Offer the four of the HTTP interface."""
    return {
        "SOURCE_WINS": Always(Keep.SOURCE),
        "TARGET_WINS": Always(Keep.TARGET),
        "KEEP_BOTH": Always(Keep.BOTH),
        "REJECT": Always(Keep.REFUSE),
    }
