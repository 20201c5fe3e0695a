"""The built-in merge strategies: source wins, target wins, keep both, or change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Keep, MergeConflict, MergeStrategy, Resolution


@dataclass(frozen=True, slots=True)
class Always:
    """A strategy with the same resolution for every conflict."""

    always: Keep | None

    def resolve(self, conflict: MergeConflict) -> Resolution:
        """Return the fixed resolution."""
        return Resolution(self.always or Keep.REFUSE)


@hookimpl
def kb_merge_strategies() -> Mapping[str, MergeStrategy]:
    """Offer the four strategies of the HTTP interface."""
    return {
        "SOURCE_WINS": Always(Keep.SOURCE),
        "TARGET_WINS": Always(Keep.TARGET),
        "KEEP_BOTH": Always(Keep.BOTH),
        "REJECT": Always(Keep.REFUSE),
    }
