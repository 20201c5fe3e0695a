"""Lenient reader of predicate syntax as models write it: `likes(Ann Lee, green tea)`.

Unlike the strict parser of the rule language, this scanner accepts unquoted arguments of several
words, and a line with a mistake is ignored instead of raising an error. It reads each line once,
without backtracking.
"""

from __future__ import annotations

import re

from kbplanner.ir.terms import Atom
from kbplanner.ir.values.words import WORD
from kbplanner.pacing import YieldNow, go_on

# These patterns never have two runs of blanks in sequence: that would cause quadratic backtracking.
_HEAD = re.compile(rf"(?:[-*•]\s\s*)?(?:(~|not\s)\s*)?({WORD}|'[^'\\\n]*'|\"[^\"\\\n]*\")\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\["\\nt])*)"|' + r"'((?:[^'\\]|\\['\\nt])*)'")
_BARE = re.compile(r"[^,()\"'\[\]{}?]+")
_SPACE = re.compile(r"\s*")
_END = re.compile(r"\s*(?:\.\s*)?(?:(?:%|#|//).*)?")
_ESCAPE = re.compile(r"\\(.)")
MAX_HEAD_CHARS = 4096
"""Characters of a line in which the name of its predicate must end."""

ARGS_PER_YIELD = 500
"""Arguments read between two calls of `yield_now`: about a millisecond."""

_ESCAPED = {"n": "\n", "t": "\t"}


def read_line(line: str, yield_now: YieldNow = go_on) -> Atom | None:
    """Return the ground atom that a line consists of, or None for any other line.

    `not` or `~` before the atom negates it; a full stop, a comment and a bullet are ignored. Time
    is linear in the length of the line. `yield_now` is called about once a millisecond.
    """
    line = line.strip()
    head = _HEAD.match(line, 0, MAX_HEAD_CHARS)
    if head is None:
        return None
    args: list[str] = []
    at = _SPACE.match(line, head.end()).end()  # type: ignore[union-attr]
    if line[at : at + 1] == ")":
        at += 1
    else:
        while True:
            argument = _argument(line, at)
            if argument is None:
                return None
            arg, at = argument
            args.append(arg)
            if not len(args) % ARGS_PER_YIELD:
                yield_now()
            stop = line[at : at + 1]
            at += 1
            if stop == ")":
                break
            if stop != ",":
                return None
    if _END.fullmatch(line, at) is None:
        return None
    name = head[2]
    return Atom(name[1:-1] if name[0] in "\"'" else name, tuple(args), positive=head[1] is None)


def _argument(line: str, at: int) -> tuple[str, int] | None:
    """Return the argument that starts at an index, and the index of the character after it."""
    at = _SPACE.match(line, at).end()  # type: ignore[union-attr]
    quoted = _STRING.match(line, at)
    if quoted is not None:
        inside = quoted[1] if quoted[1] is not None else quoted[2]
        text = _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), inside)
        return text, _SPACE.match(line, quoted.end()).end()  # type: ignore[union-attr]
    bare = _BARE.match(line, at)
    if bare is None or not (text := bare[0].strip()) or text == "_":
        return None
    return text, bare.end()
