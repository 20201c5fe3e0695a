"""Warnings about rules that are valid but probably mistakes, each with its position in the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.terms import Aggregate, Apply, Comparison, Literal, Rule, Variable
from kbplanner.ir.values.comparison import test
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.statements import RuleStatement, Statement

_OVER_BINDINGS = ("sum", "avg")
"""Aggregates whose result depends on variables that occur nowhere else."""

_ID_NAME = re.compile(r"(?:^|_)(?:id|code|serial|sku|isbn|iban|zip)_?\d*$", re.IGNORECASE)
"""Names of variables whose values are ids: digits that are no quantity."""

_ID_CONSTANT = re.compile(r"-?0[0-9]+|-?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+")
"""Constants that look like numbers and are texts for `=`."""

_IRREFLEXIVE = ("!=", "!==", "<", ">")


def lint(statements: Iterable[Statement]) -> list[RuleWarning]:
    """Return the warnings about the rules of a text, in order."""
    return [
        warning
        for statement in statements
        if isinstance(statement, RuleStatement)
        for warning in _rule_warnings(statement)
    ]


def _rule_warnings(statement: RuleStatement) -> Iterator[RuleWarning]:
    yield from _singletons(statement)
    yield from _doubtful_comparisons(statement)
    yield from _cross_products(statement)


def _singletons(statement: RuleStatement) -> Iterator[RuleWarning]:
    """Yield a warning for each variable that is used once."""
    rule = statement.rule
    counted = {arg for arg in rule.head.args if isinstance(arg, Aggregate)}
    if any(each.variable is None or each.function in _OVER_BINDINGS for each in counted):
        return  # the aggregate is over all named variables of the body
    variables = (variable for item in rule.body for variable in item.variables())
    counts = Counter(
        variable.name
        for variable in chain(rule.head.variables(), variables)
        if not variable.anonymous
    )
    for name, count in counts.items():
        if count == 1 and not name.startswith("_"):
            hint = f'write _ for "any", or ?_{name} to keep the name'
            yield RuleWarning(
                "singleton", f"the variable ?{name} is used once", hint, statement.where(name)
            )


def _doubtful_comparisons(statement: RuleStatement) -> Iterator[RuleWarning]:
    """Yield warnings about comparisons that never hold, and about ids compared by value."""
    for index, item in enumerate(statement.rule.body):
        if not isinstance(item, Comparison):
            continue
        span = statement.items[index] if index < len(statement.items) else statement.span
        if never_holds(item):
            yield RuleWarning(
                "never-holds", f"a comparison with {item.op} can never hold", None, span
            )
        elif (side := _id_of(item)) is not None:
            message = f"{item.op} compares by value, but {side} looks like an id"
            hint = f"write {item.op.replace('=', '==')} to compare what is written"
            yield RuleWarning("id-comparison", message, hint, span)


def _cross_products(statement: RuleStatement) -> Iterator[RuleWarning]:
    """Yield a warning if parts of the body share no variable, except in rules about each pair."""
    groups = _variable_groups(statement.rule)
    if len(groups) > 1 and not _is_about_pairs(statement.rule, groups):
        names = " and ".join(sorted(groups[0])[:1] + sorted(groups[1])[:1])
        message = f"the body is a cross product: {names} share no variable"
        yield RuleWarning(
            "cross-product", message, "join them by a variable, or split the rule", statement.span
        )


def _is_about_pairs(rule: Rule, groups: Sequence[set[str]]) -> bool:
    """Return True if a rule concludes something about each combination of what its parts find.

    `may_read(?who, ?doc) :- admin(?who), document(?doc)` is such a rule. Where two parts have
    variables of their own, the join that is missing may be one of those.
    """
    head = {f"?{arg.name}" for arg in rule.head.args if isinstance(arg, Variable)}
    with_others = sum(not group <= head for group in groups)
    return with_others <= 1 and not any(group.isdisjoint(head) for group in groups)


def never_holds(item: Comparison) -> bool:
    """Return True if a comparison is false whatever the values of its variables are."""
    if item.op not in COMPARISONS:
        return False
    if isinstance(item.left, str) and isinstance(item.right, str):
        return test(COMPARISONS.index(item.op), item.left, item.right) == item.negated
    same = isinstance(item.left, Variable) and item.left == item.right
    return same and not item.negated and item.op in _IRREFLEXIVE


def _id_of(item: Comparison) -> str | None:
    """Return the side of an equation that looks like an id; None without one.

    An equation that computes a value compares nothing.
    """
    sides = (item.left, item.right)
    if item.op not in ("=", "!=") or any(isinstance(side, Apply) for side in sides):
        return None
    for side in sides:
        if isinstance(side, Variable) and _ID_NAME.search(side.name):
            return f"?{side.name}"
        if isinstance(side, str) and _ID_CONSTANT.fullmatch(side):
            return side
    return None


def _variable_groups(rule: Rule) -> list[set[str]]:
    """Return the variables of the positive atoms in groups, so that no item of the body joins two
    of them.
    """
    groups: list[set[str]] = []
    atoms = [item for item in rule.body if isinstance(item, Literal) and not item.negated]
    others = [item for item in rule.body if not (isinstance(item, Literal) and not item.negated)]
    for item in (*atoms, *others):
        names = {"?" + variable.name for variable in item.variables() if not variable.anonymous}
        linked = [group for group in groups if not group.isdisjoint(names)]
        if names and (linked or isinstance(item, Literal)):  # `?d = 0` has one value: no product
            groups = [group for group in groups if group.isdisjoint(names)] + [names.union(*linked)]
    return groups
