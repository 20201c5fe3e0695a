"""Functions of texts: their bodies in Python, which agree with csrc/text/strings.c in the
engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kbplanner.ir.values.numbers import whole
from kbplanner.ir.values.pattern import captured, compile_pattern
from kbplanner.ir.values.similar import jaro_winkler, trigram
from kbplanner.ir.values.words import is_plain

SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""The characters with Unicode's property White_Space, which `trim` removes."""

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}

TextFunction = Callable[[Sequence[str]], str | None]
"""The body of a function: constants in, its value out, or None where it has none."""


def simple_lower(char: str) -> str:
    """Return the lower-case letter of Unicode's simple mapping; without one, the character
    itself.
    """
    lowered = char.lower()
    return lowered if len(lowered) == 1 else "i" if char == "\u0130" else char


def simple_upper(char: str) -> str:
    """Return the upper-case letter of Unicode's simple mapping; without one, the character
    itself.
    """
    for mapped in (char.upper(), char.title()):
        if len(mapped) == 1:
            return mapped
    return char


def quoted(constant: str) -> str:
    """Return a constant in the notation of the rule language.

    Words and numbers stay as they are, all others are in double quotes.
    """
    if is_plain(constant):
        return constant
    return f'"{"".join(map(_escaped, constant))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return char if " " <= char != "\x7f" else f"\\u{ord(char):04x}"


def natural(text: str) -> int | None:
    """Return the value of a text that is a whole number of at least 0; None for any other text."""
    value = whole(text)
    return value if value is not None and value >= 0 else None


def _substring(args: Sequence[str]) -> str | None:
    """Return the characters from a position on, counted from 0: all, or at most a number of
    them.
    """
    start = natural(args[1])
    count = natural(args[2]) if len(args) > 2 else len(args[0])
    return None if start is None or count is None else args[0][start : start + count]


def _replace(args: Sequence[str]) -> str | None:
    """Replace every occurrence of a part, from left to right; the empty text is no part."""
    text, part, new = args
    return text.replace(part, new) if part else None


def _capture(args: Sequence[str]) -> str | None:
    text, pattern, group = args
    return captured(compile_pattern(pattern, int(group)), text)


TEXT_FUNCTIONS: Mapping[str, TextFunction] = {
    "concat": "".join,
    "lower": lambda args: "".join(map(simple_lower, args[0])),
    "upper": lambda args: "".join(map(simple_upper, args[0])),
    "length": lambda args: str(len(args[0])),
    "quoted": lambda args: quoted(args[0]),
    "trim": lambda args: args[0].strip(SPACES),
    "substring": _substring,
    "replace": _replace,
    "join": lambda args: args[0].join(args[1:]),
    "capture": _capture,
    "jaro_winkler": lambda args: jaro_winkler(*args),
    "trigram": lambda args: trigram(*args),
}
"""The body of each function of texts."""
