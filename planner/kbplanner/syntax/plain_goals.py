"""Fast path for goals and patterns that are one plain atom on one line, such as `parent(ann, ?x)`.

Most goals are of this form. One pattern recognises them in a few microseconds; the grammar takes
ten times as long and reads everything else, with the same result.
"""

from __future__ import annotations

import re

from kbplanner.ir.limits import Limits
from kbplanner.ir.operators import needs_quotes
from kbplanner.ir.terms import ANONYMOUS, Atom, HeadTerm, Variable
from kbplanner.ir.values.words import NUMBER
from kbplanner.ir.values.words import PLAIN_WORD as WORD

_STRING = r'"[^"\\\n\x00\ud800-\udfff]*"' + r"|'[^'\\\n\x00\ud800-\udfff]*'"
_TERM = rf"(?:{WORD}|\?[A-Za-z_][A-Za-z0-9_]*(?!\w)|_(?!\w)|-?{NUMBER}(?!\w)|{_STRING})"
_GOAL = re.compile(rf"[ ]*(({WORD})\([ ]*({_TERM}(?:[ ]*,[ ]*{_TERM})*)[ ]*\)(?:[ ]*\.)?)[ ]*")
_TERMS = re.compile(_TERM)


def plain_goal(text: str, limits: Limits) -> tuple[Atom, int, int] | None:
    """Return the atom of a text, with the offsets of its start and end, the dot included.

    None if the text is not a plain atom or exceeds a limit.
    """
    match = _GOAL.fullmatch(text)
    if match is None:
        return None
    whole, predicate, inside = match.groups()
    terms = _TERMS.findall(inside)
    if (
        needs_quotes(predicate, len(terms))
        or len(predicate) > limits.predicate_chars
        or len(terms) > limits.args
        or len(inside) * 4 > limits.arg_bytes
    ):
        return None
    start = match.start(1)
    return Atom(predicate, tuple(map(_term, terms))), start, start + len(whole)


def _term(source: str) -> HeadTerm:
    first = source[0]
    if first == "?":
        return Variable(source[1:]) if source != "?_" else ANONYMOUS
    if first == "_":
        return ANONYMOUS
    return source[1:-1] if first in "\"'" else source
