"""Translation of comparisons with expressions to computations and plain comparisons.

`?z = expression` computes `?z` where no positive atom binds it; the first such equation of the body
does, any other is a test. `?z = value` only names a value and is substituted away. Every operator
and function becomes one computation, into a variable that text cannot name; equal expressions are
computed once:

    ?x * 2 + 1 < ?y    is    value#1 := ?x * 2, value#2 := value#1 + 1, value#2 < ?y

A generator computes its variable, with any number of values, where nothing else binds it; otherwise
it tests it: `range(1, 9, ?x)` is `?x := range(1, 9)`, or `value#1 := is_in_range(?x, 1, 9), value#1
== true`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from kbplanner.ir.conditions import condition, generated_values, generator_of
from kbplanner.ir.operators import MEMBERSHIP
from kbplanner.ir.program import Computation
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    Expr,
    Extremum,
    HeadTerm,
    Literal,
    Term,
    Variable,
    expression_variables,
)

Items = list[Literal | Comparison | Computation]


def flatten(
    body: Sequence[BodyItem], head: tuple[HeadTerm, ...]
) -> tuple[Items, tuple[HeadTerm, ...]]:
    """Return the body with plain comparisons and computations only, and the head's arguments after
    substitution.
    """
    items: list[BodyItem] = list(dict.fromkeys(body))
    if all(map(_is_flat, items)):  # most rules
        return cast(Items, items), head
    items, computed, head = _named_values(items, head)
    flat = _Flat()
    for target, expr in computed.items():
        flat.assign(target, expr)
    for item in items:
        flat.add(item)
    return flat.items, head


def _named_values(
    items: Sequence[BodyItem], head: tuple[HeadTerm, ...]
) -> tuple[list[BodyItem], dict[Variable, Expr], tuple[HeadTerm, ...]]:
    """Resolve the equations and generators that bind a variable.

    Returns the other items, the expressions of the variables that are computed, and the head; in
    both, plain values are substituted for their variables.
    """
    bound = _bound_by_atoms(items)
    computed: dict[Variable, Expr] = {}
    aggregated = {term.variable for term in head if isinstance(term, (Aggregate, Extremum))}
    sides = [_Sides.of(item) for item in items]
    while True:
        # Equations first, then the generator of the fewest values: the others of its variable test
        # it.
        pairs = [(each, named) for each in sides if (named := _named(each, bound)) is not None]
        if not pairs:
            return [each.item for each in sides], computed, head
        equation, (variable, value) = min(pairs, key=lambda pair: _values_of(pair[0].item))
        sides = [each for each in sides if each is not equation]
        if isinstance(value, Apply) or variable in aggregated:
            computed[variable] = value
            bound.add(variable)
        else:
            sides = [each.with_value(variable, value) for each in sides]
            head = tuple(value if term == variable else term for term in head)


def _is_flat(item: BodyItem) -> bool:
    """Return True for an atom, and for a comparison of terms that binds no variable."""
    if isinstance(item, Literal):
        return True
    if item.op in ("=", "=="):
        return False
    return not (isinstance(item.left, Apply) or isinstance(item.right, Apply))


def _bound_by_atoms(items: Iterable[BodyItem]) -> set[Variable]:
    """Return the variables of the positive atoms."""
    atoms = (item for item in items if isinstance(item, Literal) and not item.negated)
    return {variable for atom in atoms for variable in atom.variables()}


class _Flat:
    def __init__(self) -> None:
        self.items: Items = []
        self._known: dict[tuple[str, tuple[Term, ...]], Variable] = {}

    def assign(self, target: Variable, expr: Expr) -> None:
        if not isinstance(expr, Apply):
            self.items.append(Computation(target, "=", (expr,)))
            return
        self.items.append(
            Computation(target, expr.function, tuple(self.value(arg) for arg in expr.args))
        )

    def add(self, item: BodyItem) -> None:
        """Add an item; a generator that binds nothing becomes a test of its variable."""
        call = generator_of(item)
        if call is not None and isinstance(item, Comparison):
            test = Apply(MEMBERSHIP[call.function], (item.left, *call.args))
            item = condition(test, item.negated)
        if isinstance(item, Comparison):
            item = Comparison(item.op, self.value(item.left), self.value(item.right), item.negated)
        self.items.append(item)

    def value(self, expr: Expr) -> Term:
        if not isinstance(expr, Apply):
            return expr
        key = (expr.function, tuple(self.value(arg) for arg in expr.args))
        if key not in self._known:
            self._known[key] = Variable(f"value#{len(self._known) + 1}")
            self.items.append(Computation(self._known[key], *key))
        return self._known[key]


def _values_of(item: BodyItem) -> float:
    """Estimate the number of values that an equation or a generator gives."""
    call = generator_of(item)
    return 0.0 if call is None else 1.0 + generated_values(call.function, call.args)


@dataclass(frozen=True, slots=True, eq=False)
class _Sides:
    """An item of a body with the variables of both sides of a comparison, or of an atom."""

    item: BodyItem
    left: frozenset[Variable]
    right: frozenset[Variable]

    @classmethod
    def of(cls, item: BodyItem) -> _Sides:
        """Find the variables of an item."""
        if isinstance(item, Comparison):
            left, right = (expression_variables(side) for side in (item.left, item.right))
            return cls(item, frozenset(left), frozenset(right))
        return cls(item, frozenset(item.variables()), frozenset())

    def with_value(self, variable: Variable, value: Term) -> _Sides:
        """Return the item with a value in place of a variable."""
        if variable in self.left or variable in self.right:
            return _Sides.of(_substitute(self.item, variable, value))
        return self


def _named(sides: _Sides, bound: set[Variable]) -> tuple[Variable, Expr] | None:
    """Return the variable that an equation or a generator binds, and its expression, whose
    variables are all bound.
    """
    item = sides.item
    call = generator_of(item)
    if call is not None and isinstance(item, Comparison) and not item.negated:
        target = item.left
        if not isinstance(target, Variable) or target.anonymous or target in bound:
            return None
        return (target, call) if bound.issuperset(sides.right) else None
    if not isinstance(item, Comparison) or item.negated or item.op not in ("=", "=="):
        return None
    for variable, value, needed in (
        (item.left, item.right, sides.right),
        (item.right, item.left, sides.left),
    ):
        if not isinstance(variable, Variable) or variable.anonymous or variable in bound:
            continue
        if (item.op == "=" or not isinstance(value, Apply)) and bound.issuperset(needed):
            return variable, value
    return None


def _substitute(item: BodyItem, variable: Variable, value: Term) -> BodyItem:
    if isinstance(item, Comparison):
        left, right = _replaced(item.left, variable, value), _replaced(item.right, variable, value)
        return Comparison(item.op, left, right, item.negated)
    args = tuple(value if arg == variable else arg for arg in item.atom.args)
    return Literal(Atom(item.atom.predicate, args, item.atom.positive), item.negated)


def _replaced(expr: Expr, variable: Variable, value: Term) -> Expr:
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(_replaced(arg, variable, value) for arg in expr.args))
    return value if expr == variable else expr
