"""BM25 computed from its definition."""

from __future__ import annotations

import math
from collections import Counter

from kbcore.search.tokens import words

K1, B = 1.2, 0.75


def scores(facts, text):
    """The score of each of some (predicate, *args), as a share of the most that each word once can
    give.
    """
    documents = [Counter(word for part in fact for word in words(part)) for fact in facts]
    lengths = [sum(document.values()) for document in documents]
    mean = sum(lengths) / len(lengths) if facts else 0
    total, most = [0.0] * len(facts), 0.0
    for word, times in Counter(words(text)).items():
        having = sum(word in document for document in documents)
        if not having:
            continue
        weight = times * math.log(1 + (len(facts) - having + 0.5) / (having + 0.5))
        most += weight * (K1 + 1) / (1 + K1 * (1 - B))
        for at, document in enumerate(documents):
            n = document[word]
            total[at] += weight * n * (K1 + 1) / (n + K1 * (1 - B + B * lengths[at] / mean))
    return [min(1.0, one / most) if one else 0.0 for one in total]


def coverages(facts, text):
    """The share of the distinct words of a text, by their weights, that each of some facts has."""
    documents = [{word for part in fact for word in words(part)} for fact in facts]
    weights = {}
    for word in words(text):
        having = sum(word in document for document in documents)
        weights[word] = math.log(1 + (len(facts) - having + 0.5) / (having + 0.5))
    total = sum(weights.values())
    return [
        sum(weights[word] for word in weights if word in document) / total if total else 0.0
        for document in documents
    ]
