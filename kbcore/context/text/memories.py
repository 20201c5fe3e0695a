"""Facts with a day of their own in their arguments: texts that were said, and events."""

from __future__ import annotations

import re
from typing import NamedTuple

from kbcore.context.text.notes import day_text
from kbplanner.ir.terms import Atom
from kbplanner.ir.values.instants import instant
from kbplanner.syntax.printer import print_constant

SAID = "said"
"""Predicate of a text that is kept word by word: `said(speaker, text, when)`."""

HAPPENED = "happened"
"""Predicate of an event of memory.kb: `happened(id, who, what, day)`."""

MAX_QUOTATION_CHARS = 300
"""Maximum length of a footnote; the sources of the answer have the whole text."""

_NAME = re.compile(r"[\w.'@+-]+(?: [\w.'@+-]+)*")
"""A speaker that needs no quotes before the colon."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Memory(NamedTuple):
    """A text that `speaker` said at `at`, or what happened, in epoch milliseconds."""

    speaker: str
    text: str
    at: int


def memory_of(atom: Atom) -> Memory | None:
    """Return the text that a fact says was said; None for other facts."""
    if atom.predicate != SAID or atom.arity != 3:
        return None
    return _dated(atom, 0)


def event_of(atom: Atom) -> Memory | None:
    """Return the event that a fact is about; None for other facts."""
    if atom.predicate != HAPPENED or atom.arity != 4:
        return None
    return _dated(atom, 1)


def _dated(atom: Atom, first: int) -> Memory | None:
    speaker, text, when = atom.args[first : first + 3]
    if not isinstance(speaker, str) or not isinstance(text, str) or not isinstance(when, str):
        return None
    value = instant(when)
    if value is None:
        return None
    seconds, nanoseconds = value.moment
    return Memory(speaker, text, seconds * 1000 + nanoseconds // 1_000_000)


def memory_text(memory: Memory, *, minute: bool = False) -> str:
    """Return what was said on one line, `13 Jun 2023, Gina: I opened my studio.`, on its day or
    minute.
    """
    day = day_text(memory.at, minute=minute)
    return f"{day}, {speaker_text(memory.speaker)}: {on_one_line(memory.text)}"


def quotation(memory: Memory, *, minute: bool = False) -> str:
    """Return what was said as a footnote: on one line, and the beginning of a long text."""
    text = memory_text(memory, minute=minute)
    if len(text) <= MAX_QUOTATION_CHARS:
        return text
    return text[:MAX_QUOTATION_CHARS].rsplit(" ", 1)[0] + " …"


def on_one_line(text: str) -> str:
    """Return a text without line breaks and control characters, so that it cannot pass for further
    lines.
    """
    return " ".join(_CONTROL.sub(" ", text).split())


def speaker_text(speaker: str) -> str:
    """Return a speaker as it stands before a colon: a name as it is, anything else in quotes."""
    return speaker if _NAME.fullmatch(speaker) else print_constant(speaker)
