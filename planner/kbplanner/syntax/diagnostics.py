"""Errors and warnings about a text, with positions and display text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbplanner.errors import RuleSyntaxError
from kbplanner.ir.limits import shortened
from kbplanner.syntax.statements import TextSpan

MAX_LINE_CHARS = 240
CHARS_BEFORE, CHARS_AFTER = 80, 120
MAX_ERRORS = 100
"""Maximum number of errors reported for a text."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error at `start:end` of a text, in code points from its beginning."""

    code: str
    message: str
    hint: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RuleWarning:
    """A suspicious property of an accepted rule; `span` is None for rules not from text."""

    code: str
    message: str
    hint: str | None = None
    span: TextSpan | None = None

    @property
    def text(self) -> str:
        """The message with its hint."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def display(self, source: str) -> str:
        """Return the warning as compilers print it: `file:line:col: warning: message (hint)`."""
        location = source if self.span is None else f"{source}:{self.span.line}:{self.span.column}"
        return f"{location}: warning: {self.text}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error with its position: `source` is its line, or the part of a very long line around it.

    `column` counts in the whole line; `shown_at` is the corresponding index in `source`.
    """

    line: int
    column: int
    end_column: int
    code: str
    message: str
    hint: str | None
    source: str
    shown_at: int

    def as_json(self) -> dict[str, Any]:
        """Return the element of `details.errors` for this error."""
        return {
            "line": self.line,
            "column": self.column,
            "endColumn": self.end_column,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "source": self.source,
        }

    def display(self) -> str:
        """Return the error as text: position, message, source line, carets under the token,
        hint.
        """
        parts = [f"line {self.line}, column {self.column}: {self.message}"]
        if self.source:
            gutter = f"  {self.line} | "
            pad = padding(self.source[: self.shown_at])
            marked = self.source[self.shown_at : self.shown_at + self.end_column - self.column]
            carets = "^" * max(1, width(marked))
            parts.append(gutter + printable(self.source))
            parts.append(" " * (len(gutter) - 2) + "| " + pad + carets)
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


def diagnostic(
    span: TextSpan, source: str, code: str, message: str, hint: str | None, first: int = 1
) -> Diagnostic:
    """Return the diagnostic of an error at `span` in its line `source`, whose first character is
    column `first`.

    A span of several lines is marked to the end of its first; a long line is cut to the relevant
    part.
    """
    at = max(0, span.column - first)
    if span.end_line == span.line:
        end_column = max(span.end_column, span.column + 1)
    else:
        end_column = max(span.column + 1, first + len(source))
    if len(source) > MAX_LINE_CHARS:
        begin, end = max(0, at - CHARS_BEFORE), at + CHARS_AFTER
        cut = "…" * (begin > 0) + source[begin:end] + "…" * (end < len(source))
        at = at - begin + (begin > 0)
        source = cut
    return Diagnostic(span.line, span.column, end_column, code, message, hint, source, at)


def syntax_error(diagnostics: Sequence[Diagnostic]) -> RuleSyntaxError:
    """Return one exception with all errors of a text, in the order of the text."""
    ordered = sorted(diagnostics, key=lambda diagnostic_: (diagnostic_.line, diagnostic_.column))
    text = "\n\n".join(diagnostic_.display() for diagnostic_ in ordered)
    return RuleSyntaxError(text, [diagnostic_.as_json() for diagnostic_ in ordered])


def excerpt(text: str, max_chars: int = 40) -> str:
    """Return a piece of source for a message: on one line, cut to a maximum length."""
    return shortened(" ".join(text.split()), max_chars)


def width(text: str) -> int:
    """Count the terminal cells of a text: East Asian wide characters take two, combining marks
    none.
    """
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def padding(text: str) -> str:
    """Return white space as wide as `text`; tabs stay tabs, so that it lines up for any tab
    width.
    """
    if text.isascii() and "\t" not in text:
        return " " * len(text)
    return "".join("\t" if char == "\t" else " " * _cells(char) for char in text)


BIDI_CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that change the order in which the text after them is shown."""

_UNSAFE = ("Cc", "Cs", "Zl", "Zp")
"""Categories of characters that can change a terminal's state, or end a line."""


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 fact` and `2 facts`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str) -> str:
    """Replace what could change a terminal's state or the order of a line: control characters other
    than the tab, line separators and bidirectional controls.
    """
    if text.isprintable():
        return text
    return "".join(
        "\ufffd"
        if (unicodedata.category(char) in _UNSAFE and char != "\t") or char in BIDI_CONTROLS
        else char
        for char in text
    )


def printable_lines(text: str) -> str:
    """Return a text of several lines with each made printable."""
    return "\n".join(map(printable, text.split("\n")))


def _cells(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 1
