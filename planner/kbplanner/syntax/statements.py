"""Statements: the units of a text in the rule language, each with its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbplanner.errors import InvalidInput
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


@dataclass(frozen=True, slots=True)
class Annotations:
    """Annotations of a fact in `[...]`; None where absent.

    Durations and instants are as written: milliseconds as `int`, anything else as text, to be
    parsed like those of the interface. `metadata` is a JSON object, written as a
    quoted text.
    """

    confidence: float | None = None
    ttl: int | str | None = None
    scope: str | None = None
    valid_from: int | str | None = None
    valid_until: int | str | None = None
    metadata: Mapping[str, Any] | None = None


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
