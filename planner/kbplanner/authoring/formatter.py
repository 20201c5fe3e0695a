"""Formatter: the canonical layout of a text in the rule language.

Only white space changes: tokens stay as they are written, and comments stay beside the tokens that
they follow. The layout depends on the tokens and the comments alone, so that formatting a formatted
text changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kbplanner.authoring.blocks import checked_source
from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.syntax.diagnostics import width
from kbplanner.syntax.scanner import (
    OPERAND_END,
    Token,
    block_header_size,
    scan_block,
    scan_statement,
)

MAX_WIDTH = 100
"""Terminal cells of a line; a longer rule or goal has one body item on each line."""

INDENT = "    "
_GOAL_INDENT = "   "

_COMMENT = re.compile(r"(?:%|#|//)[^\n]*|/\*.*?\*/", re.DOTALL)

_CLOSERS = frozenset({"_COMMA", "_END", "_RPAR", "_RSQB", "_ARROW", "_LPAR", "_COLON"})
"""Tokens that stay on the line of the token before: a comment between the two moves behind both."""

_NO_SPACE_AFTER = frozenset({"_LPAR", "_LSQB", "NEG", "_AT"})
_NO_SPACE_BEFORE = frozenset({"_COMMA", "_RPAR", "_RSQB", "_END", "_COLON"})


@dataclass(frozen=True, slots=True)
class _Comment:
    """A comment; `own_line` if it begins a line, `blank_before` if an empty line precedes it."""

    text: str
    own_line: bool
    blank_before: bool = False

    @property
    def ends_line(self) -> bool:
        """Return True if no token can follow on the line."""
        return not self.text.startswith("/*")

    @property
    def fits_inline(self) -> bool:
        """Return True if the comment can stand between two tokens of a line."""
        return not (self.own_line or self.ends_line or "\n" in self.text)


@dataclass(frozen=True, slots=True)
class _Part:
    """A token of a statement, and the comments that follow it within the statement."""

    token: Token
    comments: tuple[_Comment, ...] = ()


@dataclass(frozen=True, slots=True)
class _Gap:
    """The white space and comments before a statement."""

    comments: tuple[_Comment, ...]
    blank_before: bool
    """True if an empty line precedes the statement."""
    same_line: bool
    """True if the statement begins on the line on which the text before ends."""


def format_text(text: str, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return a text of facts, rules, goals and declarations in the canonical layout.

    The result parses to the same statements. Line ends become line feeds. Raises RuleSyntaxError if
    the text does not parse.
    """
    checked_source(text, limits)
    body = text.removeprefix("\ufeff")
    page = _Page()
    position = 0
    while True:
        tokens, _ = scan_statement(body, position)
        start = tokens[0].start if tokens else len(body)
        gap = _gap(body, position, start)
        if not tokens:
            page.add_comments(gap.comments)
            return page.text()
        if header := block_header_size(tokens):
            position = _format_block(page, body, tokens[:header], gap)
        else:
            position = _format_statement(page, body, tokens, gap)


def _format_statement(page: _Page, text: str, tokens: list[Token], gap: _Gap) -> int:
    if tokens[-1].type != "_END":  # the last goal may lack its dot
        tokens.append(Token("_END", ".", tokens[-1].end, tokens[-1].end))
    parts, after = _parts(text, tokens)
    page.add_statement(parts, gap, after)
    return tokens[-1].end


def _format_block(page: _Page, text: str, header: list[Token], gap: _Gap) -> int:
    """Add a test block; comments inside its header move behind the brace."""
    statements, close, end = scan_block(text, header[-1].end)
    if close is None:
        raise AssertionError("a block of a text without errors has an end")
    line = "".join(
        ("" if not at or token.type == "_COMMA" else " ") + token.value
        for at, token in enumerate(header)
    )
    moved = tuple(_comments(text, header[0].end, header[-1].start))
    page.open_block(line, gap, moved)
    position = header[-1].end
    for tokens in statements:
        inner = _gap(text, position, tokens[0].start)
        position = _format_statement(page, text, tokens, inner)
    page.add_comments(_gap(text, position, close.start).comments)
    page.close_block()
    return end


class _Page:
    """The lines of the result."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._may_append_fact = False
        self._may_append_comment = False
        self._pending: tuple[_Comment, ...] = ()
        self._indent = ""
        self._is_block_start = False

    def text(self) -> str:
        """Return the result."""
        return "".join(f"{line}\n" for line in self._lines)

    def add_comments(self, comments: Sequence[_Comment]) -> None:
        """Add the comments after a statement, the first ones at its end if they follow it there."""
        for comment in _settled((*self._pending, *comments)):
            if not comment.own_line and self._may_append_comment:
                self._lines[-1] += "  " + comment.text
            else:
                self._add_blank(comment.blank_before)
                self._lines.append(self._indent + comment.text)
                self._may_append_comment = False
            self._may_append_fact = False
        self._pending = ()

    def add_statement(self, parts: Sequence[_Part], gap: _Gap, after: tuple[_Comment, ...]) -> None:
        """Add a statement; `after` are comments from before its dot."""
        self.add_comments(gap.comments)
        lines = _statement_lines(parts, self._indent)
        is_short_fact = len(lines) == 1 and _is_fact(parts)
        if (
            is_short_fact
            and gap.same_line
            and self._may_append_fact
            and width(self._lines[-1]) + 1 + width(lines[0].lstrip()) <= MAX_WIDTH
        ):
            self._lines[-1] += " " + lines[0].lstrip()
        else:
            self._add_blank(gap.blank_before)
            self._lines += lines
        self._may_append_fact = is_short_fact
        self._may_append_comment = True
        self._pending = after

    def open_block(self, header: str, gap: _Gap, moved: tuple[_Comment, ...]) -> None:
        """Begin a test block; `moved` are comments from inside its header."""
        self.add_comments(gap.comments)
        self._add_blank(gap.blank_before)
        self._lines.append(header)
        self._indent = INDENT
        self._is_block_start = self._may_append_comment = True
        self._may_append_fact = False
        self._pending = moved

    def close_block(self) -> None:
        """End a test block."""
        self._indent = ""
        self._lines.append("}")
        self._is_block_start = self._may_append_fact = False
        self._may_append_comment = True

    def _add_blank(self, is_separate: bool) -> None:
        if is_separate and self._lines and not self._is_block_start:
            self._lines.append("")
        self._is_block_start = False


# ---- reading ----


def _gap(text: str, start: int, end: int) -> _Gap:
    comments = tuple(_comments(text, start, end))
    last = max((match.end() for match in _COMMENT.finditer(text, start, end)), default=start)
    newlines = text.count("\n", last, end)
    return _Gap(comments, newlines > 1, not newlines and not comments)


def _comments(text: str, start: int, end: int) -> Iterator[_Comment]:
    """Yield the comments of a stretch without tokens."""
    position = start
    for match in _COMMENT.finditer(text, start, end):
        newlines = text.count("\n", position, match.start())
        lines = match.group().replace("\r\n", "\n").split("\n")
        comment = "\n".join(line.rstrip() for line in lines)
        yield _Comment(comment, newlines > 0 or position == 0, newlines > 1)
        position = match.end()


def _parts(text: str, tokens: Sequence[Token]) -> tuple[list[_Part], tuple[_Comment, ...]]:
    """Return the tokens with their comments, and the comments that moved behind the final dot."""
    parts = []
    moved: tuple[_Comment, ...] = ()
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        comments = moved
        if following is not None:
            comments += tuple(_comments(text, token.end, following.start))
            if following.type in _CLOSERS:
                moved, comments = comments, ()
            else:
                moved = ()
            parts.append(_Part(token, _settled(comments)))
        else:
            parts.append(_Part(token))
    return parts, moved


def _settled(comments: Iterable[_Comment]) -> tuple[_Comment, ...]:
    """Put each comment after one that ends its line on a line of its own."""
    settled: list[_Comment] = []
    for comment in comments:
        if settled and (settled[-1].own_line or settled[-1].ends_line):
            comment = replace(comment, own_line=True)
        settled.append(comment)
    return tuple(settled)


def _is_fact(parts: Sequence[_Part]) -> bool:
    types = [part.token.type for part in parts]
    return types[0] not in ("_GOAL", "_AT") and "_ARROW" not in types


# ---- layout ----


def _statement_lines(parts: Sequence[_Part], outer: str) -> list[str]:
    if all(comment.fits_inline for part in parts for comment in part.comments):
        line = outer + "".join(_one_line(parts))
        if width(line) <= MAX_WIDTH:
            return [line]
    return _broken_lines(parts, outer)


def _one_line(parts: Sequence[_Part]) -> Iterator[str]:
    for index, part in enumerate(parts):
        if index:
            yield " " if parts[index - 1].comments else _space(parts, index)
        yield part.token.value
        for comment in part.comments:
            yield " " + comment.text


def _broken_lines(parts: Sequence[_Part], outer: str) -> list[str]:
    """Lay out a statement with one body item on each line."""
    indent = outer + (_GOAL_INDENT if parts[0].token.type == "_GOAL" else INDENT)
    text = outer
    depth = 0
    breaks = False
    for index, part in enumerate(parts):
        kind = part.token.type
        begins_notes = kind == "_LSQB" and parts[index - 1].token.type != "EQ"
        if breaks or (begins_notes and depth == 0):
            text += "\n" + indent
        elif index:
            text += " " if parts[index - 1].comments else _space(parts, index)
        text += part.token.value
        depth += (kind in ("_LPAR", "_LSQB")) - (kind in ("_RPAR", "_RSQB"))
        breaks = depth == 0 and kind in ("_ARROW", "_COMMA")
        for comment in part.comments:
            if comment.own_line:
                text += "\n" + indent + comment.text
                breaks = True
            else:
                text += "  " + comment.text
            breaks = breaks or comment.ends_line or "\n" in comment.text
    return [line.rstrip() for line in text.split("\n")]


def _space(parts: Sequence[_Part], index: int) -> str:
    """Return the white space between a token and the one before it."""
    before, token = parts[index - 1].token, parts[index].token
    if token.type in _NO_SPACE_BEFORE or before.type in _NO_SPACE_AFTER:
        return ""
    if token.type == "_LPAR" and before.type in ("IDENT", "STRING"):
        return ""
    if before.type == "MINUS" and (
        index < 2 or parts[index - 2].token.type not in (*OPERAND_END, "STAR")
    ):
        return ""  # the sign of a number
    if "SLASH" in (before.type, token.type) and _is_declaration(parts):
        return ""
    if "EQ" in (before.type, token.type) and _in_annotations(parts, index):
        return ""
    return " "


def _is_declaration(parts: Sequence[_Part]) -> bool:
    """Return True for a declaration, such as `@disjoint likes/2, hates/2`, whose slashes divide
    nothing.
    """
    return parts[0].token.type == "_AT" and parts[2].token.type != "_COLON"


def _in_annotations(parts: Sequence[_Part], index: int) -> bool:
    for part in reversed(parts[:index]):
        if part.token.type in ("_LSQB", "_RSQB"):
            return part.token.type == "_LSQB"
    return False
