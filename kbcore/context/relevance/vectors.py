"""How near facts are to a text in meaning: vectors of their texts, kept beside a tenant, and how they blend with words.

match = (1 - VECTOR_WEIGHT) * BM25 share + VECTOR_WEIGHT * cosine, where a cosine below NEAR counts as 0. Looked at are the
facts with words of the text, the best first, then those that matter most: POOL in all. Without an embedder the match is the
BM25 share.
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
    """A fact as an embedder reads it: first argument, predicate as words, the other arguments."""
    said = " ".join(words(row["predicate"])) or row["predicate"]
    args = row["args"]
    return " ".join([*args[:1], *(["not"] if row["negated"] else []), said, *args[1:]])


def pool(supply: Supply, predicates: Sequence[str] | None) -> list[Candidate]:
    """The facts whose meaning is looked at; the caller holds the read lock."""
    return list(islice(supply.best(predicates, POOL), POOL))


def blended(lexical: Lexical, facts: Iterable[Candidate], near: Near) -> Lexical:
    """How well facts match by words and by meaning; those that do neither are missing."""
    found = {where: (1 - VECTOR_WEIGHT) * share for where, share in lexical.items()}
    for fact in facts:
        if fact.place is not None and (cosine := near.get(text_of(fact.row), 0.0)) >= NEAR:
            where = fact.place.stored, fact.place.place
            found[where] = found.get(where, 0.0) + VECTOR_WEIGHT * min(cosine, 1.0)
    return found


class Vectors:
    """The vectors of a tenant's fact texts, by text, those used last at the end."""

    def __init__(self, dimension: int) -> None:
        self._most = max(POOL, STORE_BYTES // (4 * max(dimension, 1)))
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Vector] = OrderedDict()

    @classmethod
    def of(cls, tenant: Tenant, dimension: int) -> Vectors:
        """Those of a tenant, none at first; a transaction has those of the tenant below."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        found = home.attached.get("vectors")
        return cast(
            Vectors, home.attached.setdefault("vectors", cls(dimension)) if found is None else found
        )

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        """Forget all of them."""
        self._known.clear()

    def near(self, embedding: Embedding, query: str, texts: Sequence[str]) -> Near | None:
        """How near texts are to a query; what has no vector yet gets one. No lock of the tenant may be held.

        None where the query has no vector; a text without one is missing.
        """
        wanted = dict.fromkeys([query, *texts])
        with self._lock:
            known = {
                text: vector for text in wanted if (vector := self._known.get(text)) is not None
            }
        new = [text for text in wanted if text not in known]
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
