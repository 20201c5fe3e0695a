"""What of a knowledge base a model is shown beside a text: predicates with arity, and the facts that match the text best."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from kbcore.language.names import Names
from kbcore.reason.budget import Budget
from kbcore.reason.predicates import predicates
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.tokens import words
from kbcore.state.partition import Partition
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.syntax.printer import print_row

MOST_PREDICATES = 60
MOST_FACTS = 30
MOST_RULES = 20
MOST_NAME = 200
"""Characters of a fact or a rule that is shown; longer ones are left out."""


@dataclass(slots=True)
class Vocabulary:
    """Predicates as (name, arity), the most fitting first; facts and rules as text; all names, for what a model says back.

    `empty` says that there is neither a fact nor a rule.
    """

    predicates: list[tuple[str, int]] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    empty: bool = True


def vocabulary(
    tenant: Tenant, partitions: Sequence[Partition], scope: str | None, text: str, budget: Budget
) -> Vocabulary:
    """The vocabulary for a text; the caller holds the tenant's read lock. Raises BudgetExceeded."""
    found = Vocabulary()
    schema = predicates(tenant, partitions, scope)
    found.empty = not schema["totalFacts"] and not schema["totalRules"]
    about = set(words(text))
    ranked = sorted(
        schema["predicates"],
        key=lambda row: (-len(about.intersection(words(row["predicate"]))), -row["factCount"] - row["ruleCount"]),
    )
    for row in ranked:
        found.names.know_predicate(row["predicate"], row["arity"])
    found.predicates = [(row["predicate"], row["arity"]) for row in ranked[:MOST_PREDICATES]]
    index = LexicalIndex.of(tenant)
    best = [hit for one in partitions for hit in index.search(one, text, MOST_FACTS, budget)]
    best.sort(key=lambda hit: -hit[2])
    for stored, place, _ in best[:MOST_FACTS]:
        args = tenant.engine.texts(stored.relation.rows(array("I", [place])))
        found.names.know(args)
        shown = print_row(stored.schema.predicate, args, not stored.schema.positive)
        if len(shown) <= MOST_NAME:
            found.facts.append(shown)
    visible = (rule for rule in tenant.rules.all() if scope == ALL_SCOPES or rule.scope in (None, scope))
    found.rules = [rule.text for rule in visible if len(rule.text) <= MOST_NAME][:MOST_RULES]
    return found
