"""Queries of a plan, and what the knowledge base found for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kbcore.state.facts import Row
from kbplanner.ir.terms import Atom, BodyItem, Literal, Variable
from kbplanner.syntax.printer import print_item, print_row

MOST_ROWS = 100
"""Facts that are gathered for one question."""

ROWS_OF_QUERY = 50
"""Answers of one query that are gathered."""


@dataclass(slots=True)
class Query:
    """Literals and comparisons that have to hold together; `asked` are the goals really put, as text."""

    body: tuple[BodyItem, ...]
    asked: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The query in the rule language."""
        return ", ".join(print_item(item) for item in self.body)


@dataclass(slots=True)
class Evidence:
    """Facts found, stored or derived, in the order they were found, without repetition."""

    _rows: dict[tuple[str, str | None], Row] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """The facts."""
        return list(self._rows.values())

    def add(self, row: Row) -> None:
        """Take a fact in, if there is room."""
        if len(self._rows) < MOST_ROWS:
            self._rows.setdefault((print_row(row["predicate"], row["args"], row["negated"]), row["scope"]), row)


Infer = Callable[[Atom, int], "list[Row]"]
"""At most so many answers of an atom."""

Bindings = Callable[["tuple[BodyItem, ...]", "list[Variable]", int], "list[tuple[str, ...]]"]
"""The values of variables for which a body holds, at most so many."""


def gather(query: Query, infer: Infer, bindings: Bindings, evidence: Evidence) -> None:
    """Put a query and take in what it finds.

    Of one literal the answers; where there are none, or it asks for one fact, also those of its denial. Of several the
    facts that hold together. What is merely absent is no evidence. Raises InvalidInput and BudgetExceeded.
    """
    first = query.body[0]
    if len(query.body) == 1 and isinstance(first, Literal):
        atom = first.atom
        found = _asked(query, atom, infer)
        if not found or atom.ground:
            found += _asked(query, Atom(atom.predicate, atom.args, not atom.positive), infer)
    else:
        found = _together(query, infer, bindings)
    for row in found:
        evidence.add(row)


def _asked(query: Query, atom: Atom, infer: Infer) -> list[Row]:
    query.asked.append(print_item(Literal(atom)))
    return infer(atom, ROWS_OF_QUERY)


def _together(query: Query, infer: Infer, bindings: Bindings) -> list[Row]:
    query.asked.append(query.text)
    variables = list(dict.fromkeys(v for item in query.body for v in item.variables() if not v.anonymous))
    positive = [item.atom for item in query.body if isinstance(item, Literal) and not item.negated]
    found: list[Row] = []
    for values in bindings(query.body, variables, ROWS_OF_QUERY):
        known = dict(zip(variables, values, strict=True))
        for atom in positive:
            args = tuple(known.get(arg, arg) if isinstance(arg, Variable) else arg for arg in atom.args)
            found += infer(Atom(atom.predicate, args, atom.positive), 1)
        if len(found) >= MOST_ROWS:
            break
    return found
