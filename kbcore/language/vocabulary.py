"""Excerpt of a knowledge base for a prompt: predicates with their meaning, and facts that match a
text.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbcore.language.kinds import HAPPENED
from kbcore.language.names import NameTable
from kbcore.language.reading import EPISODE
from kbcore.reason.budget import Budget
from kbcore.reason.predicates import predicates, typed_args
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.tokens import words
from kbcore.state.partition import Partition
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.phrases import Phrase
from kbplanner.ir.terms import Aggregate, Atom, Extremum, Rule, Variable
from kbplanner.syntax.constraints import CONTRADICTION
from kbplanner.syntax.printer import print_row

MAX_PREDICATES = 60
MAX_FACTS = 30
MAX_RULES = 20
MAX_TEXT_CHARS = 200
"""Maximum length of a fact or a rule in a prompt; longer ones are left out."""

_SLOT = re.compile(r"\{(\d+)\}")

OWN = frozenset(((CONTRADICTION, 3), (EPISODE, 3)))
"""Predicates of the knowledge base itself, which no text is about: violations of constraints, and
texts that are kept as they are.
"""


@dataclass(slots=True)
class Vocabulary:
    """Predicates as (name, arity), best match first, facts and rules as text, and all known names.

    `meanings` says for predicates what their arguments and their facts mean, with an example;
    `declared` are those that are declared as inputs, `concluded` those that only rules conclude and
    that the text does not name. The names map a model's answer to known names.
    `empty` is True if there are no facts, rules and episodes.
    """

    predicates: list[tuple[str, int]] = field(default_factory=list)
    meanings: dict[tuple[str, int], str] = field(default_factory=dict)
    declared: frozenset[tuple[str, int]] = frozenset()
    concluded: frozenset[tuple[str, int]] = frozenset()
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
    result.empty = not (schema["totalFacts"] or schema["totalRules"] or len(tenant.episodes))
    text_words = set(words(text))

    def shared(row: Mapping[str, Any]) -> int:
        return len(text_words.intersection(words(f"{row['predicate']} {row.get('gloss', '')}")))

    ranked = sorted(
        schema["predicates"],
        key=lambda row: (
            -shared(row),
            "args" not in row,
            -row["factCount"] - row["ruleCount"],
        ),
    )
    ranked = [row for row in ranked if (row["predicate"], row["arity"]) not in OWN]
    for row in ranked:
        result.names.know_predicate(row["predicate"], row["arity"])
    phrases = tenant.rules.templates(None if scope == ALL_SCOPES else scope)
    heads = {(rule.head.predicate, rule.head.arity): rule.head for rule in _rules(tenant, scope)}
    for row in ranked[:MAX_PREDICATES]:
        signature = row["predicate"], row["arity"]
        result.predicates.append(signature)
        if "args" in row:
            args, gloss = list(typed_args(row)), row.get("gloss")
        else:
            args = _variables(heads.get(signature), signature[1])
            gloss = _in_words(phrases.get(signature), args)
        meaning = f" ({', '.join(args)})" if args and (gloss or "args" in row) else ""
        meaning += f": {gloss}" if gloss else ""
        if example := _example(tenant, partitions, signature):
            meaning += f", for example {example}"
        result.meanings[signature] = meaning
    result.concluded = frozenset(
        (row["predicate"], row["arity"])
        for row in ranked
        if row["hasRules"]
        and not row["factCount"]
        and "args" not in row
        and not text_words.issuperset(words(row["predicate"]))
    )
    result.declared = frozenset((row["predicate"], row["arity"]) for row in ranked if "args" in row)
    index = LexicalIndex.of(tenant)
    best = [
        hit for partition in partitions for hit in index.search(partition, text, MAX_FACTS, budget)
    ]
    best.sort(key=lambda hit: -hit[2])
    for stored, row_id, _ in best[:MAX_FACTS]:
        args = tenant.engine.texts(stored.relation.rows(array("I", [row_id])))
        is_event = (stored.schema.predicate, stored.schema.arity) == (HAPPENED, 4)
        result.names.know(args[1:] if is_event else args)  # the id of an event names nothing
        fact_text = print_row(stored.schema.predicate, args, not stored.schema.positive)
        if len(fact_text) <= MAX_TEXT_CHARS:
            result.facts.append(fact_text)
    visible = (
        rule for rule in tenant.rules.all() if scope == ALL_SCOPES or rule.scope in (None, scope)
    )
    result.rules = [rule.text for rule in visible if len(rule.text) <= MAX_TEXT_CHARS][:MAX_RULES]
    return result


def _rules(tenant: Tenant, scope: str | None) -> Iterator[Rule]:
    for stored in tenant.rules.all():
        if scope == ALL_SCOPES or stored.scope in (None, scope):
            yield stored.rule


def _variables(head: Atom | None, arity: int) -> list[str]:
    """Return variables for the arguments of a predicate: those in the head of a rule, else ?a, ?b
    and so on.
    """
    names = [f"?{chr(ord('a') + index)}" for index in range(min(arity, 26))]
    for index, arg in enumerate(() if head is None else head.args[: len(names)]):
        if isinstance(arg, Variable):
            names[index] = str(arg)
        elif isinstance(arg, Extremum | Aggregate) and arg.variable is not None:
            names[index] = str(arg.variable)
    return names


def _in_words(phrase: Phrase | None, args: Sequence[str]) -> str | None:
    """Return the phrase of a predicate with variables in quotes; None if it has none."""
    if phrase is None or len(args) < phrase.arity:
        return None
    return '"' + _SLOT.sub(lambda slot: args[int(slot[1])], phrase.text) + '"'


def _example(
    tenant: Tenant, partitions: Sequence[Partition], signature: tuple[str, int]
) -> str | None:
    """Return a stored fact of a predicate as text; None without one, or if it is long."""
    for partition in partitions:
        for stored in partition.named(*signature, True):
            rows, ids = stored.relation.match([0] * signature[1], limit=1)
            if len(ids):
                text = print_row(signature[0], tenant.engine.texts(rows), False)
                return text if len(text) <= MAX_TEXT_CHARS else None
    return None
