"""Phrases of a question that mean a predicate in other words, by the vectors of a sentence model.

Each phrase of a question is compared with the name, the phrase and the gloss of each predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import mul
from typing import NamedTuple

from kbcore.context.relevance.predicates_asked import Signature
from kbcore.search.embedder import Embedding, Vector

MIN_COSINE = 0.46
"""Least cosine of a phrase and a predicate that it can mean."""

MAX_BEHIND = 0.08
"""Difference from the highest cosine up to which a predicate can be meant."""

MAX_TEXTS = 8192
"""Texts of predicates whose vectors are cached."""

TEXTS_PER_YIELD = 100
"""Predicates compared between two calls of `yield_now`: about a millisecond."""

_vectors: dict[tuple[str, str], Vector] = {}
"""Vectors of texts of predicates, by the name of the model and the text."""


class Phrase(NamedTuple):
    """A phrase of a question, with the numbers of the words that a similar predicate can
    have.
    """

    text: str
    numbers: frozenset[int]


class SimilarPhrase(NamedTuple):
    """The words of a phrase that is similar to a predicate, and the cosine."""

    numbers: frozenset[int]
    cosine: float


Similar = Mapping[Signature, Sequence[SimilarPhrase]]
"""For each predicate the phrases that can mean it, the most similar first, without common words."""


def similar_predicates(
    embedding: Embedding,
    phrases: Sequence[Phrase],
    texts: Mapping[Signature, str],
    yield_now: Callable[[], None],
) -> Similar:
    """Return the predicates that phrases can mean; none if the model fails.

    `texts` are those of the predicates. The model is called: the caller holds no lock.
    """
    known = {text: _vectors.get((embedding.name, text)) for text in texts.values()}
    missing = [text for text, vector in known.items() if vector is None]
    asked = [each.text for each in phrases]
    vectors = embedding.vectors([*asked, *missing])
    if len(vectors) < len(asked) + len(missing):
        return {}
    of_texts = {text: vector for text, vector in known.items() if vector is not None}
    of_texts.update(zip(missing, vectors[len(asked) :], strict=True))
    if len(_vectors) + len(missing) > MAX_TEXTS:
        _vectors.clear()
    _vectors.update({(embedding.name, text): of_texts[text] for text in missing})
    similar: dict[Signature, list[SimilarPhrase]] = {}
    for phrase, vector in zip(phrases, vectors, strict=False):
        cosines: dict[Signature, float] = {}
        for number, (signature, text) in enumerate(texts.items()):
            if number % TEXTS_PER_YIELD == 0:
                yield_now()
            cosines[signature] = sum(map(mul, vector, of_texts[text]))
        least = max(MIN_COSINE, max(cosines.values(), default=0.0) - MAX_BEHIND)
        for signature, cosine in cosines.items():
            if cosine >= least:
                similar.setdefault(signature, []).append(SimilarPhrase(phrase.numbers, cosine))
    return {signature: _disjoint(several) for signature, several in similar.items()}


def _disjoint(several: Sequence[SimilarPhrase]) -> list[SimilarPhrase]:
    """Return the most similar phrases that have no word in common."""
    chosen: list[SimilarPhrase] = []
    for each in sorted(several, key=lambda each: each.cosine, reverse=True):
        if all(each.numbers.isdisjoint(other.numbers) for other in chosen):
            chosen.append(each)
    return chosen
