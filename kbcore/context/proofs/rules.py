"""Selection of the rules that are shown with the facts of a window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kbcore.context.request import Goal, items_of
from kbcore.state.partition import Partition
from kbcore.state.rulebook import ParsedRule
from kbcore.state.tenant import Tenant
from kbplanner.ir.terms import Literal
from kbtypes.windows import RuleInSet

MAX_RULES = 100
"""Maximum number of rules in a window."""


def visible_rules(tenant: Tenant, partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield the texts of the rules that are valid in any of the partitions."""
    names = {partition.name for partition in partitions}
    return (rule.text for rule in tenant.rules.all() if rule.scope is None or rule.scope in names)


def sets_of_rules(tenant: Tenant, rules: Iterable[ParsedRule]) -> list[RuleInSet]:
    """Return the rule sets of rules, in the order of the rules; without rule sets at once."""
    if not tenant.rule_sets:
        return []
    return [
        RuleInSet(rule.text, each["name"], each["version"])
        for rule in rules
        for each in tenant.rule_sets.versions_of(rule)
    ]


def relevant_rules(
    tenant: Tenant,
    partitions: Sequence[Partition],
    used: Iterable[ParsedRule],
    goals: Sequence[Goal],
    predicates: Iterable[str],
) -> tuple[ParsedRule, ...]:
    """Return the rules that proofs used, then those that conclude the predicate of a goal.

    Without goals, return the rules about `predicates`.
    """
    chosen = {rule.text: rule for rule in used}
    asked = {
        item.atom.predicate
        for goal in goals
        for item in items_of(goal)
        if isinstance(item, Literal)
    }
    about = set() if goals else set(predicates)
    names = {partition.name for partition in partitions}
    for rule in tenant.rules.all():
        if rule.scope is not None and rule.scope not in names:
            continue
        body = {item.atom.predicate for item in rule.rule.body if isinstance(item, Literal)}
        if rule.rule.head.predicate in asked or rule.rule.head.predicate in about or body & about:
            chosen.setdefault(rule.text, rule)
        if len(chosen) >= MAX_RULES:
            break
    return tuple(chosen.values())[:MAX_RULES]
