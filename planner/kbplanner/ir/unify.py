"""Unification of rule heads with goals, and substitution of values for variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    Rule,
    Term,
    Variable,
)

Substitution = dict[Variable, Term]
"""Values of variables: constants, or other variables that stand for the same value."""


def unify(head: Atom, goal: Atom) -> Substitution | None:
    """Return what the variables of a head stand for when it concludes a goal; None if it cannot.

    Variables of the goal are not those of the rule, even if they have the same names: a variable
    that the goal repeats makes variables of the head equal. An aggregate matches every argument; an
    extremum stands for its variable.
    """
    if (head.predicate, head.arity, head.positive) != (goal.predicate, goal.arity, goal.positive):
        return None
    values: Substitution = {}
    counterparts: Substitution = {}

    def resolved(term: Term) -> Term:
        while isinstance(term, Variable) and term in values:
            term = values[term]
        return term

    for own, asked in zip(head.args, goal.args, strict=True):
        own, asked = (arg.variable if isinstance(arg, Extremum) else arg for arg in (own, asked))
        if isinstance(own, Aggregate) or isinstance(asked, Aggregate):
            continue
        if isinstance(asked, Variable):
            if asked.anonymous:
                continue
            asked = counterparts.setdefault(asked, own)
        left, right = resolved(own), resolved(asked)
        if left == right:
            continue
        if isinstance(left, Variable):
            values[left] = right
        elif isinstance(right, Variable):
            values[right] = left
        else:
            return None
    return {variable: resolved(variable) for variable in values}


def substituted(item: BodyItem, values: Mapping[Variable, Term]) -> BodyItem:
    """Return a body item with variables replaced; anonymous variables stay."""
    if isinstance(item, Literal):
        return replace(item, atom=substituted_atom(item.atom, values))
    return replace(item, left=filled(item.left, values), right=filled(item.right, values))


def substituted_atom(atom: Atom, values: Mapping[Variable, Term]) -> Atom:
    """Return an atom with variables replaced; aggregates and anonymous variables stay."""
    args: tuple[HeadTerm, ...] = tuple(
        values.get(arg, arg) if isinstance(arg, Variable) and not arg.anonymous else arg
        for arg in atom.args
    )
    return Atom(atom.predicate, args, atom.positive)


def with_now(rule: Rule, instant: str) -> Rule:
    """Return a rule with an instant in place of `now()`."""

    def dated(expr: Expr) -> Expr:
        if not isinstance(expr, Apply):
            return expr
        return (
            instant
            if expr.function == "now"
            else Apply(expr.function, tuple(map(dated, expr.args)))
        )

    body = tuple(
        replace(item, left=dated(item.left), right=dated(item.right))
        if isinstance(item, Comparison)
        else item
        for item in rule.body
    )
    return rule if body == rule.body else replace(rule, body=body)


def filled(expr: Expr, values: Mapping[Variable, Term]) -> Expr:
    """Return an expression with variables replaced by what they stand for."""
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(filled(arg, values) for arg in expr.args))
    return values.get(expr, expr) if isinstance(expr, Variable) else expr
