"""What has changed between two windows of a session: the first with the diff applied is the second."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kbcore.context.removed import Removed
from kbcore.context.request import STRUCTURED
from kbcore.context.window import Entry, Window

REFRESH_ABOVE = 0.5
"""Part of the previous window from which on reading the whole new one is easier than the changes."""

NO_WINDOW = "none"


@dataclass(frozen=True, slots=True)
class WindowDiff:
    """Entries that were added and entries that were removed, each with the reason for it.

    An entry of which anything but salience and category has changed is in both. `previous` is None where nothing is known of
    the session. With `refresh` the whole window should be asked for, `reason` says why. `format` is the one in which the
    new window was asked for.
    """

    previous: str | None
    current: str
    added: tuple[Entry, ...]
    removed: tuple[Removed, ...]
    unchanged: int
    refresh: bool
    reason: str | None
    format: str = STRUCTURED


UNKNOWN = WindowDiff(
    None, NO_WINDOW, (), (), 0, True, "nothing is known of this session: ask for a window first"
)
"""The diff of a session that was never used, or has ended."""


def diff(
    before: Window,
    after: Window,
    reasons: Callable[[Iterable[Entry]], tuple[Removed, ...]],
    text_format: str = STRUCTURED,
) -> WindowDiff:
    """Return what has changed from one window to the other, in the order of their entries.

    `reasons` finds out why the entries given to it were removed.
    """
    old, new = ({_content(entry) for entry in window.entries} for window in (before, after))
    added = tuple(entry for entry in after.entries if _content(entry) not in old)
    removed = reasons(entry for entry in before.entries if _content(entry) not in new)
    changed = len(added) + len(removed)
    refresh = changed > REFRESH_ABOVE * len(before.entries) if before.entries else False
    reason = f"{changed} changes to a window of {len(before.entries)} facts" if refresh else None
    unchanged = len(after.entries) - len(added)
    return WindowDiff(before.id, after.id, added, removed, unchanged, refresh, reason, text_format)


def _content(entry: Entry) -> tuple[object, ...]:
    """What makes an entry another one; salience, category and when something was concluded drift by themselves."""
    metadata = repr(sorted(entry.metadata.items()))
    validity = entry.valid_from, entry.valid_until
    return entry.key, validity, entry.provenance, entry.confidence, entry.contradicted, metadata
