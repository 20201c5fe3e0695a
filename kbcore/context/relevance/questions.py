"""Goals that a question in words means: conclusions of rules whose predicate the question names,
about the constants in it.

"Who is the grandchild of ann?" names the predicate `grandchild` of a rule, and the constant `ann`:
its goals are `grandchild(ann, ?y)` and `grandchild(?x, ann)`. No language model is asked. A guess
may be wrong, so its answers get a part of the window only, and a goal without answers is not
mentioned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from weakref import WeakKeyDictionary

from kbcore.reason.budget import Budget
from kbcore.search.tokens import STOP_WORDS, in_first_person, name_words, words
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Literal, Variable

MAX_GOALS = 8
MAX_HEADS = 4
MAX_CONSTANTS = 4
_VARIABLES = tuple(map(Variable, "xyzw"))
MAX_ARITY = len(_VARIABLES)

MAX_CONSTANT_WORDS = 4
"""Words of the question that can be one constant, as in "Ann Lee"."""

MAX_WORDS = 64
"""Words of the question among which constants are looked for."""

_WORD = re.compile(r"[^\W_](?:[\w.-]*\w)?")

Heads = dict[str, list[tuple[RelationSchema, frozenset[str]]]]
"""Predicates that rules conclude, by the first of their words, each with all its words."""

_heads: WeakKeyDictionary[RuleSet, Heads] = WeakKeyDictionary()


def goals_of_question(
    tenant: Tenant,
    partitions: Sequence[Partition],
    question: str,
    asker: str | None,
    budget: Budget,
) -> list[Literal]:
    """Return the goals that a question means, at most MAX_GOALS, the best known first.

    All words of a predicate must occur in the question, in any form; one with more words comes
    first. `asker` is the constant of a question in the first person. The caller holds the read
    lock. Raises BudgetExceeded.
    """
    schemas = _named(tenant, partitions, question, budget)
    if not schemas:
        return []
    used = {word for schema in schemas for word in name_words(schema.predicate)}
    constants = dict.fromkeys(constants_of(tenant, question, used, budget))
    if asker is not None and in_first_person(question, budget.yield_now):
        constants = {asker: None, **constants}
    goals = (
        Literal(Atom(schema.predicate, _arguments(schema.arity, position, constant)))
        for schema in schemas
        for constant in islice(constants, MAX_CONSTANTS)
        for position in range(schema.arity)
    )
    return list(islice(goals, MAX_GOALS))


def _named(
    tenant: Tenant, partitions: Sequence[Partition], question: str, budget: Budget
) -> list[RelationSchema]:
    """Return the schemas of conclusions that a question names."""
    asked = frozenset(islice(words(question, budget.yield_now), MAX_WORDS))
    sizes: dict[RelationSchema, int] = {}
    for partition in partitions:
        heads = _heads_of(tenant.rules.visible(partition.name), budget)
        for word in asked & heads.keys():
            sizes.update((schema, len(own)) for schema, own in heads[word] if own <= asked)
    ordered = sorted(sizes, key=lambda each: (-sizes[each], each.predicate, each.arity))
    return ordered[:MAX_HEADS]


def _heads_of(rules: RuleSet, budget: Budget) -> Heads:
    heads = _heads.get(rules)
    if heads is None:
        heads = {}
        for schema in budget.paced(rules.derived):
            if schema.positive and 0 < schema.arity <= MAX_ARITY:
                own = name_words(schema.predicate)
                if own:
                    heads.setdefault(own[0], []).append((schema, frozenset(own)))
        _heads[rules] = heads
    return heads


def constants_of(tenant: Tenant, question: str, used: set[str], budget: Budget) -> Iterator[str]:
    """Yield the longest runs of words of a question that are constants, in order; a word of `used`
    is none.
    """
    runs = [
        run.removesuffix("'s").removesuffix("\u2019s")
        for run in _runs_of(question.replace('"', " "))
    ]
    at = 0
    while at < len(runs):
        budget.yield_now()
        for length in range(min(MAX_CONSTANT_WORDS, len(runs) - at), 0, -1):
            constant = _constant(tenant, runs[at : at + length], used)
            if constant is not None:
                yield constant
                at += length
                break
        else:
            at += 1


def _runs_of(question: str) -> list[str]:
    parts = islice(question.split(), MAX_WORDS)
    return [match.group() for part in parts for match in _WORD.finditer(part)]


def _constant(tenant: Tenant, runs: Sequence[str], used: set[str]) -> str | None:
    """Return the constant that some words are, None if they are not one."""
    if len(runs) == 1 and (runs[0].casefold() in STOP_WORDS or used.issuperset(words(runs[0]))):
        return None
    text = " ".join(runs)
    spellings = (text, text.casefold(), text.title(), "_".join(runs), "_".join(runs).casefold())
    return next((each for each in dict.fromkeys(spellings) if tenant.engine.find(each)), None)


def _arguments(arity: int, position: int, constant: str) -> tuple[str | Variable, ...]:
    return tuple(
        constant if each == position else name for each, name in enumerate(_VARIABLES[:arity])
    )
