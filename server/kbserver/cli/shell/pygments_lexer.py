"""Lexer of the rule language for Pygments, registered as `kb`."""

from __future__ import annotations

from collections.abc import Iterator

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    _TokenType,
)

from kbplanner.authoring.highlighting import TextKind, kinds_of

TOKEN_TYPES: dict[TextKind, _TokenType] = {
    TextKind.SPACE: Text.Whitespace,
    TextKind.COMMENT: Comment,
    TextKind.PREDICATE: Name.Function,
    TextKind.RULE_NAME: Name.Label,
    TextKind.KEY: Name.Attribute,
    TextKind.VARIABLE: Name.Variable,
    TextKind.NAME: Name,
    TextKind.NUMBER: Number,
    TextKind.STRING: String,
    TextKind.KEYWORD: Keyword,
    TextKind.OPERATOR: Operator,
    TextKind.DEFINITION: Keyword.Declaration,
    TextKind.PUNCTUATION: Punctuation,
    TextKind.MISTAKE: Error,
}


class KbLexer(Lexer):
    """Facts, rules, goals and tests of kbcore."""

    name = "kbcore"
    aliases = ("kb", "kbcore")
    filenames = ("*.kb",)
    mimetypes = ("text/x-kbcore",)

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        """Yield (start, token type, text) for each piece of a text."""
        for start, end, kind in kinds_of(text):
            yield start, TOKEN_TYPES[kind], text[start:end]
