"""Full-text search of visible facts with BM25, over the words of predicates and arguments.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the
word weight of Lucene, ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative. The engine scans
the posting lists of the query words; lists of common words are skipped once they cannot change the
result (MaxScore: Turtle and Flood, "Query evaluation: strategies and optimizations", 1995).
"""

from __future__ import annotations

import math
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary, ref

from kbcore.reason.budget import Budget
from kbcore.search.dates import date_words
from kbcore.search.postings import Postings
from kbcore.search.tokens import name_words, words
from kbcore.state.overlay import Overlay
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Engine
from kbplanner.engine.lexical import EXCLUDED_RANK, MAX_WORDS, Matching
from kbplanner.pacing import YieldNow, go_on

K1 = 1.2
B = 0.75
"""BM25 parameters: `K1` sets how fast repetitions of a word saturate, `B` how much length is
normalised.
"""

NO_SATURATION = 1e-12
"""In place of `K1`, so that a word counts once however often a fact has it.

The engine needs a number above 0.
"""

ROUNDING = 1 - 1e-9
"""Factor for minimum scores, which covers the rounding of a share of the highest possible score."""

MAX_QUERY_WORDS = MAX_WORDS
"""Maximum number of query words: the first distinct words that occur in a fact."""

SHORT_TEXT = 1000
"""Characters of a text whose words are found without a turn for others."""

Found = tuple[StoredRelation, int, float]
"""A fact: its relation, its row id while the read lock is held, its score."""


class LexicalIndex:
    """The full-text index of one tenant; the caller holds the tenant's read lock.

    The words of a symbol never change and are computed once. Writes do not update the index: new
    facts are indexed by the next search. A transaction reads the index of its base tenant and
    separate indexes of its own copies of relations.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = ref(tenant)
        self._engine = tenant.engine
        self._mutex = threading.Lock()
        self._vocabulary: dict[str, int] = {}
        self._symbols: dict[int, tuple[int, ...]] = {0: ()}
        self._shelves: WeakKeyDictionary[Partition, _PostingShelf] = WeakKeyDictionary()
        self._copies: WeakKeyDictionary[StoredRelation, Postings] = WeakKeyDictionary()

    @classmethod
    def of(cls, tenant: Tenant) -> LexicalIndex:
        """Return the index of a tenant; create an empty one on first use."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        return home.attached.need(cls, lambda: cls(home))

    def close(self) -> None:
        """Drop all indexes; relations stop recording changed rows."""
        for stored in [
            *self._copies,
            *(stored for shelf in self._shelves.values() for stored in shelf.relations),
        ]:
            stored.flips = None
        self._shelves.clear()
        self._copies.clear()

    def search(
        self,
        partition: Partition,
        text: str,
        k: int,
        budget: Budget,
        predicates: Sequence[str] | None = None,
    ) -> list[Found]:
        """Return the `k` visible facts of a partition that match a text best, best first.

        Scores are in (0, 1]; facts without a word of the text are left out. `predicates` restricts
        the result to these predicates; word weights do not change. Ties are ordered by predicate,
        arity and sign, then by age, oldest first. Raises BudgetExceeded.
        """
        return self.query(partition, text, budget, predicates).best(k)

    def query(
        self,
        partition: Partition,
        text: str,
        budget: Budget,
        predicates: Sequence[str] | None = None,
    ) -> SearchQuery:
        """Return the query for a text, which can be searched several times under one read lock.

        Raises BudgetExceeded.
        """
        return self._query(partition, Counter(words(text, budget.yield_now)), budget, predicates)

    def covers(
        self,
        partition: Partition,
        text: str,
        share: float,
        budget: Budget,
        predicates: Sequence[str] | None = None,
    ) -> bool:
        """Return whether a visible fact has at least a share (above 0, at most 1) of the words of a
        text, by their weights.

        A word counts once. Words that no fact has count with the weight of the rarest ones, so that
        no fact has much of a text about something unknown. Raises BudgetExceeded.
        """
        counted = dict.fromkeys(words(text, budget.yield_now), 1)
        return self._query(partition, counted, budget, predicates).covers(share, len(counted))

    def _query(
        self,
        partition: Partition,
        counted: Mapping[str, int],
        budget: Budget,
        predicates: Sequence[str] | None,
    ) -> SearchQuery:
        with self._mutex:
            shelves = self._current(partition, budget)
        numbered = {
            number: times
            for word, times in budget.paced(counted.items())
            if (number := self._vocabulary.get(word)) is not None
        }
        return SearchQuery(self._engine, self._mutex, shelves, numbered, predicates)

    def _current(self, partition: Partition, budget: Budget) -> list[_PostingShelf]:
        """Update and return the posting lists.

        They do not change while the caller holds the read lock.
        """
        home = self._tenant()
        below = None if home is None else home.partition(partition.name)
        if home is not None and below is partition:
            return [self._shelf(home, partition, budget)]
        relations = sorted(partition.relations(), key=_order)
        shelves = []
        if home is not None and below is not None:
            postings = self._shelf(home, below, budget).postings
            shelves.append(_PostingShelf(postings, relations, whole=False))
        for stored in relations:
            if not any(shelf.postings.part(stored) for shelf in shelves):
                copied = self._copies.get(stored)
                if copied is None:
                    copied = self._copies[stored] = Postings(self._words_of)
                copied.update([(stored, self._own(stored))], budget)
                shelves.append(_PostingShelf(copied, relations))
        return shelves

    def _shelf(self, home: Tenant, partition: Partition, budget: Budget) -> _PostingShelf:
        shelf = self._shelves.get(partition)
        if shelf is None or shelf.version != home.version:
            postings = Postings(self._words_of) if shelf is None else shelf.postings
            relations = sorted(partition.relations(), key=_order)
            if shelf is None:  # facts indexed before the budget is exceeded stay indexed
                self._shelves[partition] = _PostingShelf(postings, relations)
            postings.update([(stored, self._own(stored)) for stored in relations], budget)
            shelf = self._shelves[partition] = _PostingShelf(
                postings, relations, version=home.version
            )
        return shelf

    def _own(self, stored: StoredRelation) -> tuple[int, ...]:
        return self._numbered(name_words(stored.schema.predicate))

    def _numbered(self, texts: Iterable[str]) -> tuple[int, ...]:
        vocabulary = self._vocabulary
        return tuple([vocabulary.setdefault(word, len(vocabulary)) for word in texts])

    def _words_of(self, symbols: array[int], yield_now: YieldNow) -> list[tuple[int, ...]]:
        known = self._symbols
        new = array("I", sorted(set(symbols).difference(known)))
        if new:
            for symbol, text in zip(new, self._engine.texts(new), strict=True):
                dates = date_words(text)
                stems = words(text, yield_now if len(text) > SHORT_TEXT else go_on)
                known[symbol] = self._numbered(
                    [*stems, *words(" ".join(dates))] if dates else stems
                )
        return [known[symbol] for symbol in symbols]


class _PostingShelf:
    """Posting lists with the relations to search: all of them (`whole`) or some, at a tenant
    version.
    """

    def __init__(
        self,
        postings: Postings,
        relations: Sequence[StoredRelation],
        *,
        whole: bool = True,
        version: int = -1,
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
        """Return for each owner the rank of its relation, or EXCLUDED_RANK unless its predicate is
        in `predicates` (None: all).
        """
        if predicates is None:
            return self.ranks
        names = frozenset(predicates)
        ranks = array("I", [EXCLUDED_RANK]) * len(self.ranks)
        for rank, stored in enumerate(self.relations):
            if (
                stored.schema.predicate in names
                and (part := self.postings.part(stored)) is not None
            ):
                ranks[part.owner] = rank
        return ranks


class SearchQuery:
    """A query over the posting lists of a partition: the weights of its words, heaviest first."""

    def __init__(
        self,
        engine: Engine,
        mutex: threading.Lock,
        shelves: Sequence[_PostingShelf],
        counted: Mapping[int, int],
        predicates: Sequence[str] | None,
    ) -> None:
        self._engine = engine
        self._mutex = mutex
        self._shelves = shelves
        self._predicates = predicates
        self._total = total = sum(shelf.count for shelf in shelves)
        mean = sum(shelf.words for shelf in shelves) / total if total else 1.0
        self._flat, self._slope = K1 * (1 - B), K1 * B / mean if mean else 0.0
        weights = []
        for word, times in counted.items():
            having = sum(self._having(shelf, word) for shelf in shelves)
            if having:
                weights.append((times * self._weight(having), word))
            if len(weights) == MAX_QUERY_WORDS:
                break
        self._weights = [
            (word, weight) for weight, word in sorted(weights, key=lambda pair: -pair[0])
        ]
        self._max_score = sum(weight for _, weight in self._weights) * (K1 + 1) / (1 + self._flat)

    @property
    def relations(self) -> Iterable[StoredRelation]:
        """Return the relations that are searched; one may occur more than once."""
        return (stored for shelf in self._shelves for stored in shelf.relations)

    def best(self, k: int, minimum: float = 0.0, symbol: int | None = None) -> list[Found]:
        """Return the `k` facts that match best, best first; see `LexicalIndex.search`.

        Facts with a score below `minimum` are left out, and with `symbol` those that do not have it
        among their arguments.
        """
        if len(self._shelves) == 1:
            (shelf,) = self._shelves
            hits = self._best(shelf, k, minimum, symbol)
        else:
            hits = [hit for shelf in self._shelves for hit in self._best(shelf, k, minimum, symbol)]
            hits = sorted(hits, key=lambda hit: hit[:3])[:k]
        return [
            (relations[rank], row, min(1.0, -negative / self._max_score))
            for negative, rank, row, relations in hits
        ]

    def covers(self, share: float, count: int) -> bool:
        """Return whether a fact has a share of the `count` words of the query, by their weights.

        Words that no fact has are not among the weights of the query.
        """
        absent = min(count, MAX_QUERY_WORDS) - len(self._weights)
        total = sum(weight for _, weight in self._weights) + absent * self._weight(0)
        for shelf in self._shelves:
            matching = self._matching(shelf, self._weights, self._predicates)
            # Without saturation and length, a word gives its weight to each fact that has it.
            matching = replace(
                matching,
                scale=1.0,
                flat=NO_SATURATION,
                slope=0.0,
                minimum=share * total * ROUNDING,
            )
            if matching.words and self._engine.best_matches(matching, 1)[0]:
                return True
        return False

    def _weight(self, having: int) -> float:
        """Return the weight of a word that a number of facts have."""
        return math.log(1 + (self._total - having + 0.5) / (having + 0.5))

    def _best(
        self, shelf: _PostingShelf, k: int, minimum: float, symbol: int | None
    ) -> list[tuple[float, int, int, Sequence[StoredRelation]]]:
        """Return at most `k` best matches of a shelf: negative score, rank of the relation, row id,
        relations.
        """
        matching = self._matching(shelf, self._weights, self._predicates)
        if not matching.words:
            return []
        if minimum or symbol is not None:
            visible = matching.visible
            if symbol is not None:
                with self._mutex:
                    visible = _both(visible, shelf.postings.with_symbol(symbol))
            matching = replace(
                matching, visible=visible, minimum=minimum * self._max_score * ROUNDING
            )
        indices, scores = self._engine.best_matches(matching, k)
        owners, ranks, rows = matching.owners, matching.ranks, shelf.postings.rows
        relations = shelf.relations
        return [
            (-score, ranks[owners[index]], rows[index], relations)
            for index, score in zip(indices, scores, strict=True)
        ]

    def _having(self, shelf: _PostingShelf, word: int) -> int:
        if shelf.whole:
            return shelf.postings.having(word)
        return sum(self._engine.having(self._matching(shelf, [(word, 0.0)])))

    def _matching(
        self,
        shelf: _PostingShelf,
        weights: Iterable[tuple[int, float]],
        predicates: Sequence[str] | None = None,
    ) -> Matching:
        postings = shelf.postings
        lists = [
            (indices, weight)
            for word, weight in weights
            if (indices := postings.lists.get(word)) is not None
        ]
        lengths, visible, owners = postings.lengths, postings.shown, postings.owners
        parameters = K1 + 1, self._flat, self._slope
        return Matching(
            lists,
            *parameters,
            lengths,
            visible,
            owners,
            shelf.ranks_of(predicates),
            postings.shortest,
            postings.most,
        )


def _both(first: bytearray, second: bytearray) -> bytearray:
    """Return the bitwise conjunction of two arrays of the same length."""
    both = int.from_bytes(first, "little") & int.from_bytes(second, "little")
    return bytearray(both.to_bytes(len(first), "little"))


def _order(stored: StoredRelation) -> tuple[str, int, bool]:
    return stored.schema.predicate, stored.schema.arity, not stored.schema.positive
