"""Scanner: text to tokens, one statement at a time, in one pass without backtracking.

The scanner never fails: text that is not a token of the language becomes a token of a kind that no
grammar rule accepts, so that the parser stops there and the message can suggest a correction.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container

from kbplanner.ir.values.words import NUMBER, WORD
from kbplanner.pacing import YieldNow, go_on

_TOKEN = re.compile(
    rf"""
      (?P<SPACE>\s+)
    | (?P<COMMENT>(?:%|\#|//)[^\n]*)
    | (?P<BLOCK>/\*)
    | (?P<IDENT>{WORD})
    | (?P<VAR>\?[A-Za-z_][A-Za-z0-9_]*(?!\w))
    | (?P<_LPAR>\() | (?P<_RPAR>\)) | (?P<_COMMA>,)
    | (?P<STRING>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    | (?P<NUMBER>{NUMBER}(?!\w))
    | (?P<ANON>_(?!\w))
    | (?P<BADWORD>\w+(?:(?:-+|:+)\w+)*)
    | (?P<_GOAL>\?-) | (?P<_ARROW>:-)
    | (?P<BADOP>:=|=>|=<|<>|->|\\\+|\\=|&&?|\|\|?|;|[∧∨→←⇒⇐¬])
    | (?P<CMP>!==|!=|==|<=|>=|<|>) | (?P<EQ>=)
    | (?P<_END>\.)
    | (?P<NEG>~) | (?P<PLUS>\+) | (?P<MINUS>-) | (?P<STAR>\*) | (?P<SLASH>/)
    | (?P<_LSQB>\[) | (?P<_RSQB>\]) | (?P<_AT>@) | (?P<_COLON>:)
    | (?P<BADVAR>\?\w+)
    | (?P<QMARK>\?)
    | (?P<SMART>[“”„‟«»‘’‚‛])
    | (?P<OPENQUOTE>["'])
    | (?P<BADCHAR>.)
    """,
    re.VERBOSE | re.DOTALL,
)

TOKENS_PER_YIELD = 200
"""Tokens read between two calls of `yield_now`: about a millisecond."""

MAX_STATEMENT_CHARS = 64 * 1024
"""Maximum size of a statement, in which a word, a number and a quoted text count as one character
each: their own sizes are limited as those of arguments and predicates are."""

MAX_WORD_CHARS = 64 * 1024 + 1
"""Number of characters at which a word or a number is over every limit."""

MAX_QUOTED_CHARS = 6 * 64 * 1024 + 3
"""Number of characters at which a quoted text is over every limit, also if it has `\\u0041` for
each character.
"""

TOO_LONG = "TOOLONG"
"""Kind of the token in place of what is over the limit of a statement; the text is not read
further."""

_ONE_CHAR = frozenset({"IDENT", "STRING", "NUMBER", "BADWORD"})
"""Kinds of tokens that count as one character of a statement."""

OPERAND_END = frozenset({"IDENT", "VAR", "ANON", "STRING", "NUMBER", "_RPAR", "_RSQB"})
"""Kinds of tokens that may end a term, an atom or annotations."""

OPERAND_START = frozenset({"IDENT", "VAR", "ANON", "STRING", "NUMBER", "_LPAR", "NEG", "NOT"})
"""Kinds of tokens that may start a term or an atom."""


class Token:
    """A token: its kind (`type`, a terminal of the grammar), its text and its position."""

    __slots__ = ("end", "start", "type", "value")

    def __init__(self, kind: str, value: str, start: int, end: int) -> None:
        self.type = kind
        self.value = value
        self.start = start
        self.end = end

    def __repr__(self) -> str:
        return f"Token({self.type}, {self.value!r})"


def scan_statement(
    text: str, pos: int, yield_now: YieldNow = go_on, most: int = 0
) -> tuple[list[Token], int]:
    """Read the tokens of one statement from `pos` to its final dot (included), or to the end of the
    text, or (with `most`) at most this number of tokens.

    Returns the tokens and the position after them. At the end of the text the list lacks its
    `_END`; it is empty when nothing but white space and comments was left. A statement over
    MAX_STATEMENT_CHARS ends with a TOO_LONG token where the limit is reached, and the position is
    the end of the text. `yield_now` is called after every TOKENS_PER_YIELD tokens.
    """
    tokens: list[Token] = []
    match = _TOKEN.match
    size = len(text)
    chars_left = MAX_STATEMENT_CHARS
    until_rest = TOKENS_PER_YIELD
    while pos < size:
        until_rest -= 1
        if not until_rest:
            until_rest = TOKENS_PER_YIELD
            yield_now()
        longest = MAX_QUOTED_CHARS if text[pos] in "\"'" else MAX_WORD_CHARS
        token_match = match(text, pos, pos + longest)
        if token_match is None:  # cannot be: BADCHAR takes any character
            raise AssertionError(f"no token at {pos}")
        kind = token_match.lastgroup or "BADCHAR"
        end = token_match.end()
        if kind == "SPACE" or kind == "COMMENT" or kind == "BLOCK":
            if kind == "COMMENT":
                end = _line_end(text, pos)
            elif kind == "BLOCK":
                close = text.find("*/", end)
                if close < 0:
                    tokens.append(Token("OPENCOMMENT", "/*", pos, end))
                    return _mark_keywords(tokens), size
                end = close + 2
            if tokens:  # what is before the statement is no part of it
                chars_left -= end - pos
            pos = end
            if chars_left >= 0:
                continue
        chars_left -= 1 if kind in _ONE_CHAR else end - pos
        if chars_left < 0 or end - pos == longest:
            tokens.append(Token(TOO_LONG, "", pos, pos))
            return _mark_keywords(tokens), size
        if kind == "OPENQUOTE":
            # The string does not end on its line. Skip the line, but accept a dot at its end.
            line_end = _line_end(text, pos)
            if line_end - pos >= MAX_QUOTED_CHARS:
                tokens.append(Token(TOO_LONG, "", pos, pos))
                return _mark_keywords(tokens), size
            tokens.append(Token(kind, token_match.group(), pos, end))
            dot = pos + len(text[pos:line_end].rstrip()) - 1
            if text[dot] == ".":
                tokens.append(Token("_END", ".", dot, dot + 1))
                return _mark_keywords(tokens), line_end
            pos = line_end
            continue
        value = token_match.group()
        if kind == "VAR" and value == "?_":
            kind = "ANON"
        tokens.append(Token(kind, value, pos, end))
        pos = end
        if kind == "_END" or len(tokens) == most:
            return _mark_keywords(tokens), pos
    return _mark_keywords(tokens), size


def _line_end(text: str, pos: int) -> int:
    end = text.find("\n", pos)
    return len(text) if end < 0 else end


def _mark_keywords(tokens: list[Token]) -> list[Token]:
    """Decide which words are keywords in their context; elsewhere they stay words."""
    last = len(tokens) - 1
    for at, token in enumerate(tokens):
        if token.type != "IDENT" or token.value not in ("not", "div", "mod") or at == last:
            continue
        following = tokens[at + 1].type
        if token.value == "not":
            if following in OPERAND_START or following == "MINUS":
                token.type = "NOT"
        elif (
            at > 0
            and tokens[at - 1].type in OPERAND_END
            and (following in OPERAND_START or following == "MINUS")
        ):
            token.type = "DIV" if token.value == "div" else "MOD"
    return tokens


def block_header_size(tokens: list[Token], first: int = 0) -> int:
    """Return the number of tokens of the header of a test block at index `first`, its brace
    included.

    A header is `test "name" {` or `fixture "name" {`, with `at "instant"` and then `with "fixture",
    ...` before the brace where they are wanted. Return 0 if the tokens begin otherwise.
    """
    word = tokens[first] if len(tokens) - first >= 3 else None
    if word is None or word.type != "IDENT" or word.value not in ("test", "fixture"):
        return 0
    if tokens[first + 1].type != "STRING":
        return 0
    at = first + 2
    if tokens[at].type == "IDENT" and tokens[at].value == "at" and len(tokens) - at >= 3:
        at += 2
    if tokens[at].type == "IDENT" and tokens[at].value == "with":
        at += 1
        while at + 1 < len(tokens) and tokens[at].type == "STRING":
            at += 1
            if tokens[at].type != "_COMMA":
                break
            at += 1
    return at + 1 - first if at < len(tokens) and tokens[at].value == "{" else 0


def file_fixture_size(tokens: list[Token], first: int = 0) -> int:
    """Return the number of tokens of a fixture that is read from a file at index `first`.

    It is written as `fixture "name" from "file.csv" as predicate` and a dot; what is missing behind
    `from` is not counted. Return 0 if the tokens begin otherwise.
    """
    kinds = [token.type for token in tokens[first : first + 7]]
    words = [token.value for token in tokens[first : first + 7]]
    if kinds[:3] != ["IDENT", "STRING", "IDENT"] or (words[0], words[2]) != ("fixture", "from"):
        return 0
    size = 3 + (kinds[3:4] == ["STRING"])
    if kinds[size : size + 1] == ["IDENT"] and words[size] == "as":
        size += 1 + (kinds[size + 1 : size + 2] in (["IDENT"], ["STRING"]))
    return size + (kinds[size : size + 1] == ["_END"])


def scan_block(
    text: str, pos: int, yield_now: YieldNow = go_on
) -> tuple[list[list[Token]], Token | None, int]:
    """Read the statements of a test block from `pos`, behind its opening brace.

    Returns the tokens of each statement, the closing brace, and the position behind it. The brace
    is None if the text ends before it. A statement before the brace may lack its `_END`.
    `yield_now` as in `scan_statement`.
    """
    statements: list[list[Token]] = []
    while True:
        tokens, end = scan_statement(text, pos, yield_now)
        if not tokens:
            return statements, None, len(text)
        close = next((at for at, token in enumerate(tokens) if _closes(token)), None)
        if close is None:
            statements.append(tokens)
            pos = end
            continue
        if close:
            statements.append(tokens[:close])
        return statements, tokens[close], tokens[close].end


def _closes(token: Token) -> bool:
    return token.type == "BADCHAR" and token.value == "}"


def with_quotes(text: str, names: Container[str]) -> str:
    """Return a statement with these names in quotes where they stand before a bracket: there they
    are predicates, also if a builtin has the name.
    """
    tokens, _ = scan_statement(text, 0)
    parts: list[str] = []
    end = 0
    for token, after in itertools.pairwise(tokens):
        if token.type == "IDENT" and token.value in names and after.type == "_LPAR":
            parts += [text[end : token.start], f"'{token.value}'"]
            end = token.end
    return "".join((*parts, text[end:]))
