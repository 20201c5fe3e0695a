"""Rendering of context windows and diffs as prompt text; equal windows give equal text.

External content is a word, a number, quoted, or on one line after a day and a speaker, so that no
argument can pass for a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbcore.context.diff import WindowDiff
from kbcore.context.removed import (
    CONTRADICTED,
    EXPIRED,
    NO_LONGER_TRUE,
    RETRACTED,
    SUPERSEDED,
    Removal,
)
from kbcore.context.request import DAY, FACTS
from kbcore.context.text.draft import Draft, Item, TemplatesOf, no_templates, set_notes
from kbcore.context.text.drafts import NaturalDraft, draft_for
from kbcore.context.window import is_absence
from kbtypes.windows import MATCH, Entry, Window

NEW = "New"
CHANGED = "Changed"
UNTRUE = "No longer true"
SUMMARIZED = "Now in a summary"
"""Labels of the lines about changes; a fact that is now in a summary is still true."""

UNFOUNDED = "no longer follows"
_WHY = {RETRACTED: "retracted", EXPIRED: "ended", CONTRADICTED: "the opposite is known"}
"""What is noted at an entry that is no longer true; UNFOUNDED for conclusions without a proof."""


def render(
    window: Window,
    text_format: str = FACTS,
    templates: TemplatesOf = no_templates,
    times: str = DAY,
) -> str:
    """Return a window as text in a format, `facts` or `natural`, without citations.

    The text has the entries with validity, confidence, contradictions and derivation, then the
    rules. It is empty for an empty window and ends without a line break.
    """
    draft = draft_for(text_format, goal_driven=window.goal_driven, templates=templates, times=times)
    draft.rule_sets = set_notes(window.rule_sets or ())
    asked = [entry for entry in window.entries if entry.goal is not None]
    others = [entry for entry in window.entries if entry.goal is None]
    items: list[Item] = [*asked, *window.notes, *others, *window.rules]
    for item in items:
        draft.add(item)
    return draft.text()


def render_changes(changes: WindowDiff, text_format: str = FACTS) -> str:
    """Return the changes of a window as text in a format; empty if there are none.

    Added entries come first, then entries with changed details, then entries that are no longer
    true, by reason, then entries replaced by a summary. Entries that left the window but are still
    true are not mentioned. In the rule language, everything except currently true facts is in
    comments.
    """
    replaced = {removal.key for removal in changes.removed if removal.reason == SUPERSEDED}
    in_place = replaced & {entry.key for entry in changes.added}
    groups: dict[tuple[str, str], list[Entry]] = {
        (NEW, ""): [],
        (CHANGED, ""): [],
        **{(UNTRUE, why): [] for why in (*_WHY.values(), UNFOUNDED)},
        (SUMMARIZED, ""): [],
    }
    for entry in changes.added:
        groups[CHANGED if entry.key in in_place else NEW, ""].append(entry)
    for removal in changes.removed:
        bare = _bare(removal)
        if removal.reason in NO_LONGER_TRUE:
            follows = removal.entry.provenance is not None and removal.reason == RETRACTED
            groups[UNTRUE, UNFOUNDED if follows else _WHY[removal.reason]].append(bare)
        elif removal.key in replaced - in_place:
            groups[SUMMARIZED, ""].append(bare)
    scoped = len({entry.scope for entries in groups.values() for entry in entries}) > 1
    lines: list[str] = []
    for (label, why), entries in groups.items():
        draft = draft_for(
            text_format, templates=changes.templates, numbers=False, times=changes.times
        )
        draft.remark = why
        lines += _lines(label, entries, draft, scoped)
    return "\n".join(lines)


def _bare(removal: Removal) -> Entry:
    """Return a removed entry without what does not matter any more: only an absence keeps its
    reason, and an expired fact its end.
    """
    entry = removal.entry
    return entry._replace(
        goal=None,
        role=MATCH,
        provenance=entry.provenance if is_absence(entry) else None,
        contradicted=False,
        confidence=None,
        metadata={},
        valid_from=None,
        valid_until=entry.valid_until if removal.reason == EXPIRED else None,
    )


def _lines(label: str, entries: Sequence[Entry], draft: Draft, scoped: bool) -> Iterator[str]:
    for entry in entries:
        draft.add(entry._replace(goal=None, role=MATCH))
    if not entries:
        return
    lines = draft.text(scoped=scoped).split("\n")
    if isinstance(draft, NaturalDraft):
        yield from (f"{label}: {line}" for line in lines)
    elif label in (NEW, CHANGED):
        yield from (f"% {label}", *lines)
    else:  # a line that begins with % is the heading of a scope
        yield from (line if line.startswith("%") else f"% {label}: {line}" for line in lines)
