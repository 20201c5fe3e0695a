"""Differences between two windows of a session; the first with the diff applied is the second."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kbcore.context.removed import Removal
from kbcore.context.request import DAY, STRUCTURED
from kbcore.context.text.draft import TemplatesOf, no_templates
from kbplanner.syntax.diagnostics import counted
from kbtypes.windows import Entry, Window

REFRESH_ABOVE = 0.5
"""Part of the previous window from which on reading the whole new one is easier than the
changes.
"""

NO_WINDOW = "none"


@dataclass(frozen=True, slots=True)
class WindowDiff:
    """Added entries, and removed entries with the reason for each removal.

    An entry with any change other than in salience or category is in both lists. `previous` is None
    if the session is unknown. If `refresh` is True, the client should request the whole window;
    `reason` says why. `format` and `times` are those requested of the new window, `templates` the
    phrases of its text. `index_progress` and `vectors_missing` are those of the new window.
    """

    previous: str | None
    current: str
    added: tuple[Entry, ...]
    removed: tuple[Removal, ...]
    unchanged: int
    refresh: bool
    reason: str | None
    format: str = STRUCTURED
    templates: TemplatesOf = no_templates
    index_progress: float | None = None
    vectors_missing: int | None = None
    times: str = DAY


UNKNOWN = WindowDiff(
    None, NO_WINDOW, (), (), 0, True, "nothing is known of this session: ask for a window first"
)
"""The diff of a session that was never used, or has ended."""


def diff(
    before: Window,
    after: Window,
    reasons: Callable[[Iterable[Entry]], tuple[Removal, ...]],
    text_format: str = STRUCTURED,
) -> WindowDiff:
    """Return the changes between two windows, in the order of their entries.

    `reasons` returns the reason for the removal of each entry.
    """
    old, new = ({_content(entry) for entry in window.entries} for window in (before, after))
    added = tuple(entry for entry in after.entries if _content(entry) not in old)
    removed = reasons(entry for entry in before.entries if _content(entry) not in new)
    changed = len(added) + len(removed)
    refresh = changed > REFRESH_ABOVE * len(before.entries) if before.entries else False
    reason = (
        f"{counted(changed, 'change')} to a window of {counted(len(before.entries), 'fact')}"
        if refresh
        else None
    )
    unchanged = len(after.entries) - len(added)
    return WindowDiff(
        before.id,
        after.id,
        added,
        removed,
        unchanged,
        refresh,
        reason,
        text_format,
        index_progress=after.index_progress,
        vectors_missing=after.vectors_missing,
    )


def _content(entry: Entry) -> tuple[object, ...]:
    """Return the fields that are compared.

    Salience, category and time of the conclusion change with time alone; the goal that an entry was
    selected for depends on what else is selected, and says nothing about the fact.
    """
    metadata = repr(sorted(entry.metadata.items()))
    validity = entry.valid_from, entry.valid_until
    beliefs = entry.provenance, entry.confidence, entry.contradicted, entry.excerpt
    return entry.key, validity, beliefs, metadata
