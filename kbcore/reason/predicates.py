"""The schema of a knowledge base: its predicates with their numbers of facts and rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kbcore.state.partition import Partition
from kbcore.state.tenant import ALL_SCOPES, Tenant


def predicates(
    tenant: Tenant, partitions: Iterable[Partition], scope: str | None
) -> dict[str, Any]:
    """Return the predicates with currently valid facts or with rules of the scope, by name and
    arity.
    """
    facts: dict[tuple[str, int], int] = {}
    for partition in partitions:
        for stored in partition.relations():
            visible = stored.relation.counts().visible
            if visible:
                key = (stored.schema.predicate, stored.schema.arity)
                facts[key] = facts.get(key, 0) + visible
    rules: dict[tuple[str, int], int] = {}
    for stored_rule in tenant.rules.all():
        if scope == ALL_SCOPES or stored_rule.scope in (None, scope):
            key = (stored_rule.rule.head.predicate, stored_rule.rule.head.arity)
            rules[key] = rules.get(key, 0) + 1
    rows = [
        {
            "predicate": name,
            "arity": arity,
            "factCount": facts.get((name, arity), 0),
            "ruleCount": rules.get((name, arity), 0),
            "hasRules": (name, arity) in rules,
        }
        for name, arity in sorted(facts.keys() | rules.keys())
    ]
    return {
        "predicates": rows,
        "totalPredicates": len(rows),
        "totalFacts": sum(facts.values()),
        "totalRules": sum(rules.values()),
    }
