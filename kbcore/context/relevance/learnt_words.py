"""Words of a predicate that are learnt from the passages on which its facts are based.

Where the facts of `employer` come from texts such as "Mia is on the payroll of Acme", `payroll` is
a word of it. A word has to be in several of the passages, and in those of few other predicates.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from weakref import WeakKeyDictionary

from kbcore.reason.budget import Budget
from kbcore.search.tokens import words
from kbcore.state.intervals import EVIDENCE_KEY
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant

MAX_FACTS = 24
"""Facts of a predicate whose passages are read: the latest ones."""

MIN_FACTS = 3
"""Facts with passages that a predicate needs."""

MIN_PASSAGES = 2
MIN_SHARE = 0.15
"""Least number of passages that have a word, and their share."""

MAX_PASSAGE_CHARS = 300
"""Longest passage: a longer one is about more than one fact."""

MAX_SHARE_OF_PREDICATES = 0.34
MIN_PREDICATES = 3
"""Share of the predicates with passages that may have a word, if there are as many predicates."""

PASSAGES_PER_YIELD = 20
"""Passages read between two calls of `yield_now`: about a millisecond."""

Signature = tuple[str, int]

_learnt: WeakKeyDictionary[StoredRelation, tuple[int, frozenset[str] | None]] = WeakKeyDictionary()
"""Words by relation, with the generation of the tenant for which they are valid."""


def learnt_words(
    tenant: Tenant, relations: Mapping[Signature, list[StoredRelation]], budget: Budget
) -> dict[Signature, frozenset[str]]:
    """Return the words of predicates that their passages have, as stems.

    The caller holds the read lock. Raises BudgetExceeded.
    """
    learnt: dict[Signature, frozenset[str]] = {}
    for signature, several in relations.items():
        for stored in several:
            if len(stored.metadata) >= MIN_FACTS:
                stems = _words_of(tenant, stored, budget)
                if stems is not None:
                    learnt[signature] = learnt.get(signature, frozenset()) | stems
    if len(learnt) < MIN_PREDICATES:
        return learnt
    common = Counter(stem for each in learnt.values() for stem in each)
    most = max(1.0, MAX_SHARE_OF_PREDICATES * len(learnt))
    usual = frozenset(stem for stem, count in common.items() if count > most)
    return {signature: each - usual for signature, each in learnt.items()}


def _words_of(tenant: Tenant, stored: StoredRelation, budget: Budget) -> frozenset[str] | None:
    """Return the words that several passages of a relation have; None with too few passages."""
    known = _learnt.get(stored)
    if known is not None and known[0] == tenant.generation:
        return known[1]
    counts: Counter[str] = Counter()
    total = 0
    for own in budget.paced(_passages(tenant, stored), PASSAGES_PER_YIELD):
        counts.update(own)
        total += 1
    least = max(MIN_PASSAGES, MIN_SHARE * total)
    stems = None
    if total >= MIN_FACTS:
        stems = frozenset(stem for stem, count in counts.items() if count >= least)
    _learnt[stored] = tenant.generation, stems
    return stems


def _passages(tenant: Tenant, stored: StoredRelation) -> Iterator[frozenset[str]]:
    """Yield the words of the passages of the latest facts, without those of their arguments."""
    tenant.note_episodes()
    for row, metadata in islice(reversed(stored.metadata.items()), MAX_FACTS):
        for span in metadata.get(EVIDENCE_KEY, ())[:1]:
            episode = tenant.episodes.get(span["episode"])
            if episode is None:
                continue
            text = episode.text[span.get("start") or 0 : span.get("end")]
            if len(text) <= MAX_PASSAGE_CHARS:
                values = tenant.engine.texts(array("I", row))
                yield frozenset(words(text)).difference(*map(words, values))
