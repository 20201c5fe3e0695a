"""Kinds of text for colours: what each piece of a text in the rule language is.

The one table for every editor: the Pygments lexer, the shell, and the TextMate grammar are made
from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from kbplanner.ir.inputs import TYPES
from kbplanner.ir.operators import EXTREMA
from kbplanner.syntax.reader import STRICT
from kbplanner.syntax.scanner import (
    Token,
    block_header_size,
    file_fixture_size,
    scan_statement,
)


class TextKind(Enum):
    """Kind of a piece of text; the values are scopes of TextMate grammars."""

    SPACE = ""
    COMMENT = "comment"
    PREDICATE = "entity.name.function"
    RULE_NAME = "entity.name.label"
    KEY = "variable.parameter"
    VARIABLE = "variable.other"
    NAME = "constant.other"
    NUMBER = "constant.numeric"
    STRING = "string.quoted"
    KEYWORD = "keyword.control"
    OPERATOR = "keyword.operator"
    DEFINITION = "keyword.other"
    PUNCTUATION = "punctuation"
    MISTAKE = "invalid.illegal"


KIND_OF_TOKEN: dict[str, TextKind] = {
    "IDENT": TextKind.NAME,
    "VAR": TextKind.VARIABLE,
    "ANON": TextKind.VARIABLE,
    "STRING": TextKind.STRING,
    "NUMBER": TextKind.NUMBER,
    "NOT": TextKind.KEYWORD,
    "DIV": TextKind.KEYWORD,
    "MOD": TextKind.KEYWORD,
    "_GOAL": TextKind.DEFINITION,
    "_ARROW": TextKind.DEFINITION,
    "CMP": TextKind.OPERATOR,
    "EQ": TextKind.OPERATOR,
    "NEG": TextKind.OPERATOR,
    "PLUS": TextKind.OPERATOR,
    "MINUS": TextKind.OPERATOR,
    "STAR": TextKind.OPERATOR,
    "SLASH": TextKind.OPERATOR,
    "_LPAR": TextKind.PUNCTUATION,
    "_RPAR": TextKind.PUNCTUATION,
    "_LSQB": TextKind.PUNCTUATION,
    "_RSQB": TextKind.PUNCTUATION,
    "_COMMA": TextKind.PUNCTUATION,
    "_AT": TextKind.PUNCTUATION,
    "_COLON": TextKind.PUNCTUATION,
    "_END": TextKind.PUNCTUATION,
}
"""Kind of each token of the scanner; the others are mistakes."""

_GAP = re.compile(r"\s+|(?:%|#|//)[^\n]*|/\*.*?\*/|.+?(?=\s|\Z)", re.DOTALL)


def kinds_of(text: str) -> Iterator[tuple[int, int, TextKind]]:
    """Yield the pieces of a text in order as (start, end, kind); together they are the whole text.

    Any text will do: what is no token of the language is a mistake.
    """
    position = 0
    while True:
        tokens, end = scan_statement(text, position)
        if not tokens:
            break
        for token, kind in zip(tokens, _kinds(tokens), strict=True):
            yield from _gap(text, position, token.start)
            yield token.start, token.end, kind
            position = token.end
        if position == end == len(text):
            return
        if end > position:  # the rest of a line after a string that does not end
            yield from _gap(text, position, end)
            position = end
    yield from _gap(text, position, len(text))


def _gap(text: str, start: int, end: int) -> Iterator[tuple[int, int, TextKind]]:
    """Yield the white space and the comments between two tokens."""
    while start < end:
        match = _GAP.match(text, start, end)
        if match is None:
            raise AssertionError(f"no piece at {start}")
        piece = match.group()
        if piece.isspace():
            kind = TextKind.SPACE
        elif piece.startswith(("%", "#", "//", "/*")):
            kind = TextKind.COMMENT
        else:
            kind = TextKind.MISTAKE
        yield start, match.end(), kind
        start = match.end()


def _kinds(tokens: list[Token]) -> list[TextKind]:
    """Return the kind of each token of a statement, in view of its neighbours."""
    kinds = [KIND_OF_TOKEN.get(token.type, TextKind.MISTAKE) for token in tokens]
    last = len(tokens) - 1
    depth = 0
    for at, token in enumerate(tokens):
        following = tokens[at + 1].type if at < last else ""
        previous = tokens[at - 1].type if at else ""
        depth += (token.type == "_LSQB") - (token.type == "_RSQB")
        kinds[at] = _kind_in_place(token, previous, following, depth > 0) or kinds[at]
        if size := block_header_size(tokens[at:]):
            _mark_header(tokens, kinds, at, size)
        if size := file_fixture_size(tokens, at):
            _mark_header(tokens, kinds, at, min(size, 5))
            if size > 5:
                kinds[at + 5] = TextKind.PREDICATE
    return kinds


def _kind_in_place(
    token: Token, previous: str, following: str, is_in_list: bool
) -> TextKind | None:
    """Return the kind that a token has between its neighbours, None for the kind of its type."""
    if token.type in ("IDENT", "STRING"):
        if following == "_LPAR":
            return TextKind.PREDICATE
        if previous == "_AT":
            is_word = following == "IDENT" or (token.value == STRICT and following == "_END")
            return TextKind.KEYWORD if is_word else TextKind.RULE_NAME
    if token.value in TYPES and previous == "_COLON" and following in ("_COMMA", "_RPAR"):
        return TextKind.KEYWORD
    if token.type == "IDENT" and is_in_list and following == "EQ":
        return TextKind.KEY
    if token.type == "IDENT" and _is_keyword(token.value, following):
        return TextKind.KEYWORD
    if token.value in ("{", "}"):
        return TextKind.PUNCTUATION
    return None


def _is_keyword(word: str, following: str) -> bool:
    """Return True if a word is a keyword before a token of this kind."""
    if word == "because":
        return following == "_AT"
    return word in EXTREMA and following in ("VAR", "ANON")


def _mark_header(tokens: list[Token], kinds: list[TextKind], at: int, size: int) -> None:
    """Mark the words of the header of a test block as keywords."""
    for index in range(at, at + size):
        if tokens[index].type == "IDENT":
            kinds[index] = TextKind.KEYWORD
