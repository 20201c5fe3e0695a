"""Findings: the errors and warnings of a checked text, with their codes and positions."""

from __future__ import annotations

from kbplanner.check.codes import BY_NAME
from kbplanner.pacing import YieldNow, go_on, let_go, lines_of, sorted_in_parts
from kbplanner.syntax.diagnostics import Diagnostic
from kbplanner.syntax.statements import TextSpan
from kbtypes.results import Finding


class Findings:
    """Collector of the findings about one text."""

    def __init__(self, text: str, yield_now: YieldNow = go_on) -> None:
        self._lines = lines_of(text, yield_now)
        self._findings: dict[tuple[int, int, str, str], Finding] = {}

    def add(self, name: str, span: TextSpan, message: str, hint: str | None = None) -> None:
        """Add a finding by the name of its code; a span of several lines is cut to its first."""
        end_column = span.end_column
        if span.end_line != span.line:
            end_column = len(self._line(span.line).rstrip()) + 1
        self._add(name, (span.line, span.column, end_column), message, hint)

    def add_error(self, error: Diagnostic) -> None:
        """Add an error that the parser reports."""
        position = (error.line, error.column, error.end_column)
        self._add(error.code, position, error.message, error.hint)

    def remove(self, finding: Finding) -> None:
        """Remove a finding."""
        del self._findings[finding.line, finding.column, finding.name, finding.message]

    def let_go(self, yield_now: YieldNow) -> None:
        """Forget the findings and the text in pieces; what `in_order` returned stays."""
        let_go(self._findings, yield_now)
        let_go(self._lines, yield_now)

    def in_order(self, yield_now: YieldNow = go_on) -> list[Finding]:
        """Return the findings by position."""
        return sorted_in_parts(
            self._findings.values(), yield_now, lambda each: (each.line, each.column, each.code)
        )

    def _add(
        self, name: str, position: tuple[int, int, int], message: str, hint: str | None
    ) -> None:
        line, column, end_column = position
        code = BY_NAME[name]
        key = (line, column, name, message)
        self._findings.setdefault(
            key,
            Finding(
                line,
                column,
                max(end_column, column + 1),
                code.code,
                name,
                code.severity,
                message,
                hint,
            ),
        )

    def _line(self, number: int) -> str:
        return self._lines[number - 1] if number <= len(self._lines) else ""
