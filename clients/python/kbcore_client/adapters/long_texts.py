"""Texts as arguments of facts: quoted, and in parts where they are longer than an argument may be.

A fact whose text is in parts has an empty text, which no JSON has.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_BYTES = 65_536
"""Bytes of an argument in UTF-8."""

PART_CHARS = MAX_BYTES // 4
"""Characters of a part: each has at most four bytes in UTF-8."""


def is_long(text: str) -> bool:
    """Return True if a text is longer than an argument of a fact may be."""
    return len(text) > PART_CHARS and len(text.encode()) > MAX_BYTES


def parts_of(text: str) -> list[str]:
    """Return the parts of a text, in order; none if it is no longer than an argument may be."""
    if not is_long(text):
        return []
    return [text[start : start + PART_CHARS] for start in range(0, len(text), PART_CHARS)]


def joined(parts: Iterable[tuple[str, str]]) -> str:
    """Return the text of parts, each with its number, which may be in any order."""
    return "".join(text for _, text in sorted((int(number), text) for number, text in parts))


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """Return a text as a constant of the rule language."""
    parts = (
        _ESCAPES.get(char) or (char if char >= " " else f"\\u{ord(char):04x}") for char in text
    )
    return f'"{"".join(parts)}"'
