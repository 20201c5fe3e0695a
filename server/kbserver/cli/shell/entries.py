"""Entries of the shell: statements, which may span lines, and dot commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kbplanner.syntax.scanner import scan_statement


@dataclass(frozen=True, slots=True)
class EntryPiece:
    """Part of an entry: goals are answered one by one, statements between them stored together.

    The text has empty lines and spaces before its first statement, so that errors have their place
    in the entry.
    """

    text: str
    is_goal: bool


def is_command(text: str) -> bool:
    """Return True if an entry is a dot command, such as `.help`."""
    stripped = text.lstrip()
    return stripped.startswith(".") and not stripped.startswith(". ")


def is_complete(text: str) -> bool:
    """Return True if an entry needs no further line: a command, or statements that all end."""
    if is_command(text):
        return True
    position = 0
    while True:
        tokens, position = scan_statement(text, position)
        if not tokens:
            return True
        if tokens[-1].type != "_END":
            return False


def pieces_of(text: str) -> Iterator[EntryPiece]:
    """Yield the goals of an entry, and the statements between them."""
    start = position = 0
    while True:
        tokens, end = scan_statement(text, position)
        if not tokens:
            break
        if tokens[0].type == "_GOAL":
            if _has_statement(text[start:position]):
                yield EntryPiece(_placed(text, start, position), is_goal=False)
            yield EntryPiece(_placed(text, position, end), is_goal=True)
            start = end
        position = end
    if _has_statement(text[start:]):
        yield EntryPiece(_placed(text, start, len(text)), is_goal=False)


def _has_statement(text: str) -> bool:
    return bool(scan_statement(text, 0)[0])


def _placed(text: str, start: int, end: int) -> str:
    """Return a part of a text behind white space that keeps its line and column."""
    before = text[:start]
    return "\n" * before.count("\n") + " " * (start - before.rfind("\n") - 1) + text[start:end]
