"""The characters of words as Python knows them: run as a program, it prints the tables of words.py
and words.c.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable


def is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Mc")


def is_first(char: str) -> bool:
    return char.isalnum() and not char.isdecimal()


def is_inner(char: str) -> bool:
    return char.isalnum() or char == "_" or is_mark(char)


def ranges(test: Callable[[str], bool], first: int = 128) -> list[tuple[int, int]]:
    """First and last of the ranges of the characters from `first` on that have a property."""
    found: list[tuple[int, int]] = []
    for point in range(first, 0x110000):
        if test(chr(point)):
            if found and found[-1][1] == point - 1:
                found[-1] = (found[-1][0], point)
            else:
                found.append((point, point))
    return found


def c_table(test: Callable[[str], bool]) -> str:
    """The initialiser of a table in C."""
    lines = [""]
    for low, high in ranges(test):
        item = f"{{0x{low:X},0x{high:X}}},"
        if len(lines[-1]) + len(item) > 120:
            lines.append("")
        lines[-1] += item
    return "\n".join("    " + line for line in lines)


def python_class(pairs: list[tuple[int, int]]) -> str:
    """Ranges as the inside of a character class, in lines of string literals."""
    items = [
        _escape(low) if low == high else f"{_escape(low)}-{_escape(high)}" for low, high in pairs
    ]
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) > 90:
            lines.append("")
        lines[-1] += item
    return "\n".join(f'    r"{line}"' for line in lines)


def _escape(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


if __name__ == "__main__":
    marks = ranges(is_mark)
    print(python_class([pair for pair in marks if pair[0] < 0x10000]))
    print(python_class([pair for pair in marks if pair[0] >= 0x10000]))
    print(c_table(is_first), c_table(is_inner), sep="\n\n")
