"""Facts with a day of their own in their arguments: texts that were said, and events."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kbcore.context.text.notes import day_text
from kbcore.search.invisible import visible
from kbplanner.ir.terms import Atom, HeadTerm
from kbplanner.ir.values.instants import instant
from kbplanner.syntax.printer import print_constant

SAID = "said"
"""Predicate of a text that is kept word by word: `said(speaker, text, when)`."""

HAPPENED = "happened"
"""Predicate of an event of memory.kb: `happened(id, who, what, day)`."""

MAX_TIME_CHARS = 64
"""Longer texts are no times."""

MAX_QUOTATION_CHARS = 160
"""Maximum length of a footnote; the sources of the answer have the whole text."""

_NAME = re.compile(r"[\w.'@+-]+(?: [\w.'@+-]+)*")
"""A speaker that needs no quotes before the colon."""

_MARK = re.compile(r"[\[［【〔](\s*\d[\d\s,;–-]*)[\]］】〕]")
"""A text that reads like a citation, `[1]` or `[1, 2]`."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class SaidText(NamedTuple):
    """A text that `speaker` said at `at`, in epoch milliseconds."""

    speaker: str
    text: str
    at: int


class Dated(NamedTuple):
    """The arguments of a text that was said, or of an event, that a label shows."""

    who: HeadTerm
    what: HeadTerm
    when: HeadTerm


def memory_of(atom: Atom) -> SaidText | None:
    """Return the text that a fact says was said; None for other facts."""
    if atom.predicate != SAID or atom.arity != 3:
        return None
    speaker, text, when = atom.args
    at = time_of(when)
    is_ground = isinstance(speaker, str) and isinstance(text, str)
    return SaidText(str(speaker), str(text), at) if is_ground and at is not None else None


def dated_of(atom: Atom) -> Dated | None:
    """Return the arguments that an atom about a text or an event shows: an event without its id.

    The result is None for other atoms, and where the day is not a time.
    """
    if (atom.predicate, atom.arity) not in ((SAID, 3), (HAPPENED, 4)):
        return None
    dated = Dated(*atom.args[-3:])
    if isinstance(dated.when, str) and time_of(dated.when) is None:
        return None
    return dated


def time_of(term: HeadTerm) -> int | None:
    """Return the time that a constant names, in epoch milliseconds; None if it names none."""
    if not isinstance(term, str):
        return None
    return _milliseconds(term) if len(term) <= MAX_TIME_CHARS else None


@lru_cache(maxsize=4096)
def _milliseconds(text: str) -> int | None:
    value = instant(text)
    if value is None:
        return None
    seconds, nanoseconds = value.moment
    return seconds * 1000 + nanoseconds // 1_000_000


def memory_text(memory: SaidText, *, minute: bool = False) -> str:
    """Return what was said on one line, `13 Jun 2023, Gina: I opened my studio.`, on its day or
    minute.
    """
    day = day_text(memory.at, minute=minute)
    return f"{day}, {speaker_text(memory.speaker)}: {on_one_line(memory.text)}"


def quotation(memory: SaidText, *, minute: bool = False) -> str:
    """Return what was said as a footnote: on one line, and the beginning of a long text."""
    text = without_marks(memory_text(memory, minute=minute))
    if len(text) <= MAX_QUOTATION_CHARS:
        return text
    return text[:MAX_QUOTATION_CHARS].rsplit(" ", 1)[0] + " …"


def without_marks(text: str) -> str:
    """Return a text with round brackets around numbers, so that nothing in it passes for the number
    of a source.
    """
    return _MARK.sub(r"(\1)", text)


def on_one_line(text: str) -> str:
    """Return a text without line breaks, control characters and invisible ones, so that it cannot
    pass for further lines and hides nothing.
    """
    return " ".join(_CONTROL.sub(" ", visible(text)).split())


def speaker_text(speaker: str) -> str:
    """Return a speaker as it stands before a colon: a name as it is, anything else in quotes."""
    return speaker if _NAME.fullmatch(speaker) else print_constant(speaker)
