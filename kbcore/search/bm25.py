"""How well stored facts match a text: BM25 over the words of predicates and arguments of what holds now.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the weight of a word as Lucene
has it, ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative. The engine walks the lists of the words asked for; those
of common words are not walked once they cannot change the outcome (MaxScore: Turtle and Flood, "Query evaluation: strategies
and optimizations", 1995).
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import cast
from weakref import WeakKeyDictionary, ref

from kbcore.reason.budget import Budget
from kbcore.search.postings import Postings
from kbcore.search.tokens import name_words, words
from kbcore.state.overlay import Overlay
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Engine
from kbplanner.engine.lexical import MAX_WORDS, UNASKED, Matching

K1 = 1.2
B = 0.75
"""How soon more of a word says nothing more, and how much a long fact has to have more of it."""

MAX_QUERY_WORDS = MAX_WORDS
"""Words of a text that count: the first so many different ones that some fact has."""

Found = tuple[StoredRelation, int, float]
"""A fact: its relation, its row id while the read lock is held, its score."""


class LexicalIndex:
    """The words of a tenant's facts, kept beside it; the caller holds the tenant's read lock.

    The words of a symbol never change and are worked out once. Writes do nothing here: what is new is worked in when a text
    is looked for. A transaction reads the index of the tenant below, and its own copies of relations beside it.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = ref(tenant)
        self._engine = tenant.engine
        self._mutex = threading.Lock()
        self._vocabulary: dict[str, int] = {}
        self._symbols: dict[int, tuple[int, ...]] = {0: ()}
        self._shelves: WeakKeyDictionary[Partition, _Shelf] = WeakKeyDictionary()
        self._copies: WeakKeyDictionary[StoredRelation, Postings] = WeakKeyDictionary()

    @classmethod
    def of(cls, tenant: Tenant) -> LexicalIndex:
        """The index of a tenant, made empty at first."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        found = home.attached.get("lexical")
        return cast(LexicalIndex, home.attached.setdefault("lexical", cls(home)) if found is None else found)

    def close(self) -> None:
        """Forget everything; relations leave no more notes."""
        for stored in [*self._copies, *(one for shelf in self._shelves.values() for one in shelf.relations)]:
            stored.flips = None
        self._shelves.clear()
        self._copies.clear()

    def search(
        self, partition: Partition, text: str, k: int, budget: Budget, predicates: Sequence[str] | None = None
    ) -> list[Found]:
        """The `k` visible facts of a partition that match best, best first, scores in (0, 1]; none without a word of it.

        With `predicates` only facts of these are found; the weights of words do not change. Of equal ones the first by
        predicate, arity and sign comes first, then the one told first. Raises BudgetExceeded.
        """
        with self._mutex:
            shelves = self._current(partition, budget)
        numbers = [number for word in words(text) if (number := self._vocabulary.get(word)) is not None]
        asked = _Asked(self._engine, shelves, Counter(numbers))
        found = [hit for shelf in shelves for hit in asked.best(shelf, k, predicates)]
        if len(shelves) > 1:
            found = sorted(found, key=lambda hit: hit[:3])[:k]
        return [(shelf.relations[rank], row, asked.share(-negative)) for negative, rank, row, shelf in found]

    def _current(self, partition: Partition, budget: Budget) -> list[_Shelf]:
        """Bring the lists to the present. Until the next write, which the read lock keeps out, they then do not change."""
        home = self._tenant()
        below = None if home is None else home.partition(partition.name)
        if home is not None and below is partition:
            return [self._shelf(home, partition, budget)]
        relations = sorted(partition.relations(), key=_order)
        found = []
        if home is not None and below is not None:
            postings = self._shelf(home, below, budget).postings
            found.append(_Shelf(postings, relations, whole=False))
        for stored in relations:
            if not any(shelf.postings.part(stored) for shelf in found):
                copied = self._copies.get(stored)
                if copied is None:
                    copied = self._copies[stored] = Postings(self._words_of)
                copied.update([(stored, self._own(stored))], budget)
                found.append(_Shelf(copied, relations))
        return found

    def _shelf(self, home: Tenant, partition: Partition, budget: Budget) -> _Shelf:
        found = self._shelves.get(partition)
        if found is None or found.version != home.version:
            postings = Postings(self._words_of) if found is None else found.postings
            relations = sorted(partition.relations(), key=_order)
            if found is None:  # what is worked in before the budget is met stays
                self._shelves[partition] = _Shelf(postings, relations)
            postings.update([(stored, self._own(stored)) for stored in relations], budget)
            found = self._shelves[partition] = _Shelf(postings, relations, version=home.version)
        return found

    def _own(self, stored: StoredRelation) -> tuple[int, ...]:
        return self._numbered(name_words(stored.schema.predicate))

    def _numbered(self, some: Iterable[str]) -> tuple[int, ...]:
        vocabulary = self._vocabulary
        return tuple([vocabulary.setdefault(word, len(vocabulary)) for word in some])

    def _words_of(self, symbols: array[int]) -> list[tuple[int, ...]]:
        known = self._symbols
        new = array("I", sorted(set(symbols).difference(known)))
        if new:
            for symbol, text in zip(new, self._engine.texts(new), strict=True):
                known[symbol] = self._numbered(words(text))
        return [known[symbol] for symbol in symbols]


class _Shelf:
    """Posting lists, and which of their relations are asked: all of them (`whole`) or some. `version` is the tenant's."""

    def __init__(
        self, postings: Postings, relations: Sequence[StoredRelation], *, whole: bool = True, version: int = -1
    ) -> None:
        self.postings = postings
        self.relations = relations
        self.whole = whole
        self.version = version
        self.ranks = postings.ranks(relations)
        parts = [part for stored in relations if (part := postings.part(stored)) is not None]
        self.count = sum(part.count for part in parts)
        self.words = sum(part.words for part in parts)

    def ranks_of(self, predicates: Sequence[str] | None) -> array[int]:
        """By owner the rank of its relation, UNASKED for relations of other predicates (None: all are asked)."""
        if predicates is None:
            return self.ranks
        wanted = frozenset(predicates)
        ranks = array("I", [UNASKED]) * len(self.ranks)
        for rank, stored in enumerate(self.relations):
            if stored.schema.predicate in wanted and (part := self.postings.part(stored)) is not None:
                ranks[part.owner] = rank
        return ranks


class _Asked:
    """A text asked of some shelves together: the weight of its words there, heaviest first."""

    def __init__(self, engine: Engine, shelves: Sequence[_Shelf], counted: Mapping[int, int]) -> None:
        self._engine = engine
        total = sum(shelf.count for shelf in shelves)
        mean = sum(shelf.words for shelf in shelves) / total if total else 1.0
        self._flat, self._slope = K1 * (1 - B), K1 * B / mean if mean else 0.0
        weights = []
        for word, times in counted.items():
            having = sum(self._having(shelf, word) for shelf in shelves)
            if having:
                weights.append((times * math.log(1 + (total - having + 0.5) / (having + 0.5)), word))
            if len(weights) == MAX_QUERY_WORDS:
                break
        self._weights = [(word, weight) for weight, word in sorted(weights, key=lambda one: -one[0])]
        self._most = sum(weight for _, weight in self._weights) * (K1 + 1) / (1 + self._flat)

    def best(
        self, shelf: _Shelf, k: int, predicates: Sequence[str] | None
    ) -> list[tuple[float, int, int, _Shelf]]:
        """The facts of a shelf that match best, at most `k`: negative score, rank of the relation, row id, shelf."""
        how = self._matching(shelf, self._weights, predicates)
        if not how.words:
            return []
        places, scores = self._engine.best_matches(how, k)
        parts, found = shelf.postings.parts, []
        for place, score in zip(places, scores, strict=True):
            owner = how.owners[place]
            found.append((-score, how.ranks[owner], bisect_left(parts[owner].places, place), shelf))
        return found

    def share(self, score: float) -> float:
        """A score as a share of what every word once in a fact of no length would have; more than that is 1."""
        return min(1.0, score / self._most)

    def _having(self, shelf: _Shelf, word: int) -> int:
        if shelf.whole:
            return shelf.postings.having(word)
        return sum(self._engine.having(self._matching(shelf, [(word, 0.0)])))

    def _matching(
        self, shelf: _Shelf, weights: Iterable[tuple[int, float]], predicates: Sequence[str] | None = None
    ) -> Matching:
        kept = shelf.postings
        lists = [(some, weight) for word, weight in weights if (some := kept.lists.get(word)) is not None]
        lengths, shown, owners = kept.lengths, kept.shown, kept.owners
        how = K1 + 1, self._flat, self._slope
        return Matching(lists, *how, lengths, shown, owners, shelf.ranks_of(predicates), kept.shortest, kept.most)


def _order(stored: StoredRelation) -> tuple[str, int, bool]:
    return stored.schema.predicate, stored.schema.arity, not stored.schema.positive
