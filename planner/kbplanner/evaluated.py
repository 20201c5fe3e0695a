"""One builtin literal of a rule, worked out for given values: what proofs show of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbplanner.compute import TESTS, compute, text_test
from kbplanner.numbers import test
from kbplanner.pattern import compile_pattern, matches
from kbplanner.printer import print_item
from kbplanner.terms import COMPARISONS, Apply, Comparison, Expr, Substitution, Variable, expression_variables


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What became of a literal: its text with values for variables (`30 >= 18`), whether it holds, all values.

    `values` are those given and, if the literal computes a variable, that one's.
    """

    text: str
    holds: bool
    values: Substitution


def evaluate_builtin(item: Comparison, values: Mapping[str, str]) -> Evaluated:
    """Work out a comparison, computation or string test; `values` by variable name without question mark.

    A variable without a value that stands alone on one side of `=` is computed from the other side. An expression without a
    value makes the literal fail, also under `not`. Raises KeyError for any other variable without a value.
    """
    known = dict(values)
    if item.op == "=" and not item.negated:
        for target, source in ((item.left, item.right), (item.right, item.left)):
            if isinstance(target, Variable) and target.name not in known and _given(source, known):
                value = value_of(source, known)
                if value is not None:
                    known[target.name] = value
                    break
                shown = Comparison(item.op, _shown(item.left, known), _shown(item.right, known))
                return Evaluated(print_item(shown), False, known)
    shown = Comparison(item.op, _replaced(item.left, known), _replaced(item.right, known), item.negated)
    return Evaluated(print_item(shown), _holds(item, known), known)


def _holds(item: Comparison, known: Substitution) -> bool:
    left, right = value_of(item.left, known), value_of(item.right, known)
    if left is None or right is None:
        return False
    if item.op in COMPARISONS:
        return test(COMPARISONS.index(item.op) + 8 * item.negated, left, right)
    if item.op in TESTS:
        return text_test(TESTS.index(item.op) + 8 * item.negated, left, right)
    return matches(compile_pattern(right), left) != item.negated


def _given(expr: Expr, known: Substitution) -> bool:
    return all(variable.name in known for variable in expression_variables(expr))


def value_of(expr: Expr, known: Mapping[str, str]) -> str | None:
    """The value of an expression; None where it has none, or a variable of it is not known."""
    if isinstance(expr, Variable):
        return known.get(expr.name)
    if not isinstance(expr, Apply):
        return expr
    args = [value_of(arg, known) for arg in expr.args]
    return compute(expr.function, [arg for arg in args if arg is not None]) if None not in args else None


def _replaced(expr: Expr, known: Substitution) -> Expr:
    if isinstance(expr, Variable):
        return known[expr.name]
    return Apply(expr.function, tuple(_replaced(arg, known) for arg in expr.args)) if isinstance(expr, Apply) else expr


def _shown(expr: Expr, known: Substitution) -> Expr:
    """As `_replaced`, but a variable without a value stays."""
    return expr if isinstance(expr, Variable) and expr.name not in known else _replaced(expr, known)
