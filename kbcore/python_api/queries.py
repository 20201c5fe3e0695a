"""Queries of answer sets: goals of one atom, goals of several items, patterns of stored facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from kbcore.columns.build import variable_columns
from kbcore.columns.symbol_answers import SymbolAnswers
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.answers import LazyQuery, RowTuples, Tuples, current_rows
from kbcore.reason.options import AnswerOptions, FactOptions
from kbcore.state.facts import Row
from kbplanner.ir.terms import Atom, BodyItem, Literal, Variable


class AtomQuery(LazyQuery):
    """A goal of one literal."""

    __slots__ = ("_literal", "_options")

    def __init__(self, kb: TenantKB, literal: Literal, options: AnswerOptions) -> None:
        super().__init__(kb, options.scope)
        self._literal = literal
        self._options = options

    @property
    def atom(self) -> Atom:
        """The atom of the literal."""
        return self._literal.atom

    def body(self) -> Sequence[BodyItem]:
        """Return the literal."""
        return (self._literal,)

    def columns(self) -> dict[str, int]:
        """Return the named variables with their index in an answer."""
        return variable_columns(self._literal.atom)

    def rows(self, answers: Tuples) -> list[Row]:
        """Return the answers with the details of now, or those they were read with."""
        if isinstance(answers, RowTuples):
            return answers.rows
        rows = self._kb.infer(self._literal, self._options)
        return current_rows(cast(SymbolAnswers, answers), self._literal.atom, rows)


class BodyQuery(LazyQuery):
    """A goal of several items; its answers are the values of its variables."""

    __slots__ = ("_body", "_variables")

    def __init__(
        self,
        kb: TenantKB,
        body: Sequence[BodyItem],
        variables: Sequence[Variable],
        scope: str | None,
    ) -> None:
        super().__init__(kb, scope)
        self._body = body
        self._variables = variables

    def body(self) -> Sequence[BodyItem]:
        """Return the items."""
        return self._body

    def columns(self) -> dict[str, int]:
        """Return the named variables with their index in an answer."""
        return {variable.name: index for index, variable in enumerate(self._variables)}

    def rows(self, answers: Tuples) -> list[Row]:
        """Return the values of the variables by name; an answer has no other details."""
        names = list(self.columns())
        return [dict(zip(names, answer, strict=True)) for answer in answers.converted(None)]


class StoredQuery(LazyQuery):
    """A pattern of stored facts of one sign."""

    __slots__ = ("_atom", "_options")

    def __init__(self, kb: TenantKB, atom: Atom, options: FactOptions) -> None:
        super().__init__(kb, options.scope)
        self._atom = atom
        self._options = options

    def body(self) -> Sequence[BodyItem]:
        """Return the pattern as a literal."""
        return (Literal(self._atom),)

    def columns(self) -> dict[str, int]:
        """Return the named variables with their index in a fact."""
        return variable_columns(self._atom)

    def answers(self) -> SymbolAnswers:
        """Return the facts that match now."""
        return self._kb.stored_answers(self._atom, self._options)

    def rows(self, answers: Tuples) -> list[Row]:
        """Return the facts with the details of now."""
        rows = self._kb.query_page(self._atom, self._options, positive=self._atom.positive)
        return current_rows(cast(SymbolAnswers, answers), self._atom, rows)
