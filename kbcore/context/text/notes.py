"""Notes about entries in the text of a window, such as validity and confidence, and headings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from kbcore.context.window import OTHER, QUERY, VIOLATION
from kbplanner.syntax.printer import print_constant
from kbtypes.windows import MATCH, Entry, GoalNote

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_YEAR_1, _YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
"""The epoch milliseconds that have a date in the usual form."""

CONTRADICTED = "contradicted: the opposite is known too"
"""The note at an entry whose opposite is stored or derivable."""

DISPUTED = "contradicted"
"""The same note where the text lists both sides."""

TITLES = {OTHER: "Other facts", VIOLATION: "Violated constraints"}
MATCHES = "Facts that match the query"
"""Headings of the groups of facts that no goal selected."""


def moment_text(at: int) -> str:
    """Return an instant (epoch milliseconds) in the shortest form that is exact to a second:
    `2026-11-21`, `2026-11-21T12:30Z`.
    """
    if not _YEAR_1 <= at <= _YEAR_9999:
        return f"epoch millisecond {at}"
    when = _EPOCH + timedelta(milliseconds=at)
    if at % 86_400_000 == 0:
        return when.date().isoformat()
    spec = "minutes" if at % 60_000 < 1000 else "seconds"
    return when.isoformat(timespec=spec).removesuffix("+00:00") + "Z"


def notes_of(entry: Entry, contradicted: str = CONTRADICTED) -> Iterator[str]:
    """Yield the notes about a fact.

    A conclusion has no `since`: the facts that it depends on have it.
    """
    if (
        entry.provenance is None
        and entry.valid_from is not None
        and entry.created_at
        and entry.valid_from != entry.created_at
    ):
        yield f"since {moment_text(entry.valid_from)}"
    if entry.valid_until is not None:
        yield f"until {moment_text(entry.valid_until)}"
    if entry.confidence is not None:
        yield f"confidence {entry.confidence:.3g}"
    sources = entry.metadata.get("sources")
    if entry.metadata.get("consolidated") is True and isinstance(sources, int):
        subject = print_constant(entry.args[0]) if entry.args else ""
        name = print_constant(entry.predicate.removesuffix("_consolidated"))
        yield f"summary of {sources} facts {name}({subject}, ...)"
    if entry.contradicted:
        yield contradicted


def group_of(entry: Entry) -> str:
    """Return the group of an entry: the text of its goal after `goal `, or its role."""
    return entry.role if entry.goal is None else f"goal {entry.goal}"


def note_group(note: GoalNote) -> str:
    """Return the group that a note stands in: that of its goal, or of the matches of the query."""
    return MATCH if note.goal == QUERY else f"goal {note.goal}"


def title_of(group: str, goal_driven: bool, goal: str) -> str:
    """Return the heading of a group, empty for one that needs none; `goal` is written before
    goals.
    """
    if group.startswith("goal "):
        return f"{goal}{group.removeprefix('goal ')}"
    return TITLES.get(group, MATCHES if goal_driven else "")


def scope_heading(entry: Entry) -> str:
    """Return the line that names the scope of an entry."""
    return "% Base\n" if entry.scope is None else f"% Scope {print_constant(entry.scope)}\n"
