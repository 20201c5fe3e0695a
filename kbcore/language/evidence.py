"""Queries of a plan, and the facts that the knowledge base returns for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kbcore.state.facts import Row
from kbplanner.ir.terms import Atom, BodyItem, Literal, Variable
from kbplanner.syntax.printer import print_item, print_row

MAX_ROWS = 100
"""Maximum number of facts collected for one question."""

MAX_ROWS_PER_QUERY = 50
"""Maximum number of answers collected for one query."""


@dataclass(slots=True)
class EvidenceQuery:
    """A conjunction of literals and comparisons.

    `asked` are the goals that were evaluated, as text.
    """

    body: tuple[BodyItem, ...]
    asked: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The query in the rule language."""
        return ", ".join(print_item(item) for item in self.body)


@dataclass(slots=True)
class EvidenceTexts:
    """The collected facts, stored or derived, in order of discovery, without repetition."""

    _rows: dict[tuple[str, str | None], Row] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """The collected facts."""
        return list(self._rows.values())

    def add(self, row: Row) -> None:
        """Add a fact, unless the maximum number is reached."""
        if len(self._rows) < MAX_ROWS:
            self._rows.setdefault(
                (print_row(row["predicate"], row["args"], row["negated"]), row["scope"]), row
            )


Infer = Callable[[Atom, int], "list[Row]"]
"""Function that returns the answers of an atom, with a maximum number."""

Bindings = Callable[["tuple[BodyItem, ...]", "list[Variable]", int], "list[tuple[str, ...]]"]
"""Function that returns the values of variables for which a body is true, with a maximum number."""


def gather(query: EvidenceQuery, infer: Infer, bindings: Bindings, evidence: EvidenceTexts) -> None:
    """Evaluate a query and add its facts to the evidence.

    For one literal these are its answers and, if there are none or the literal is ground, the
    answers of its negation. For several literals these are the facts that are true together. The
    absence of a fact is not evidence. Raises InvalidInput and BudgetExceeded.
    """
    first = query.body[0]
    if len(query.body) == 1 and isinstance(first, Literal):
        atom = first.atom
        rows = _asked(query, atom, infer)
        if not rows or atom.ground:
            rows += _asked(query, Atom(atom.predicate, atom.args, not atom.positive), infer)
    else:
        rows = _together(query, infer, bindings)
    for row in rows:
        evidence.add(row)


def _asked(query: EvidenceQuery, atom: Atom, infer: Infer) -> list[Row]:
    query.asked.append(print_item(Literal(atom)))
    return infer(atom, MAX_ROWS_PER_QUERY)


def _together(query: EvidenceQuery, infer: Infer, bindings: Bindings) -> list[Row]:
    query.asked.append(query.text)
    variables = list(
        dict.fromkeys(v for item in query.body for v in item.variables() if not v.anonymous)
    )
    positive = [item.atom for item in query.body if isinstance(item, Literal) and not item.negated]
    rows: list[Row] = []
    for values in bindings(query.body, variables, MAX_ROWS_PER_QUERY):
        known = dict(zip(variables, values, strict=True))
        for atom in positive:
            args = tuple(
                known.get(arg, arg) if isinstance(arg, Variable) else arg for arg in atom.args
            )
            rows += infer(Atom(atom.predicate, args, atom.positive), 1)
        if len(rows) >= MAX_ROWS:
            break
    return rows
