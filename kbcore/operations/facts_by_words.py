"""Facts that words mean, for those who forget them: what is removed does not come back, so a match
has to be closer than that of a search.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import chain

from kbcore.context.request import AllBut
from kbcore.errors import InvalidInput
from kbcore.language.kinds import PRONOUNS
from kbcore.language.reading import EPISODE
from kbcore.reason.budget import Budget
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.dates import date_words
from kbcore.search.tokens import name_words, without_words, words
from kbcore.state.facts import FactKey
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbtypes.windows import ADAPTER_PREDICATES

MAX_MEANT = 10_000
"""Facts that some words may mean."""

_PREDICATES = AllBut(ADAPTER_PREDICATES)

_REQUEST = re.compile(
    r"\s*(?:please\s+)?(?:(?:can|could|would)\s+you\s+)?(?:please\s+)?(?:forget|delete|erase|remove)\s+"
    r"(?:(?:everything|all|anything)\s+)?(?:about\s+)?(?=\S)",
    re.IGNORECASE,
)
"""The beginning of a text that asks for what the operation does."""

_DOUBLE_NAME = re.compile(r"[^\W\d_][\w']*(?:-[^\W\d_][\w']*)+")
"""Words joined by hyphens, which are one name where they begin with capitals: Pavlik-Kovar."""


def facts_meant(tenant: Tenant, about: str, user: str, budget: Budget) -> tuple[FactKey, ...]:
    """Return the facts that have more than half of the words of a text, those that are not valid
    now too.

    Pronouns, the name of the user and the word `said`, which all texts of the user have, do not
    count; a text without other words means the user if it has that name. Data of adapters is not
    looked at. The caller holds the read lock. Raises InvalidInput for more than MAX_MEANT facts,
    and BudgetExceeded.
    """
    about = _without_request(about)
    text, subject_words = _subject(about, user, budget)
    named = _double_names(about)
    partition = tenant.partitions(None)[0]
    meant: list[FactKey] = []
    for stored, rows in chain(
        _found(tenant, partition, text, budget), _not_valid_now(partition, budget)
    ):
        own = frozenset(name_words(stored.schema.predicate))
        cells, arity = stored.relation.rows(rows), stored.schema.arity
        for index in budget.paced(range(len(rows))):
            args = tuple(tenant.engine.texts(cells[index * arity : (index + 1) * arity]))
            has = own.union(*(_words(arg, subject_words, budget) for arg in args))
            for name in named:
                if not name <= has:
                    has -= name
            if 2 * len(subject_words & has) > len(subject_words):
                meant.append((None, stored.schema.predicate, args, stored.schema.positive))
        if len(meant) > MAX_MEANT:
            raise InvalidInput.at("about", f"means more than {MAX_MEANT:,} facts; use more words")
    return tuple(meant)


def _without_request(about: str) -> str:
    """Return what "please forget ..." names."""
    begin = _REQUEST.match(about)
    named = about if begin is None else about[begin.end() :]
    end = named.rstrip(" .!?")
    return end[: -len("please")].rstrip(" ,") if end.lower().endswith(" please") else named


def _subject(about: str, user: str, budget: Budget) -> tuple[str, frozenset[str]]:
    """Return the text that a search looks for, and its words."""
    name = frozenset(words(user))
    ignored = name.union(name_words(EPISODE))

    def is_ignored(run: str) -> bool:
        return run.casefold() in PRONOUNS or ignored.issuperset(words(run))

    text = without_words(about, is_ignored, budget.yield_now)
    if subject_words := frozenset(words(text, budget.yield_now)):
        return text, subject_words
    return user, name if name.issubset(words(about, budget.yield_now)) else frozenset()


def _found(
    tenant: Tenant, partition: Partition, text: str, budget: Budget
) -> Iterator[tuple[StoredRelation, array[int]]]:
    """Yield the rows of valid facts with a word of a text, by relation."""
    count = max(1, sum(each.relation.counts().visible for each in partition.relations()))
    groups: dict[StoredRelation, array[int]] = {}
    for stored, row, _ in LexicalIndex.of(tenant).search(
        partition, text, count, budget, _PREDICATES
    ):
        groups.setdefault(stored, array("I")).append(row)
    yield from groups.items()


def _not_valid_now(
    partition: Partition, budget: Budget
) -> Iterator[tuple[StoredRelation, array[int]]]:
    """Yield the rows of facts that have ended or begin later, by relation."""
    for stored in budget.paced(partition.relations()):
        counts, every = stored.relation.counts(), [0] * stored.schema.arity
        if counts.live > counts.visible and stored.schema.predicate in _PREDICATES:
            valid = frozenset(stored.relation.match(every, yield_now=budget.yield_now)[1])
            _, rows = stored.relation.match(every, hidden=True, yield_now=budget.yield_now)
            yield stored, array("I", [row for row in budget.paced(rows) if row not in valid])


def _words(arg: str, subject: frozenset[str], budget: Budget) -> frozenset[str]:
    """Return the words of an argument, but no part of a double name that is not named whole."""
    dates = date_words(arg)
    if any(not name <= subject for name in _double_names(arg)):
        arg = _DOUBLE_NAME.sub(
            lambda each: each.group() if frozenset(words(each.group())) <= subject else " ", arg
        )
    return frozenset([*words(arg, budget.yield_now), *words(" ".join(dates))])


def _double_names(text: str) -> list[frozenset[str]]:
    return [
        frozenset(words(each))
        for each in _DOUBLE_NAME.findall(text)
        if all(part[0].isupper() for part in each.split("-"))
    ]
