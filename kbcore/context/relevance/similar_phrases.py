"""Phrases of a question that mean a predicate in other words, by the vectors of a sentence model.

Each phrase of a question is compared with the name and the gloss of each predicate, and so is each
word of the phrase that the predicate does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import mul
from typing import NamedTuple

from kbcore.context.relevance.predicates_asked import Signature
from kbcore.search.embedder import Embedding, Vector

MIN_COSINE = 0.46
"""Least cosine of a phrase and a predicate that it can mean."""

MIN_WORD_COSINE = 0.3
"""Least cosine of a word of the phrase and the predicate: in "the drug mia refuses" it is low for
`refuses`, where that of the phrase is high.
"""

MAX_BEHIND = 0.08
"""Difference from the highest cosine up to which a predicate can be meant."""

MAX_TEXTS = 8192
"""Texts of predicates and words whose vectors are cached."""

TEXTS_PER_YIELD = 100
"""Predicates compared between two calls of `yield_now`: about a millisecond."""

_vectors: dict[tuple[str, str], Vector] = {}
"""Vectors of texts of predicates and of words, by the name of the model and the text."""


class Phrase(NamedTuple):
    """A phrase of a question, with the words that a similar predicate can have, by number."""

    text: str
    words: tuple[tuple[int, str], ...]


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
    name = embedding.name
    kept = {*texts.values(), *(word for phrase in phrases for _, word in phrase.words)}
    of_texts = {text: _vectors[name, text] for text in kept if (name, text) in _vectors}
    missing = [text for text in kept if text not in of_texts]
    asked = [each.text for each in phrases]
    vectors = embedding.vectors([*asked, *missing])
    if len(vectors) < len(asked) + len(missing):
        return {}
    of_texts.update(zip(missing, vectors[len(asked) :], strict=True))
    if len(_vectors) + len(missing) > MAX_TEXTS:
        _vectors.clear()
    _vectors.update({(name, text): of_texts[text] for text in missing})
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
                text = of_texts[texts[signature]]
                numbers = frozenset(
                    number
                    for number, word in phrase.words
                    if sum(map(mul, of_texts[word], text)) >= MIN_WORD_COSINE
                )
                similar.setdefault(signature, []).append(SimilarPhrase(numbers, cosine))
    return {signature: _disjoint(several) for signature, several in similar.items()}


def _disjoint(several: Sequence[SimilarPhrase]) -> list[SimilarPhrase]:
    """Return the most similar phrases that have no word in common."""
    chosen: list[SimilarPhrase] = []
    for each in sorted(several, key=lambda each: each.cosine, reverse=True):
        if all(each.numbers.isdisjoint(other.numbers) for other in chosen):
            chosen.append(each)
    return chosen
