"""Writer of rules, atoms and body items as JSON values, in the form that `jsonform` reads."""

from __future__ import annotations

from typing import Any

from kbplanner.ir.conditions import condition_of, generator_of
from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.terms import Apply, Atom, BodyItem, Comparison, Expr, HeadTerm, Rule, Variable
from kbplanner.syntax.printer import print_expression, print_term


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """Return a rule as `rule_from_json` reads it. Its text form is exact for every rule; see
    `item_to_json`.
    """
    result: dict[str, Any] = {
        "head": atom_to_json(rule.head),
        "body": [item_to_json(item) for item in rule.body],
    }
    for key, value in (("name", rule.name), ("confidence", rule.confidence), ("scope", rule.scope)):
        if value is not None:
            result[key] = value
    return result


def atom_to_json(atom: Atom) -> dict[str, Any]:
    """Return a signed atom as `atom_from_json` reads it: `negated` is its sign."""
    return {
        "predicate": atom.predicate,
        "args": [_arg_to_json(arg) for arg in atom.args],
        "negated": not atom.positive,
    }


def item_to_json(item: BodyItem) -> dict[str, Any]:
    """Return a body item as `item_from_json` reads it.

    String tests, conditions and generators have `builtin` in place of `predicate`. An ordinary atom
    whose name is a comparison sign is marked with `builtin: false`. What JSON cannot express comes
    back different: a constant that starts with `?`, an expression without variables, in a
    comparison a constant that reads as an expression, in a head one that reads as an aggregate or
    an extremum.
    """
    if (test := condition_of(item)) is not None:
        call, negated = test
        args = [_expression_to_json(arg) for arg in call.args]
        return {"builtin": call.function, "args": args, "negated": negated}
    values = generator_of(item)
    if values is not None and isinstance(item, Comparison):
        inputs: list[Any] = [_expression_to_json(arg) for arg in values.args]
        element = _expression_to_json(item.left)
        whole = [element, inputs] if values.function == "member" else [*inputs, element]
        return {"builtin": values.function, "args": whole, "negated": item.negated}
    if isinstance(item, Comparison):
        key = "predicate" if item.op in COMPARISONS else "builtin"
        args = [_expression_to_json(item.left), _expression_to_json(item.right)]
        return {key: item.op, "args": args, "negated": item.negated}
    result = {**atom_to_json(item.atom), "negated": item.negated}
    if not item.atom.positive:
        result["polarity"] = "negative"
    if item.atom.predicate in COMPARISONS:
        result["builtin"] = False
    return result


def _arg_to_json(arg: HeadTerm) -> str:
    if isinstance(arg, Variable):
        return "?" + arg.name
    return arg if isinstance(arg, str) else print_term(arg)


def _expression_to_json(expr: Expr) -> str:
    return print_expression(expr) if isinstance(expr, Apply) else _arg_to_json(expr)
