"""Semantic similarity of facts to a query: the nearest facts by vector, blended with BM25.

match = (1 - VECTOR_WEIGHT) * match by words / best match by words + VECTOR_WEIGHT * cosine. A fact
without a word of the query matches if its cosine is at least NEAR. Without an embedder the match is
that by words. If no fact has enough words of the query (`min_coverage`), the highest cosine has to
be that high, or nothing matches.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbcore.context.ranking import Lexical, admitted
from kbcore.context.request import WindowRequest
from kbcore.context.text.phrases import words
from kbcore.reason.budget import Budget
from kbcore.search.vectors.index import VectorIndex
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.engine.vectors import Quantized

VECTOR_WEIGHT = 0.5
"""The weight of vector similarity in a match; words have the rest."""

NEAR = 0.3
"""Least cosine of a fact that has no word of the query: most texts have something in common."""

MIN_NEAREST = 128
"""Facts that are found by their vectors, at least; for larger windows NEAREST_PER_FACT for each
fact they hold.
"""

NEAREST_PER_FACT = 4
MAX_NEAREST = 4096


SENTENCE_WORDS = 4
"""Words from which on an argument is a sentence, which says what it is about."""


def fact_text(predicate: str, args: Sequence[str], negated: bool) -> str:
    """Return the text of a fact for an embedder: first argument, predicate as words, other
    arguments.

    Of a fact with sentences these alone: names and dates in other arguments are found by words.
    """
    if sentences := [arg for arg in args if len(arg.split()) >= SENTENCE_WORDS]:
        return " ".join([*(["not"] if negated else []), *sentences])
    phrase = " ".join(words(predicate)) or predicate
    return " ".join([*args[:1], *(["not"] if negated else []), phrase, *args[1:]])


def pause_of(budget: Budget) -> None:
    """Check the deadline of a request, and let other work run.

    It does not wait for a slot: the holder of one may be waiting for the index.
    """
    budget.check_time()
    if budget.runtime_yield is not None:
        budget.runtime_yield()


def blended(
    lexical: Lexical,
    tenant: Tenant,
    partitions: Sequence[Partition],
    request: WindowRequest,
    query: Quantized,
    budget: Budget,
) -> Lexical:
    """Return the blended match of facts by words and vectors, without facts that match by neither.

    `query` is the vector of the query. The caller holds the read lock. Raises BudgetExceeded.
    """
    index = VectorIndex.of(tenant)
    if index is None:
        return lexical
    count = min(max(NEAREST_PER_FACT * request.max_facts, MIN_NEAREST), MAX_NEAREST)
    best = max(lexical.values(), default=1.0)
    matches = {where: (1 - VECTOR_WEIGHT) * match / best for where, match in lexical.items()}
    near = {}
    for partition in partitions:
        for stored, row, cosine in index.search(
            tenant,
            partition,
            query,
            count,
            lambda: pause_of(budget),
            predicates=admitted(request, partitions),
            least=NEAR,
        ):
            near[stored, row] = cosine
    if not lexical and max(near.values(), default=0.0) < request.min_coverage:
        return {}
    if unseen := [where for where in lexical if where not in near]:
        near.update(index.cosines(tenant, unseen, query))
    for where, cosine in near.items():
        matches[where] = matches.get(where, 0.0) + VECTOR_WEIGHT * min(max(cosine, 0.0), 1.0)
    return matches
