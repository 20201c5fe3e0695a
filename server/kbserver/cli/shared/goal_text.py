"""Goals and statements as typed, read with the scanner alone.

The server parses them; the commands need only the variables of a goal, and where statements end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kbplanner.syntax.scanner import Token, scan_statement

EVERY_SCOPE = "*"
"""The scope of reads that stands for every scope."""

_OPEN, _CLOSE = ("_LPAR", "_LSQB"), ("_RPAR", "_RSQB")


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: its text without `?-` and final dot, and its named variables in order.

    `positions` are the arguments that the variables stand in, if the goal is one atom; None if it
    has several literals. `arity` is the number of arguments of one atom. `before` is what was typed
    before the text, such as `?-`.
    """

    text: str
    before: str
    variables: tuple[str, ...]
    positions: tuple[int, ...] | None
    arity: int = 0


def read_goal(typed: str) -> Goal:
    """Read a goal; a text that is no goal gives some goal, which the server refuses."""
    tokens, end = scan_statement(typed, 0)
    if not tokens or scan_statement(typed, end)[0]:
        return Goal(typed, "", (), ())
    first = 1 if tokens[0].type == "_GOAL" else 0
    last = -1 if tokens[-1].type == "_END" else None
    body = tokens[first:last]
    if not body:
        return Goal(typed, "", (), ())
    before, text = typed[: body[0].start], typed[body[0].start : body[-1].end]
    names = list(dict.fromkeys(token.value[1:] for token in body if token.type == "VAR"))
    if any(depth == 0 and token.type == "_COMMA" for depth, token in _depths(body)):
        return Goal(text, before, tuple(names), None)
    places, arity = _arguments(body)
    return Goal(text, before, tuple(places), tuple(places.values()), arity)


def _depths(tokens: Iterable[Token]) -> Iterator[tuple[int, Token]]:
    """Yield each token with the number of brackets around it."""
    depth = 0
    for token in tokens:
        if token.type in _CLOSE:
            depth -= 1
        yield depth, token
        if token.type in _OPEN:
            depth += 1


def _arguments(tokens: Iterable[Token]) -> tuple[dict[str, int], int]:
    """Return the first argument that each variable of an atom is, and the number of arguments."""
    places: dict[str, int] = {}
    argument = 0
    has_arguments = False
    for depth, token in _depths(tokens):
        has_arguments = has_arguments or depth > 0
        if depth == 1 and token.type == "_COMMA":
            argument += 1
        elif depth == 1 and token.type == "VAR":
            places.setdefault(token.value[1:], argument)
    return places, argument + has_arguments


def join_statements(statements: Iterable[str]) -> str:
    """Return statements as one text, one after the other; each may leave out its final dot."""
    return "\n".join(_closed(text) for text in statements)


def _closed(text: str) -> str:
    """Return a text with a dot after its last statement."""
    position, open_end = 0, None
    while position < len(text):
        tokens, position = scan_statement(text, position)
        open_end = tokens[-1].end if tokens and tokens[-1].type != "_END" else None
    return text if open_end is None else f"{text[:open_end]}.{text[open_end:]}"


def has_goal(text: str) -> bool:
    """Return True if any statement of a text is a goal, `?- ...`."""
    position = 0
    while position < len(text):
        tokens, position = scan_statement(text, position)
        if tokens and tokens[0].type == "_GOAL":
            return True
    return False
