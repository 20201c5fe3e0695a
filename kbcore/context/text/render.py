"""Context windows and their changes as text for a prompt; the same window always gives the same text.

Whatever came from outside is a word, a number or quoted, so that no argument can pass for a sentence of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbcore.context.diff import WindowDiff
from kbcore.context.request import NATURAL
from kbcore.context.text.drafts import draft_for
from kbcore.context.window import Entry, Window


def render(window: Window, text_format: str = NATURAL) -> str:
    """Return a window as text in a format, `natural` or `facts`.

    The text has the entries with validity, confidence, contradictions and derivation, then the rules. It is empty for
    an empty window and ends without a line break.
    """
    draft = draft_for(text_format, resolved=bool(window.resolved), goal_driven=window.goal_driven)
    for entry in window.entries:
        draft.add(entry)
    for rule in window.rules:
        draft.add(rule)
    return draft.text()


def render_changes(changes: WindowDiff) -> str:
    """Give what came into a window and what went, as natural text; empty where nothing did."""
    lines = [f"New: {line}" for line in _lines(changes.added)]
    return "\n".join([*lines, *(f"No longer: {line}" for line in _lines(changes.removed))])


def _lines(entries: Sequence[Entry]) -> list[str]:
    draft = draft_for(NATURAL)
    for entry in entries:
        draft.add(entry)
    return draft.text().splitlines()
