"""Semantic similarity of facts to a query: embedding vectors of fact texts, blended with BM25.

match = (1 - VECTOR_WEIGHT) * BM25 share + VECTOR_WEIGHT * cosine, where a cosine below NEAR counts
as 0. The facts compared are those that match by words, best first, then the most salient ones: POOL
in all. Without an embedder the match is the BM25 share.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import mul
from typing import cast

from kbcore.context.capacity import Candidate
from kbcore.context.ranking import Lexical, Supply
from kbcore.context.text.phrases import words
from kbcore.search.embedder import Embedding, Vector
from kbcore.state.facts import Row
from kbcore.state.overlay import Overlay
from kbcore.state.tenant import Tenant

VECTOR_WEIGHT = 0.5
"""The weight of vector similarity in a match; words have the rest."""

NEAR = 0.3
"""Cosines below say nothing: most texts have something in common."""

POOL = 512
"""Facts that are compared with a text."""

STORE_BYTES = 32 << 20
"""Bytes of the vectors of a tenant; of more those go that were not used for longest."""

Near = Mapping[str, float]
"""Cosine of fact texts to a query."""


def text_of(row: Row) -> str:
    """Return the text of a fact for an embedder: first argument, predicate as words, other
    arguments.
    """
    phrase = " ".join(words(row["predicate"])) or row["predicate"]
    args = row["args"]
    return " ".join([*args[:1], *(["not"] if row["negated"] else []), phrase, *args[1:]])


def pool(supply: Supply, predicates: Sequence[str] | None) -> list[Candidate]:
    """Return the facts that are compared by vector; the caller holds the read lock."""
    return list(islice(supply.best(predicates, POOL), POOL))


def blended(lexical: Lexical, facts: Iterable[Candidate], near: Near) -> Lexical:
    """Return the blended match of facts by words and vectors, without facts that match by neither."""
    matches = {where: (1 - VECTOR_WEIGHT) * share for where, share in lexical.items()}
    for fact in facts:
        if fact.ranked is not None and (cosine := near.get(text_of(fact.row), 0.0)) >= NEAR:
            where = fact.ranked.stored, fact.ranked.row_id
            matches[where] = matches.get(where, 0.0) + VECTOR_WEIGHT * min(cosine, 1.0)
    return matches


class Vectors:
    """Cache of the vectors of a tenant's fact texts, by text, least recently used first."""

    def __init__(self, dimension: int) -> None:
        self._most = max(POOL, STORE_BYTES // (4 * max(dimension, 1)))
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Vector] = OrderedDict()

    @classmethod
    def of(cls, tenant: Tenant, dimension: int) -> Vectors:
        """Return the cache of a tenant; a transaction uses the cache of its underlying tenant."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        vectors = home.attached.get("vectors")
        return cast(
            Vectors,
            home.attached.setdefault("vectors", cls(dimension)) if vectors is None else vectors,
        )

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        """Remove all vectors."""
        self._known.clear()

    def near(self, embedding: Embedding, query: str, texts: Sequence[str]) -> Near | None:
        """Return the similarity of texts to a query, computing missing vectors.

        The result is None if the query has no vector; texts without a vector are left out. The
        caller must not hold a lock of the tenant.
        """
        needed = dict.fromkeys([query, *texts])
        with self._lock:
            known = {
                text: vector for text in needed if (vector := self._known.get(text)) is not None
            }
        new = [text for text in needed if text not in known]
        known.update(zip(new, embedding.vectors(new), strict=False))
        with self._lock:
            for text, vector in known.items():
                self._known[text] = vector
                self._known.move_to_end(text)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        asked = known.get(query)
        return (
            None
            if asked is None
            else {text: sum(map(mul, asked, vector)) for text, vector in known.items()}
        )
