"""Excerpt of a knowledge base for a prompt: predicates, and facts that match a text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from kbcore.language.names import NameTable
from kbcore.reason.budget import Budget
from kbcore.reason.predicates import predicates
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.tokens import words
from kbcore.state.partition import Partition
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.syntax.printer import print_row

MAX_PREDICATES = 60
MAX_FACTS = 30
MAX_RULES = 20
MAX_TEXT_CHARS = 200
"""Maximum length of a fact or a rule in a prompt; longer ones are left out."""


@dataclass(slots=True)
class Vocabulary:
    """Predicates as (name, arity), best match first, facts and rules as text, and all known names.

    The names map a model's answer to known names. `empty` is True if there are no facts and no
    rules.
    """

    predicates: list[tuple[str, int]] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    names: NameTable = field(default_factory=NameTable)
    empty: bool = True


def vocabulary(
    tenant: Tenant, partitions: Sequence[Partition], scope: str | None, text: str, budget: Budget
) -> Vocabulary:
    """Return the vocabulary for a text; the caller holds the tenant's read lock.

    Raises BudgetExceeded.
    """
    result = Vocabulary()
    schema = predicates(tenant, partitions, scope)
    result.empty = not schema["totalFacts"] and not schema["totalRules"]
    text_words = set(words(text))
    ranked = sorted(
        schema["predicates"],
        key=lambda row: (
            -len(text_words.intersection(words(row["predicate"]))),
            -row["factCount"] - row["ruleCount"],
        ),
    )
    for row in ranked:
        result.names.know_predicate(row["predicate"], row["arity"])
    result.predicates = [(row["predicate"], row["arity"]) for row in ranked[:MAX_PREDICATES]]
    index = LexicalIndex.of(tenant)
    best = [
        hit for partition in partitions for hit in index.search(partition, text, MAX_FACTS, budget)
    ]
    best.sort(key=lambda hit: -hit[2])
    for stored, row_id, _ in best[:MAX_FACTS]:
        args = tenant.engine.texts(stored.relation.rows(array("I", [row_id])))
        result.names.know(args)
        fact_text = print_row(stored.schema.predicate, args, not stored.schema.positive)
        if len(fact_text) <= MAX_TEXT_CHARS:
            result.facts.append(fact_text)
    visible = (
        rule for rule in tenant.rules.all() if scope == ALL_SCOPES or rule.scope in (None, scope)
    )
    result.rules = [rule.text for rule in visible if len(rule.text) <= MAX_TEXT_CHARS][:MAX_RULES]
    return result
