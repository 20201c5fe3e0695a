"""A context window as text for a prompt: sentences a model reads well, short, and always the same for the same window.

A line for each subject (the first argument), in the order in which the window names it; then the contradictions that
nobody has resolved, then the rules. Whatever came from outside is a word, a number or quoted, so that no argument can
pass for a sentence of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

from kbcore.context.diff import WindowDiff
from kbcore.context.phrases import premise, rule_phrase, sentence, verb_phrase
from kbcore.context.window import Contradiction, Entry, Window
from kbplanner.printer import print_constant
from kbplanner.terms import Atom

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST = 253_402_300_799_999
"""The last millisecond of the year 9999, behind which dates have no usual form."""


def render(window: Window) -> str:
    """Give a window as natural text: facts with validity, confidence and derivation, open contradictions, rules.

    Empty for an empty window. The text ends without a line break.
    """
    lines = _subjects(window.entries)
    lines += [f"Contradiction, unresolved: {_both(found)}." for found in _open(window)]
    lines += [f"Rule: {rule_phrase(rule)}." for rule in window.rules]
    return "\n".join(lines)


def render_changes(changes: WindowDiff) -> str:
    """Give what came into a window and what went, as natural text; empty where nothing did."""
    lines = [f"New: {line}" for line in _subjects(changes.added)]
    return "\n".join([*lines, *(f"No longer: {line}" for line in _subjects(changes.removed))])


def moment_text(at: int) -> str:
    """An instant (epoch milliseconds) as short as it can be told exactly: `2026-11-21`, `2026-11-21T12:30Z`."""
    if not -62_135_596_800_000 <= at <= _LAST:
        return f"epoch millisecond {at}"
    when = _EPOCH + timedelta(milliseconds=at)
    if at % 86_400_000 == 0:
        return when.date().isoformat()
    spec = "minutes" if at % 60_000 == 0 else "seconds" if at % 1000 == 0 else "milliseconds"
    return when.isoformat(timespec=spec).removesuffix("+00:00") + "Z"


def _subjects(entries: Sequence[Entry]) -> list[str]:
    """A line for each subject, in the order in which they are named first."""
    scoped = len({entry.scope for entry in entries}) > 1
    groups: dict[tuple[str | None, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.scope, entry.args[0] if entry.args else ""), []).append(entry)
    return [_line(some, scoped) for some in groups.values()]


def _line(entries: list[Entry], scoped: bool) -> str:
    """What is known of one subject; it is named once, unless a clause has to be a sentence by itself."""
    clauses: list[str] = []
    named = False
    for entry in entries:
        phrase = verb_phrase(entry.predicate, entry.args, not entry.negated)
        if phrase is None:
            clause = sentence(Atom(entry.predicate, entry.args, not entry.negated))
        else:
            clause = phrase if named else f"{print_constant(entry.args[0])} {phrase}"
            named = True
        clauses.append(clause + "".join(_notes(entry)))
    scope = entries[0].scope
    where = "" if not scoped else "In base: " if scope is None else f"In {print_constant(scope)}: "
    return f"{where}{'; '.join(clauses)}."


def _notes(entry: Entry) -> Iterator[str]:
    notes = []
    if entry.valid_from is not None and entry.created_at and entry.valid_from != entry.created_at:
        notes.append(f"since {moment_text(entry.valid_from)}")
    if entry.valid_until is not None:
        notes.append(f"until {moment_text(entry.valid_until)}")
    if entry.confidence is not None:
        notes.append(f"confidence {entry.confidence:.3g}")
    if entry.contradicted:
        notes.append("contradicted: the opposite is known too")
    if notes:
        yield f" ({', '.join(notes)})"
    if entry.provenance is not None and entry.provenance.premises:
        yield f" because {' and '.join(map(premise, entry.provenance.premises))}"


def _open(window: Window) -> list[Contradiction]:
    """The contradictions of which both sides may still be believed."""
    if not window.resolved:
        return list(window.contradictions)
    signs: dict[tuple[str, tuple[str, ...], str | None], set[bool]] = {}
    for entry in window.entries:
        signs.setdefault((entry.predicate, entry.args, entry.scope), set()).add(entry.negated)
    both = {key[:2] for key, found in signs.items() if len(found) == 2}
    return [found for found in window.contradictions if (found.predicate, found.args) in both]


def _both(found: Contradiction) -> str:
    return f"both that {sentence(Atom(found.predicate, found.args))} and the opposite"
