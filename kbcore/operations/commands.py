"""Command words in scripts: `ASSERT`, `INFER`, `QUERY` and `RETRACT`, as published clients send
them.

    ASSERT parent(ann, bob);
    ASSERT FORALL ?x, ?y { child(?y, ?x) <- parent(?x, ?y) };
    FORALL ?x, ?y { child(?y, ?x) <- parent(?x, ?y) };
    INFER child(?who, ann);
    QUERY parent(ann, ?who);
    RETRACT parent(ann, bob);

A command ends with `;` or a full stop. A text with commands is rewritten to the rule language in
place, so that every character keeps its line and column and the parser reports errors where they
are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from kbplanner.errors import RuleSyntaxError
from kbplanner.ir.terms import Literal, Variable
from kbplanner.pacing import YieldNow, current_yield, go_on, lines_of, may_have, paced
from kbplanner.syntax.diagnostics import Diagnostic, diagnostic, syntax_error
from kbplanner.syntax.scanner import OPERAND_START, Token, scan_statement
from kbplanner.syntax.statements import GoalStatement, TextSpan

ASSERT, INFER, QUERY, RETRACT = "ASSERT", "INFER", "QUERY", "RETRACT"

_WORDS = frozenset((ASSERT, INFER, QUERY, RETRACT))
_FORALL = "FORALL"
_ANY_WORD = re.compile(r"\b(?:ASSERT|INFER|QUERY|RETRACT|FORALL)\b")
_AFTER_WORD = OPERAND_START - {"_LPAR"}
"""Tokens that may follow a command word; `ASSERT(a)` is an atom of a predicate with that name."""

_FORALL_HINT = "write FORALL ?x, ?y { head <- body };"


@dataclass
class Translation:
    """A text in the rule language, and the command word of each query at a line and column.

    `source` is the text with the commands.
    """

    source: str
    text: str
    words: dict[tuple[int, int], str] = field(default_factory=dict)

    def command(self, goal: GoalStatement) -> str:
        """Return the command word of a query; INFER without one.

        Raises RuleSyntaxError if the command does not accept the query.
        """
        word = self.words.get((goal.span.line, goal.span.column), INFER)
        item = goal.body[0]
        if word != INFER and (len(goal.body) > 1 or not isinstance(item, Literal)):
            raise self._refused(goal, f"{word} takes one atom")
        if word == QUERY and isinstance(item, Literal) and item.negated:
            raise self._refused(goal, "QUERY takes an atom without `not`; INFER takes both")
        if (
            word == RETRACT
            and isinstance(item, Literal)
            and any(isinstance(arg, Variable) for arg in item.atom.args)
        ):
            raise self._refused(
                goal,
                "a variable names no single fact",
                "POST /retract/pattern removes all that match",
            )
        return word

    def original(self, error: RuleSyntaxError) -> RuleSyntaxError:
        """Return an error in the translated text with the lines of the original text."""
        errors = (error.details or {})["errors"]
        return syntax_error(
            [
                self._diagnostic(
                    TextSpan(each["line"], each["column"], each["line"], each["endColumn"]),
                    each["code"],
                    each["message"],
                    each["hint"],
                )
                for each in errors
            ]
        )

    def _refused(
        self, goal: GoalStatement, message: str, hint: str | None = None
    ) -> RuleSyntaxError:
        return syntax_error([self._diagnostic(goal.span, "wrong-command", message, hint)])

    def _diagnostic(self, span: TextSpan, code: str, message: str, hint: str | None) -> Diagnostic:
        return diagnostic(span, self._lines[span.line - 1].rstrip(), code, message, hint)

    @cached_property
    def _lines(self) -> list[str]:
        return lines_of(self.source, current_yield())


def translate(text: str, yield_now: YieldNow = go_on) -> Translation:
    """Return a text with commands in the rule language; raises RuleSyntaxError.

    A text without commands is returned as it is. `yield_now` is called about once a millisecond.
    """
    if not may_have(text, _ANY_WORD, len(RETRACT), yield_now):
        return Translation(text, text)
    translator = _Translator(text)
    for statement in _statements(text, yield_now):
        if _is_command(statement):
            translator.add(statement)
    if translator.errors:
        raise syntax_error(translator.errors)
    return Translation(text, "".join(translator.chars), translator.words)


def _statements(text: str, yield_now: YieldNow) -> Iterator[list[Token]]:
    """Yield the tokens of each statement; that of a command may also end with a semicolon."""
    statement: list[Token] = []
    position = 0
    while position < len(text):
        yield_now()
        tokens, position = scan_statement(text, position, yield_now)
        for token in paced(tokens, yield_now):
            statement.append(token)
            if token.type == "_END" or (token.value == ";" and _is_command(statement)):
                yield statement
                statement = []
    if statement:
        yield statement


def _is_command(statement: list[Token]) -> bool:
    if len(statement) < 2 or statement[0].type != "IDENT":
        return False
    if statement[0].value == _FORALL:
        return statement[1].type == "VAR"
    return statement[0].value in _WORDS and statement[1].type in _AFTER_WORD


class _Translator:
    """Translator of commands; `chars` is the text so far, `errors` what is wrong with commands."""

    def __init__(self, text: str) -> None:
        self.chars = list(text)
        self.words: dict[tuple[int, int], str] = {}
        self.errors: list[Diagnostic] = []
        self._text = text
        self._counted = self._line_start = 0
        self._line = 1

    def add(self, statement: list[Token]) -> None:
        """Translate the command that the tokens of a statement form."""
        word, last = statement[0], statement[-1]
        line, column = self._place(word.start)
        if word.value == _FORALL:
            self._rule(statement)
        elif word.value == ASSERT:
            self._replace(word.start, word.end, "")
            if statement[1].value == _FORALL and statement[2:] and statement[2].type != "_LPAR":
                self._rule(statement[1:])
        else:
            self._replace(word.start, word.end, "?-")
            self.words[line, column] = word.value
        if last.value == ";":
            self.chars[last.start] = "."
        elif last.type != "_END":  # the last command of the text; a comment may follow it
            self.chars.append("\n.")

    def _rule(self, statement: list[Token]) -> None:
        """Translate `FORALL ?x { head <- body }`; the first token is `FORALL`."""
        opening = next((at for at, token in enumerate(statement) if token.value == "{"), None)
        inner = statement[1:opening]
        if opening is None or not inner:
            self._error(statement[1], "FORALL needs variables and a rule in braces")
            return
        for at, token in enumerate(inner):
            if token.type != ("_COMMA" if at % 2 else "VAR"):
                self._error(token, "expected variables, separated by commas, after FORALL")
                return
        if inner[-1].type != "VAR":
            self._error(statement[opening], 'expected a variable before "{"')
            return
        ends = statement[-1].type == "_END" or statement[-1].value == ";"
        closing = statement[-2 if ends else -1]
        if closing.value != "}":
            self._error(closing, 'expected "}" at the end of the rule')
            return
        self._replace(statement[0].start, statement[opening].end, "")
        self._replace(closing.start, closing.end, "")
        for sign, dash in pairwise(statement):
            if sign.value == "<" and dash.value == "-" and sign.end == dash.start:
                self._replace(sign.start, dash.end, ":-")
                return
        self._error(statement[opening], 'expected "<-" between the head and the body of the rule')

    def _replace(self, start: int, end: int, text: str) -> None:
        """Write a shorter text in place of a part, with spaces after it; line breaks stay."""
        for index in range(start, end):
            if self.chars[index] != "\n":
                self.chars[index] = " "
        self.chars[start : start + len(text)] = text

    def _error(self, token: Token, message: str) -> None:
        line, column = self._place(token.start)
        end = self._text.find("\n", self._line_start)
        source = self._text[self._line_start : len(self._text) if end < 0 else end].rstrip()
        span = TextSpan(line, column, line, column + token.end - token.start)
        self.errors.append(diagnostic(span, source, "wrong-command", message, _FORALL_HINT))

    def _place(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset that is not before the previous one's line."""
        lines = self._text.count("\n", self._counted, offset)
        if lines:
            self._line += lines
            self._line_start = self._text.rfind("\n", self._counted, offset) + 1
        self._counted = max(offset, self._counted)
        return self._line, offset - self._line_start + 1
