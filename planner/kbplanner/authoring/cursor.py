"""The cursor in a text: what is being typed there, for completion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kbplanner.ir.inputs import INPUT
from kbplanner.syntax.scanner import OPERAND_END, Token, scan_statement

_WORD = re.compile(r"\?\w*$|[^\W\d_][\w:-]*$|\d+$|$")


@dataclass(frozen=True, slots=True)
class TextCursor:
    """Context of a cursor.

    `word` is the beginning of the word before the cursor. `argument` is the predicate and the index
    of the argument that the cursor is in. `variables` are those of the statement so far, with their
    question marks. `takes_atom` is True where an atom may begin, `takes_rule` where the name of a
    rule does, behind `because @`, `takes_declaration` where the word of a declaration does, behind
    `@`, and `takes_type` where the type of an argument of an input does. `option` is the name of
    the option of a statement whose value is typed, "" where a name is typed, and None elsewhere.
    """

    word: str
    argument: tuple[str, int] | None
    variables: tuple[str, ...]
    takes_atom: bool
    takes_rule: bool = False
    takes_declaration: bool = False
    takes_type: bool = False
    option: str | None = None


def cursor_at(before: str) -> TextCursor:
    """Return the context of a cursor behind a text."""
    match = _WORD.search(before)
    word = match.group() if match else ""
    tokens = _last_statement(before[: len(before) - len(word)])
    option = _option(tokens)
    argument = None if option is not None else _argument(tokens)
    last = tokens[-1].type if tokens else "_END"
    takes_rule = last == "_AT" and len(tokens) > 1 and tokens[-2].value == "because"
    takes_atom = argument is None and option is None and last not in OPERAND_END and last != "_AT"
    variables = dict.fromkeys(token.value for token in tokens if token.type == "VAR")
    takes_declaration = last == "_AT" and len(tokens) == 1
    is_input = len(tokens) > 1 and tokens[0].type == "_AT" and tokens[1].value == INPUT
    name, colon, beginning = word.rpartition(":")
    takes_type = is_input and argument is not None and (last == "_COLON" or bool(name))
    if takes_type and colon:
        word = beginning
    return TextCursor(
        word,
        argument,
        tuple(variables),
        takes_atom,
        takes_rule,
        takes_declaration,
        takes_type,
        option,
    )


def _last_statement(text: str) -> list[Token]:
    """Return the tokens of the statement that the end of a text is in."""
    tokens: list[Token] = []
    position = 0
    while True:
        following, position = scan_statement(text, position)
        if not following:
            return [] if tokens and tokens[-1].type == "_END" else tokens
        tokens = following


def _option(tokens: Sequence[Token]) -> str | None:
    """Return the option of a statement whose value the end of the tokens is in, "" for its name."""
    depth, start = 0, None
    for at, token in enumerate(tokens):
        depth += (token.type == "_LPAR") - (token.type == "_RPAR")
        if token.type == "_LSQB" and depth == 0:
            start = at + 1
        elif token.type == "_RSQB":
            start = None
    if start is None:
        return None
    keys = [at for at, token in enumerate(tokens) if at >= start and token.type == "EQ"]
    if tokens[-1].type in ("EQ", "_LPAR") or (tokens[-1].type == "_COMMA" and depth > 0):
        return tokens[keys[-1] - 1].value if keys else None
    return "" if tokens[-1].type in ("_LSQB", "_COMMA") else None


def _argument(tokens: Sequence[Token]) -> tuple[str, int] | None:
    """Return the predicate and the index of the argument that the end of the tokens is in."""
    atoms: list[tuple[str, int] | None] = []
    for at, token in enumerate(tokens):
        if token.type == "_LPAR":
            before = tokens[at - 1] if at else None
            is_atom = before is not None and before.type in ("IDENT", "STRING")
            name = before.value.strip("\"'") if before is not None else ""
            atoms.append((name, 0) if is_atom else None)
        elif token.type == "_RPAR" and atoms:
            atoms.pop()
        elif token.type == "_COMMA" and atoms and atoms[-1] is not None:
            name, index = atoms[-1]
            atoms[-1] = (name, index + 1)
    return atoms[-1] if atoms else None
