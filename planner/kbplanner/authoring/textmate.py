"""Grammar for TextMate, which Visual Studio Code and other editors colour texts with.

Made from the tokens of the scanner and the kinds of `highlighting`. It reads line by line and
without a parser, so that it knows no mistakes; those come from the language server.
"""

from __future__ import annotations

from typing import Any

from kbplanner.authoring.highlighting import TextKind
from kbplanner.ir.inputs import TYPES
from kbplanner.ir.operators import EXTREMA
from kbplanner.ir.values.words import NUMBER
from kbplanner.ir.values.words import PLAIN_WORD as WORD
from kbplanner.syntax.reader import STRICT

SCOPE = "source.kb"

_TEXT = r"\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'"

_Pattern = dict[str, Any]


def grammar() -> dict[str, Any]:
    """Return the grammar, as the JSON of a `.tmLanguage.json` file has it."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "kbcore",
        "scopeName": SCOPE,
        "fileTypes": ["kb"],
        "patterns": [*_common(), _annotations(), *_words()],
    }


def _common() -> list[_Pattern]:
    return [
        _one(TextKind.COMMENT, r"(?:%|#|//).*$"),
        {"name": _scope(TextKind.COMMENT), "begin": r"/\*", "end": r"\*/"},
        _several(
            rf"(\btest|\bfixture)(\s+)({_TEXT})", TextKind.KEYWORD, TextKind.SPACE, TextKind.STRING
        ),
        _one(TextKind.KEYWORD, r"\b(?:with|at|from)(?=\s+[\"'])"),
        _several(
            rf"(?<=[\"'])(\s+)(as)(\s+)({WORD}|{_TEXT})(?=\s*\.)",
            TextKind.SPACE,
            TextKind.KEYWORD,
            TextKind.SPACE,
            TextKind.PREDICATE,
        ),
        _several(
            rf"(\bbecause)(\s*)(@)({WORD}|{_TEXT})",
            TextKind.KEYWORD,
            TextKind.SPACE,
            TextKind.PUNCTUATION,
            TextKind.RULE_NAME,
        ),
        _several(rf"(@)({WORD}|{_TEXT})(?=\s*:(?!-))", TextKind.PUNCTUATION, TextKind.RULE_NAME),
        _several(rf"(@)({WORD})(?=\s+{WORD})", TextKind.PUNCTUATION, TextKind.KEYWORD),
        _several(rf"(@)({STRICT})(?=\s*\.)", TextKind.PUNCTUATION, TextKind.KEYWORD),
        _several(
            rf"(:)(\s*)({'|'.join(TYPES)})(?=\s*[,)])",
            TextKind.PUNCTUATION,
            TextKind.SPACE,
            TextKind.KEYWORD,
        ),
        _one(TextKind.PREDICATE, rf"(?:{_TEXT})(?=\s*\()"),
        _one(TextKind.STRING, _TEXT),
        _one(TextKind.VARIABLE, r"\?[A-Za-z_][A-Za-z0-9_]*(?!\w)"),
        _one(TextKind.DEFINITION, r"\?-|:-"),
    ]


def _annotations() -> _Pattern:
    """Return the pattern of annotations, and of the lists of expected answers."""
    key = _one(TextKind.KEY, rf"{WORD}(?=\s*=)")
    mark = {"0": {"name": _scope(TextKind.PUNCTUATION)}}
    return {
        "begin": r"\[",
        "end": r"\]",
        "beginCaptures": mark,
        "endCaptures": mark,
        "patterns": [*_common(), key, *_words()],
    }


def _words() -> list[_Pattern]:
    operand = rf"(?:{WORD}|[?\"'(~_]|-?[0-9])"
    return [
        _one(TextKind.KEYWORD, rf"\bnot(?=\s+{operand})"),
        _one(TextKind.KEYWORD, rf"\b(?:{'|'.join(EXTREMA)})(?=\s+\?)"),
        _one(TextKind.KEYWORD, rf"(?<=[\w)\]\"'])\s+(?:div|mod)(?=\s+{operand})"),
        _one(TextKind.PREDICATE, rf"{WORD}(?=\s*\()"),
        _one(TextKind.NAME, WORD),
        _one(TextKind.NUMBER, rf"{NUMBER}(?!\w)"),
        _one(TextKind.VARIABLE, r"_(?!\w)"),
        _one(TextKind.OPERATOR, r"!==|!=|==|<=|>=|[<>=~+*/-]"),
        _one(TextKind.PUNCTUATION, r"[(){}\[\],.@:]"),
    ]


def _scope(kind: TextKind) -> str:
    return f"{kind.value}.kb"


def _one(kind: TextKind, pattern: str) -> _Pattern:
    return {"name": _scope(kind), "match": pattern}


def _several(pattern: str, *kinds: TextKind) -> _Pattern:
    """Return a pattern whose groups are of several kinds."""
    captures = {
        str(number): {"name": _scope(kind)}
        for number, kind in enumerate(kinds, 1)
        if kind is not TextKind.SPACE
    }
    return {"match": pattern, "captures": captures}
