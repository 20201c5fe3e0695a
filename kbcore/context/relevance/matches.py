"""Search for stored facts that match the query of a window, by words and optionally by embeddings."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kbcore.context.ranking import Lexical
from kbcore.context.request import WindowRequest
from kbcore.reason.budget import Budget
from kbcore.search.bm25 import Found, LexicalIndex
from kbcore.search.dates import resolved_dates
from kbcore.search.tokens import in_first_person
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant

MATCHES_PER_FACT = 4
"""Matches that are ranked for each fact a window holds: some of them may not be wanted."""

MATCHES_PER_CAPPED_FACT = 64
"""The same where the number of facts of a predicate is limited."""

MAX_TIED_MATCHES = 16_384
"""Matches of a partition up to which more are looked at where salience could still change their order."""

ASKER_FACTOR = 2.0
"""Factor for the match of a fact about the asker."""


def matching_facts(
    tenant: Tenant,
    partitions: Sequence[Partition],
    request: WindowRequest,
    salience_weight: float,
    budget: Budget,
) -> Lexical:
    """Return the BM25 share of the best matching facts, doubled for facts about the asker.

    First-person words of the query count as the name of the asker, and dates relative to the instant
    of the request, such as "last May", as those dates. The caller holds the read lock.
    Raises BudgetExceeded.
    """
    if request.query is None:
        return {}
    text, asker = request.query, request.asker
    if dates := resolved_dates(text, tenant.at(budget.now or 0)):
        text = f"{text} {dates}"
    if asker is not None and in_first_person(text):
        text = f"{asker} {text}"
    index = LexicalIndex.of(tenant)
    hits = [
        hit
        for partition in partitions
        for hit in _best_matches(index, partition, text, request, salience_weight, budget)
    ]
    about = _facts_about(asker, hits, tenant) if asker is not None else set()
    return {
        (stored, row): share * ASKER_FACTOR if (stored, row) in about else share
        for stored, row, share in hits
    }


def at_least(lexical: Lexical, share_of_best: float) -> Lexical:
    """Return the matches with at least a share of the best match."""
    if share_of_best <= 0 or not lexical:
        return lexical
    least = share_of_best * max(lexical.values())
    return {fact: match for fact, match in lexical.items() if match >= least}


def _best_matches(
    index: LexicalIndex,
    partition: Partition,
    text: str,
    request: WindowRequest,
    salience_weight: float,
    budget: Budget,
) -> list[Found]:
    """Return the best matches of a partition, enough to contain the first `max_facts` after
    ranking.

    Salience and the asker can raise a match by a limited amount. At most MAX_TIED_MATCHES further
    matches are examined for this.
    """
    capped = request.max_per_predicate is not None or bool(request.buckets)
    count = request.max_facts * (MATCHES_PER_CAPPED_FACT if capped else MATCHES_PER_FACT)
    factor = 1.0 if request.asker is None else ASKER_FACTOR
    while True:
        hits = index.search(partition, text, count, budget, request.predicates)
        if len(hits) < count or count >= MAX_TIED_MATCHES:
            return hits
        best, last_wanted, last = hits[0][2], hits[request.max_facts - 1][2], hits[-1][2]
        if factor * (last + salience_weight * best) < last_wanted:
            return hits
        count = min(8 * count, MAX_TIED_MATCHES)


def _facts_about(
    constant: str, hits: Sequence[Found], tenant: Tenant
) -> set[tuple[StoredRelation, int]]:
    """Return the facts that have a constant among their arguments."""
    symbol = tenant.engine.find(constant)
    ids: dict[StoredRelation, array[int]] = {}
    for stored, row, _ in hits:
        ids.setdefault(stored, array("I")).append(row)
    about: set[tuple[StoredRelation, int]] = set()
    for stored, rows in ids.items():
        arity, symbols = stored.schema.arity, stored.relation.rows(rows)
        about.update(
            (stored, row)
            for at, row in enumerate(rows)
            if symbol in symbols[at * arity : (at + 1) * arity]
        )
    return about
