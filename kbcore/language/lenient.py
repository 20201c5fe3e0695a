"""Predicate syntax as models write it: `likes(Ann Lee, green tea)`, with or without a full stop.

A scanner that goes over a line once and never back, beside the strict parser of the rule language: arguments may be bare
text of several words, and a mistake is no error but a line that says nothing.
"""

from __future__ import annotations

import re

from kbplanner.ir.terms import Atom
from kbplanner.syntax.scanner import WORD

# No two runs of blanks stand side by side in these: how a run is shared out between two is tried in every way there is.
_HEAD = re.compile(rf"(?:[-*•]\s\s*)?(?:(~|not\s)\s*)?({WORD}|'[^'\\\n]*'|\"[^\"\\\n]*\")\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\["\\nt])*)"|' + r"'((?:[^'\\]|\\['\\nt])*)'")
_BARE = re.compile(r"[^,()\"'\[\]{}?]+")
_SPACE = re.compile(r"\s*")
_END = re.compile(r"\s*(?:\.\s*)?(?:(?:%|#|//).*)?")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t"}


def read_line(line: str) -> Atom | None:
    """The ground atom a line consists of; None where it is anything else.

    `not` and `~` before it deny it; a full stop, a comment and a bullet around it are passed over. Time is linear in
    the length of the line.
    """
    line = line.strip()
    head = _HEAD.match(line)
    if head is None:
        return None
    args: list[str] = []
    at = _SPACE.match(line, head.end()).end()  # type: ignore[union-attr]
    if line[at : at + 1] == ")":
        at += 1
    else:
        while True:
            found = _argument(line, at)
            if found is None:
                return None
            arg, at = found
            args.append(arg)
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
    """The argument from a place on, and the place of what ends it."""
    at = _SPACE.match(line, at).end()  # type: ignore[union-attr]
    quoted = _STRING.match(line, at)
    if quoted is not None:
        inside = quoted[1] if quoted[1] is not None else quoted[2]
        text = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), inside)
        return text, _SPACE.match(line, quoted.end()).end()  # type: ignore[union-attr]
    bare = _BARE.match(line, at)
    if bare is None or not (text := bare[0].strip()) or text == "_":
        return None
    return text, bare.end()
