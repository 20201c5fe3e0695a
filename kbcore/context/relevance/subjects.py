"""The words of a question besides the names of those whom it is about.

"What is Mia's blood type?" is about Mia, of whom everything is known that has her name. What has
the name and no other word of the question hardly answers it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import cache
from itertools import islice

from kbcore.context.relevance.questions import MAX_CONSTANTS, constants_of
from kbcore.reason.budget import Budget
from kbcore.search.tokens import FIRST_PERSON, words
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant

_OF_ASKING = """
describe everything fact give he her him his know let list me mention please recall remember remind
say she show summarize summary talk tell their them they thing think you your
"""
"""Words of questions that say nothing of what is asked for."""


@cache
def of_asking() -> frozenset[str]:
    """Return the words that say nothing of what is asked for, as stems; the stemmer is loaded with
    the first question.
    """
    return frozenset(FIRST_PERSON.union(words(_OF_ASKING)))


def asked_of(
    tenant: Tenant,
    matches: Iterable[tuple[StoredRelation, int]],
    question: str,
    asker: str | None,
    budget: Budget,
) -> frozenset[str]:
    """Return the words of a question, as stems, without the names of those whom it is about.

    A name is that of the asker, or a constant that is the first argument of one of its matches. The
    result is empty if the question has no such name, or no other word. The caller holds the read
    lock. Raises BudgetExceeded.
    """
    subjects = _subjects(matches)
    names = [
        constant
        for constant in islice(constants_of(tenant, question, set(), budget), MAX_CONSTANTS)
        if tenant.engine.find(constant) in subjects
    ]
    if asker is not None:
        names.append(asker)
    asked = frozenset(words(question, budget.yield_now))
    of_names = {stem for name in names for stem in words(name)} & asked
    return asked - of_names - of_asking() if of_names else frozenset()


def _subjects(matches: Iterable[tuple[StoredRelation, int]]) -> set[int]:
    """Return the symbols of the first arguments of facts."""
    groups: dict[StoredRelation, array[int]] = {}
    for stored, row in matches:
        if stored.schema.arity:
            groups.setdefault(stored, array("I")).append(row)
    return {
        symbol
        for stored, rows in groups.items()
        for symbol in stored.relation.rows(rows)[:: stored.schema.arity]
    }
