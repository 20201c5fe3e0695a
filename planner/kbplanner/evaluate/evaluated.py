"""Expressions of a rule evaluated for given values, for display in proofs."""

from __future__ import annotations

from collections.abc import Mapping

from kbplanner.ir.compute import compute
from kbplanner.ir.terms import Apply, Expr, Variable


def value_of(expr: Expr, known: Mapping[str, str]) -> str | None:
    """Return the value of an expression; None if it has none, or a variable of it is unknown."""
    if isinstance(expr, Variable):
        return known.get(expr.name)
    if not isinstance(expr, Apply):
        return expr
    args = [value_of(arg, known) for arg in expr.args]
    return (
        compute(expr.function, [arg for arg in args if arg is not None])
        if None not in args
        else None
    )
