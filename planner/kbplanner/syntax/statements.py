"""Statements: the units of a text in the rule language, each with its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kbplanner.errors import InvalidInput
from kbplanner.ir.dimensions import WrittenLabel
from kbplanner.ir.phrases import Declaration
from kbplanner.ir.terms import Atom, BodyItem, Literal, Rule


class TextSpan(NamedTuple):
    """A stretch of text; lines and columns count from 1, columns in code points, the end is
    exclusive.
    """

    line: int
    column: int
    end_line: int
    end_column: int

    def moved(self, line: int, lines: int, columns: int) -> TextSpan:
        """Return the place of the stretch if its text begins some `lines` later, and the first
        line, which was `line`, some `columns`.
        """
        first, last = self.line == line, self.end_line == line
        return TextSpan(
            self.line + lines,
            self.column + columns * first,
            self.end_line + lines,
            self.end_column + columns * last,
        )


@dataclass(frozen=True, slots=True)
class Annotations:
    """Annotations of a fact in `[...]`; None where absent.

    Durations and instants are as written: milliseconds as `int`, anything else as text, to be
    parsed like those of the interface. `metadata` is a JSON object, written as a
    quoted text. `labels` are the options with other names, where the text may have labels.
    """

    confidence: float | None = None
    ttl: int | str | None = None
    scope: str | None = None
    valid_from: int | str | None = None
    valid_until: int | str | None = None
    metadata: Mapping[str, Any] | None = None
    labels: tuple[WrittenLabel, ...] = ()


NO_ANNOTATIONS = Annotations()


@dataclass(frozen=True, slots=True)
class FactStatement:
    """A ground signed atom to assert."""

    atom: Atom
    annotations: Annotations
    span: TextSpan


@dataclass(frozen=True, slots=True)
class RuleStatement:
    """A rule, and the positions of its variables and predicates; the head's predicate comes first.

    `text` is the statement as written, for messages about it. `items` are the positions of the
    body items.
    """

    rule: Rule
    span: TextSpan
    variables: tuple[tuple[str, TextSpan], ...] = ()
    predicates: tuple[tuple[str, int, TextSpan], ...] = ()
    text: str = ""
    items: tuple[TextSpan, ...] = ()

    def where(self, variable_name: str) -> TextSpan:
        """Return the first position of a variable (with or without question mark), else the whole
        statement.
        """
        bare_name = variable_name.removeprefix("?") or "_"
        for name, span in self.variables:
            if name == bare_name:
                return span
        return self.span

    def at(self, line: int, column: int) -> RuleStatement:
        """Return the statement as it is read where its text begins at another place."""
        first = self.span.line
        move = first, line - first, column - self.span.column
        return replace(
            self,
            span=self.span.moved(*move),
            variables=tuple((name, span.moved(*move)) for name, span in self.variables),
            predicates=tuple(
                (name, arity, span.moved(*move)) for name, arity, span in self.predicates
            ),
            items=tuple(span.moved(*move) for span in self.items),
        )


@dataclass(frozen=True, slots=True)
class GoalStatement:
    """A query: one or more body items to prove together, and the positions of its predicates and
    items.
    """

    body: tuple[BodyItem, ...]
    span: TextSpan
    predicates: tuple[tuple[str, int, TextSpan], ...] = ()
    items: tuple[TextSpan, ...] = ()

    @property
    def literal(self) -> Literal:
        """The literal, if the query is a single literal; raises InvalidInput otherwise."""
        if len(self.body) == 1 and isinstance(self.body[0], Literal):
            return self.body[0]
        raise InvalidInput("a goal here is a single atom; for more, write a rule and ask its head")


@dataclass(frozen=True, slots=True)
class DeclarationStatement:
    """A declaration of how facts of a predicate are worded, or of a predicate.

    Examples are `@phrase works_at/2 "{0} works at {1}".` and
    `@input works_at(person, company) "where a person works now".`
    """

    declaration: Declaration
    span: TextSpan


@dataclass(frozen=True, slots=True)
class ModuleName:
    """The name of a rule set, from `@module access.` at the head of a text."""

    name: str
    span: TextSpan


Statement = FactStatement | RuleStatement | GoalStatement | DeclarationStatement
