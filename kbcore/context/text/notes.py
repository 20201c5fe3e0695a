"""Notes about entries in the text of a window, such as validity and confidence, and headings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

from kbcore.context.window import OTHER, QUERY, SUMMARY_SUFFIX, VIOLATION
from kbplanner.syntax.printer import print_constant
from kbtypes.windows import MATCH, Entry, GoalNote

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_YEAR_1, _YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
"""The epoch milliseconds that have a date in the usual form."""

INSTRUCTION = "instruction"
"""Predicate of standing instructions: `instruction(who, text)`."""

INSTRUCTIONS = "instructions"
"""The group of standing instructions."""

CONTRADICTED = "contradicted: the opposite is known too"
"""The note at an entry whose opposite is stored or derivable."""

LOW_CONFIDENCE = 0.8
"""Confidences below it are noted."""

TITLES = {OTHER: "Other facts", VIOLATION: "Violated constraints"}
MATCHES = "Facts that match the query"
"""Headings of the groups of facts that no goal selected."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

TimeText = Callable[[int], str]
"""The text of a time in epoch milliseconds."""


def day_text(at: int, *, minute: bool = False) -> str:
    """Return the day of an instant (epoch milliseconds) in UTC, `13 Jun 2023`; with `minute` also
    the time, `13 Jun 2023 14:05`.
    """
    if not _YEAR_1 <= at <= _YEAR_9999:
        return _without_date(at)
    when = _EPOCH + timedelta(milliseconds=at)
    clock = f" {when:%H:%M}" if minute else ""
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}{clock}"


def iso_day_text(at: int, *, minute: bool = False) -> str:
    """Return the day of an instant (epoch milliseconds) in UTC, `2026-11-21`; with `minute` also
    the time, `2026-11-21T12:30Z`.
    """
    if not _YEAR_1 <= at <= _YEAR_9999:
        return _without_date(at)
    when = _EPOCH + timedelta(milliseconds=at)
    if minute:
        return when.isoformat(timespec="minutes").removesuffix("+00:00") + "Z"
    return when.date().isoformat()


def _without_date(at: int) -> str:
    return f"epoch millisecond {at}"


def is_low(confidence: float | None) -> bool:
    """Return whether a confidence, as it is written, is below LOW_CONFIDENCE."""
    return confidence is not None and round(confidence, 3) < LOW_CONFIDENCE


def notes_of(entry: Entry, time_text: TimeText, *, dated: bool = False) -> Iterator[str]:
    """Yield the notes about a fact.

    A conclusion has no `since`: the facts that it depends on have it. Neither has a fact that is
    `dated`, what was said and events: it has its day, and that of its storing would pass for it.
    """
    if (
        not dated
        and entry.provenance is None
        and entry.valid_from is not None
        and entry.created_at
        and entry.valid_from != entry.created_at
    ):
        yield f"since {time_text(entry.valid_from)}"
    if entry.valid_until is not None:
        yield f"until {time_text(entry.valid_until)}"
    if is_low(entry.confidence):
        yield f"confidence {entry.confidence:.3g}"
    if entry.contradicted:
        yield CONTRADICTED


def summarized(entry: Entry) -> tuple[str, int] | None:
    """Return the predicate and the number of the facts that an entry summarizes; None if it is no
    summary.
    """
    sources = entry.metadata.get("sources")
    if entry.metadata.get("consolidated") is not True or not isinstance(sources, int):
        return None
    return entry.predicate.removesuffix(SUMMARY_SUFFIX), sources


def group_of(entry: Entry) -> str:
    """Return the group of an entry: the text of its goal after `goal `, INSTRUCTIONS, or its
    role.
    """
    if entry.goal is not None:
        return f"goal {entry.goal}"
    is_standing = entry.predicate == INSTRUCTION and len(entry.args) == 2 and not entry.negated
    return INSTRUCTIONS if is_standing and entry.role == MATCH else entry.role


def note_group(note: GoalNote) -> str:
    """Return the group that a note stands in: that of its goal, or of the matches of the query."""
    return MATCH if note.goal == QUERY else f"goal {note.goal}"


def goal_of(group: str) -> str | None:
    """Return the goal that the facts of a group were selected for, if any."""
    return group.removeprefix("goal ") if group.startswith("goal ") else None


def title_of(group: str, goal_driven: bool) -> str:
    """Return the heading of a group without a goal, empty for one that needs none."""
    if group == INSTRUCTIONS:
        return "Standing instructions" if goal_driven else ""
    return TITLES.get(group, MATCHES if goal_driven else "")


def rank_of(group: object) -> int:
    """Return the place of the group of an entry in a text: standing instructions, what goals ask
    for, what matches, then the others.
    """
    if group == INSTRUCTIONS:
        return 0
    return 3 if group in TITLES else 2 if group == MATCH else 1


def scope_heading(entry: Entry) -> str:
    """Return the line that names the scope of an entry."""
    return "% Base\n" if entry.scope is None else f"% Scope {print_constant(entry.scope)}\n"
