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
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import count, pairwise
from operator import itemgetter
from weakref import WeakKeyDictionary, ref

from kbcore.reason.budget import Budget
from kbcore.search.dates import MONTHS, WEEKDAYS, date_words, words_of_day
from kbcore.search.postings import Postings
from kbcore.search.tokens import name_words, words
from kbcore.state.overlay import Overlay
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute, Engine
from kbplanner.engine.lexical import EXCLUDED_RANK, MAX_WORDS, Matching
from kbplanner.pacing import YieldNow, go_on, paced, sorted_in_parts

K1 = 1.2
B = 0.75
"""BM25 parameters: `K1` sets how fast repetitions of a word saturate, `B` how much length is
normalised.
"""

PAIR_WEIGHT = 0.2
"""Weight of two words that stand side by side in the query and in a fact."""

DATE_WEIGHT = 2.0
"""Weight of a word of a date that is a fact's first day, but none of its words: about that of a
word which one of seven facts has.
"""

NO_SATURATION = 1e-12
"""In place of `K1`, so that a word counts once however often a fact has it.

The engine needs a number above 0.
"""

ROUNDING = 1 - 1e-9
"""Factor for minimum scores, which covers the rounding of a share of the highest possible score."""

DAY_NUMBERS = frozenset(map(str, range(1, 32)))
YEAR_DIGITS = 4
DAY_MS = 86_400_000

MAX_QUERY_WORDS = MAX_WORDS
"""Maximum number of query words: the first distinct words that occur in a fact."""

SHORT_TEXT = 1000
"""Characters of a text whose words are found without a turn for others."""

FILL_SECONDS = 0.1
"""Time for which a request indexes new facts before it answers from those that are indexed."""

FILL_WORDS = 30_000
"""Words that a request indexes at least, so that small tenants are always answered in full: about a
tenth of a second.
"""

FILL_SHARE = 0.25
"""Share of the remaining time of a request that this may take."""

HITS_PER_YIELD = 2000
TEXTS_PER_YIELD = 100
"""Facts that were found, and texts whose words are looked at, between two turns of others: about a
millisecond.
"""

PIECES_AT_ONCE = 5
"""Pieces of work in the background between two looks for others: about five milliseconds."""

Found = tuple[StoredRelation, int, float]
"""A fact: its relation, its row id while the read lock is held, its score."""


class LexicalIndex:
    """The full-text index of one tenant; the caller holds the tenant's read lock.

    The words of a symbol never change and are computed once; they are kept as packed integers, half
    the size of a tuple. Writes do not update the index: `fill`
    indexes new facts, for the next search or in the background. Searches find the facts that are
    indexed. A transaction reads the index of its base tenant and separate indexes of its own copies
    of relations.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = ref(tenant)
        self._engine = tenant.engine
        self._mutex = threading.Lock()
        self._vocabulary: dict[str, int] = {}
        self._symbols: dict[int, bytes] = {0: b""}
        self._words_read = 0
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
        predicates: Container[str] | None = None,
    ) -> list[Found]:
        """Index all facts, and return the `k` visible facts of a partition that match a text best,
        best first.

        Scores are in (0, 1]; facts without a word of the text are left out. `predicates` restricts
        the result to these predicates; word weights do not change. Ties are ordered by predicate,
        arity and sign, then by age, oldest first. Raises BudgetExceeded.
        """
        while self.fill([partition], budget) < 1:
            budget.check_time()
        return self.query(partition, text, budget, predicates).best(k)

    def fill(self, partitions: Iterable[Partition], budget: Budget) -> float:
        """Index facts that are not indexed yet, newest first; return the indexed share of all facts
        of the partitions, 1.0 if nothing is left.

        The work ends after FILL_SECONDS, but not before FILL_WORDS words are indexed, on a slow
        machine too; it ends earlier if a request has little time left. Raises BudgetExceeded.
        """
        clock, now = budget.clock, budget.clock.monotonic()
        last = now + FILL_SHARE * max(0.0, budget.deadline - now)
        enough_words = self._words_read + FILL_WORDS

        def is_enough() -> bool:
            time_now, is_done = clock.monotonic(), self._words_read >= enough_words
            return time_now >= last or (is_done and time_now >= now + FILL_SECONDS)

        yield_now = _yield_of(budget)
        waiting = known = 0
        for partition in partitions:
            with self._mutex:
                shelves = self._current(partition, yield_now, is_enough)
                waiting += sum(shelf.postings.pending for shelf in shelves)
                known += sum(len(shelf.postings.shown) for shelf in shelves)
        return indexed_share(waiting, known)

    def include_all(self, home: Tenant) -> None:
        """Begin the index of all partitions, for `fill_more`; `home` is the tenant of the index."""
        with self._mutex:
            for partition in home.partitions():
                if partition not in self._shelves:
                    self._shelves[partition] = _PostingShelf(Postings(self._words_of), [])

    def fill_more(self, home: Tenant, yield_now: YieldNow) -> bool:
        """Do a piece of the work of `fill` for the partitions of which an index was begun; return
        whether more is left.
        """
        with self._mutex:
            for partition in home.partitions():
                shelf = self._shelves.get(partition)
                if shelf is not None and shelf.is_behind(home):
                    shelf = self._shelf(home, partition, yield_now, _after(PIECES_AT_ONCE))
                    if shelf.is_behind(home):
                        return True
        return False

    def is_behind(self, home: Tenant) -> bool:
        """Return whether `fill_more` has work to do; needs no lock of the tenant."""
        with self._mutex:
            return any(shelf.is_behind(home) for shelf in list(self._shelves.values()))

    def counts(self) -> tuple[int, int]:
        """Return the number of facts that wait to be indexed, and of all facts of the index; needs
        no lock of the tenant.
        """
        waiting = known = 0
        with self._mutex:
            for partition, shelf in list(self._shelves.items()):
                is_begun = shelf.version >= 0
                waiting += shelf.postings.pending if is_begun else partition.live()
                known += len(shelf.postings.shown) if is_begun else partition.live()
        return waiting, known

    def query(
        self,
        partition: Partition,
        text: str,
        budget: Budget,
        predicates: Container[str] | None = None,
    ) -> SearchQuery:
        """Return the query for a text, which can be searched several times under one read lock.

        Only facts that are indexed are found: see `fill`. Raises BudgetExceeded.
        """
        stems = words(text, budget.yield_now)
        query = self._query(partition, Counter(stems), budget, predicates)
        numbers = [self._vocabulary.get(stem) for stem in budget.paced(stems)]
        query.note_order(numbers)
        query.note_dates(dict(zip(stems, numbers, strict=True)))
        return query

    def numbers_of(self, stems: Iterable[str]) -> frozenset[int]:
        """Return the numbers of the stems that indexed facts have."""
        numbers = map(self._vocabulary.get, stems)
        return frozenset(number for number in numbers if number is not None)

    def covers(
        self,
        partition: Partition,
        text: str,
        share: float,
        budget: Budget,
        predicates: Container[str] | None = None,
    ) -> bool:
        """Return whether a visible fact has at least a share (above 0, at most 1) of the words of a
        text, by their weights.

        A word counts once. Words that no fact has count with the weight of the rarest ones, so that
        no fact has much of a text about something unknown. Only facts that are indexed count: see
        `fill`. Raises BudgetExceeded.
        """
        counted = dict.fromkeys(words(text, budget.yield_now), 1)
        return self._query(partition, counted, budget, predicates).covers(share, len(counted))

    def _query(
        self,
        partition: Partition,
        counted: Mapping[str, int],
        budget: Budget,
        predicates: Container[str] | None,
    ) -> SearchQuery:
        with self._mutex:
            shelves = self._current(partition, _yield_of(budget))
        numbered = {
            number: times
            for word, times in budget.paced(counted.items())
            if (number := self._vocabulary.get(word)) is not None
        }
        return SearchQuery(
            self._engine,
            self._mutex,
            self._symbols,
            shelves,
            numbered,
            predicates,
            _yield_of(budget),
        )

    def _current(
        self,
        partition: Partition,
        yield_now: YieldNow,
        is_enough: Callable[[], bool] | None = None,
    ) -> list[_PostingShelf]:
        """Update the posting lists, fill them unless `is_enough` is None, and return them.

        Lists that readers have do not change while the caller holds the read lock.
        """
        home = self._tenant()
        below = None if home is None else home.partition(partition.name)
        if home is not None and below is partition:
            return [self._shelf(home, partition, yield_now, is_enough)]
        relations = sorted(partition.relations(), key=_order)
        shelves = []
        if home is not None and below is not None:
            postings = self._shelf(home, below, yield_now, is_enough).postings
            shelves.append(_PostingShelf(postings, relations, whole=False))
        for stored in relations:
            if not any(shelf.postings.part(stored) for shelf in shelves):
                copied = self._copies.get(stored)
                if copied is None:
                    copied = self._copies[stored] = Postings(self._words_of)
                copied.update([(stored, self._own(stored))], yield_now)
                if is_enough is not None and not copied.is_merged:
                    copied.fill(yield_now, is_enough)
                shelves.append(_PostingShelf(copied, relations))
        return shelves

    def _shelf(
        self,
        home: Tenant,
        partition: Partition,
        yield_now: YieldNow,
        is_enough: Callable[[], bool] | None,
    ) -> _PostingShelf:
        shelf = self._shelves.get(partition)
        is_new = shelf is None or shelf.version != home.version
        if shelf is None or is_new:
            relations = sorted(partition.relations(), key=_order)
            postings = Postings(self._words_of) if shelf is None else shelf.postings
            # Kept before the budget may be exceeded, so that a later call continues.
            self._shelves[partition] = _PostingShelf(postings, relations)
            postings.update([(stored, self._own(stored)) for stored in relations], yield_now)
            shelf = self._shelves[partition] = _PostingShelf(
                postings, relations, version=home.version
            )
        if is_enough is not None and not shelf.postings.is_merged:
            try:
                shelf.postings.fill(yield_now, is_enough, in_place=is_new)
            finally:
                shelf = _PostingShelf(shelf.postings, shelf.relations, version=shelf.version)
                self._shelves[partition] = shelf
        return shelf

    def _own(self, stored: StoredRelation) -> tuple[int, ...]:
        return self._numbered(name_words(stored.schema.predicate))

    def _numbered(self, texts: Iterable[str]) -> tuple[int, ...]:
        vocabulary = self._vocabulary
        return tuple([vocabulary.setdefault(word, len(vocabulary)) for word in texts])

    def _words_of(self, symbols: array[int], yield_now: YieldNow) -> list[array[int]]:
        known = self._symbols
        new = array("I", sorted(set(symbols).difference(known)))
        if new:
            for symbol, text in zip(new, self._engine.texts(new), strict=True):
                dates = date_words(text)
                stems = words(text, yield_now if len(text) > SHORT_TEXT else go_on)
                numbers = self._numbered([*stems, *words(" ".join(dates))] if dates else stems)
                known[symbol] = array("I", numbers).tobytes()
        read = [array("I", known[symbol]) for symbol in symbols]
        self._words_read += sum(map(len, read))
        return read


def indexed_share(waiting: int, known: int) -> float:
    """Return the share of indexed facts in thousandths, 1.0 only if none waits."""
    return math.floor(1000 * (known - waiting) / known) / 1000 if waiting else 1.0


def _after(pieces: int) -> Callable[[], bool]:
    """Return a function that returns True when it is called the `pieces`-th time."""
    calls = count(1)
    return lambda: next(calls) >= pieces


def _yield_of(budget: Budget) -> YieldNow:
    """Return a function that checks the deadline of a request and lets other work run.

    It does not wait for a slot: the holder of one may be waiting for the index.
    """

    def yield_now() -> None:
        budget.check_time()
        if budget.runtime_yield is not None:
            budget.runtime_yield()

    return yield_now


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

    def is_behind(self, home: Tenant) -> bool:
        """Return whether facts of the tenant may have to be indexed."""
        return self.version != home.version or not self.postings.is_merged

    def ranks_of(self, predicates: Container[str] | None) -> array[int]:
        """Return for each owner the rank of its relation, or EXCLUDED_RANK unless its predicate is
        in `predicates` (None: all).
        """
        if predicates is None:
            return self.ranks
        ranks = array("I", [EXCLUDED_RANK]) * len(self.ranks)
        for rank, stored in enumerate(self.relations):
            if (
                stored.schema.predicate in predicates
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
        words_of: Mapping[int, bytes],
        shelves: Sequence[_PostingShelf],
        counted: Mapping[int, int],
        predicates: Container[str] | None,
        yield_now: YieldNow,
    ) -> None:
        self._engine = engine
        self._yield_now = yield_now
        self._mutex = mutex
        self._words_of = words_of
        self._pairs: dict[tuple[int, int], float] = {}
        self._dates: dict[str, int | None] = {}
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
        self._only: Mapping[StoredRelation, Iterable[int]] | None = None

    def limit_to(self, facts: Mapping[StoredRelation, Iterable[int]]) -> None:
        """Search some facts only, given by their row ids; their scores stay the same."""
        self._only = facts

    @property
    def relations(self) -> Iterable[StoredRelation]:
        """Return the relations that are searched; one may occur more than once."""
        return (stored for shelf in self._shelves for stored in shelf.relations)

    def note_order(self, numbers: Sequence[int | None]) -> None:
        """Note the words of the query in their order, None for those that no fact has."""
        weights = dict(self._weights)
        for first, second in pairwise(numbers):
            if first in weights and second in weights:
                weight = max(weights[first], weights[second])
                self._pairs[first, second] = PAIR_WEIGHT * weight / self._max_score

    def pairs(self, stored: StoredRelation, rows: array[int]) -> list[float]:
        """Return for each of some rows what its pairs of words, which stand side by side in the
        query too, add to its score.

        The facts are indexed. The weight of a pair is that of its rarer word, which is at most its
        own.
        """
        if not self._pairs:
            return [0.0] * len(rows)
        arity, cells = stored.schema.arity, stored.relation.rows(rows)
        added: dict[int, float] = {}
        for symbol in paced(set(cells), self._yield_now, TEXTS_PER_YIELD):
            own = set(pairwise(self._read(symbol)))
            added[symbol] = sum(weight for pair, weight in self._pairs.items() if pair in own)
        return [
            sum(added[symbol] for symbol in cells[at : at + arity])
            for at in range(0, len(cells), arity)
        ]

    def have(self, stored: StoredRelation, rows: array[int], numbers: frozenset[int]) -> list[bool]:
        """Return for each of some rows, which are indexed, whether it has one of some words."""
        parts = (shelf.postings.part(stored) for shelf in self._shelves)
        if any(part is not None and not numbers.isdisjoint(part.own) for part in parts):
            return [True] * len(rows)
        arity, cells = stored.schema.arity, stored.relation.rows(rows)
        having = {symbol for symbol in set(cells) if not numbers.isdisjoint(self._read(symbol))}
        starts = range(0, arity * len(rows), arity) if arity else [0] * len(rows)
        return [not having.isdisjoint(cells[start : start + arity]) for start in starts]

    def note_dates(self, numbers: Mapping[str, int | None]) -> None:
        """Note the words of dates among the words of the query: months, weekdays, years, and the
        numbers of days if there is a month.
        """
        names = _date_stems()
        self._dates = {
            stem: number
            for stem, number in numbers.items()
            if stem in names or (len(stem) == YEAR_DIGITS and stem.isdigit())
        }
        if any(names.get(stem) == "month" for stem in self._dates):
            self._dates.update((stem, numbers[stem]) for stem in numbers if stem in DAY_NUMBERS)

    def dates(self, stored: StoredRelation, rows: array[int]) -> list[float]:
        """Return for each of some rows what the day since which it is valid adds to its score, if
        that was given and the query names it.

        A word of the date that the fact has anyway adds nothing.
        """
        starts = stored.relation.attributes(Attribute.VALID_FROM, rows) if self._dates else ()
        if not any(starts):
            return [0.0] * len(rows)
        arity, cells = stored.schema.arity, stored.relation.rows(rows)
        added = []
        for index, start in enumerate(paced(starts, self._yield_now, TEXTS_PER_YIELD)):
            named = self._dates.keys() & _day_stems(int(start) // DAY_MS) if start else set()
            if named:
                symbols = cells[index * arity : (index + 1) * arity]
                own = {word for symbol in symbols for word in self._read(symbol)}
                named = {stem for stem in named if self._dates[stem] not in own}
            added.append(DATE_WEIGHT * len(named) / self._max_score if named else 0.0)
        return added

    def _read(self, symbol: int) -> array[int]:
        """Return the words of a symbol that is indexed."""
        return array("I", self._words_of.get(symbol, b""))

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
            hits = sorted_in_parts(hits, self._yield_now, itemgetter(0, 1, 2))[:k]
        return [
            (relations[rank], row, min(1.0, -negative / self._max_score))
            for negative, rank, row, relations in paced(hits, self._yield_now, HITS_PER_YIELD)
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
        if minimum or symbol is not None or self._only is not None:
            visible = matching.visible
            if self._only is not None:
                with self._mutex:
                    only = shelf.postings.with_rows(self._only, self._yield_now)
                visible = _both(visible, only)
            if symbol is not None:
                with self._mutex:
                    visible = _both(visible, shelf.postings.with_symbol(symbol))
            matching = replace(
                matching, visible=visible, minimum=minimum * self._max_score * ROUNDING
            )
        indices, scores = self._engine.best_matches(matching, k)
        owners, ranks, rows = matching.owners, matching.ranks, shelf.postings.rows
        relations = shelf.relations
        hits = paced(zip(indices, scores, strict=True), self._yield_now, HITS_PER_YIELD)
        return [(-score, ranks[owners[index]], rows[index], relations) for index, score in hits]

    def _having(self, shelf: _PostingShelf, word: int) -> int:
        if shelf.whole:
            with self._mutex:
                return shelf.postings.having(word)
        return sum(self._engine.having(self._matching(shelf, [(word, 0.0)])))

    def _matching(
        self,
        shelf: _PostingShelf,
        weights: Iterable[tuple[int, float]],
        predicates: Container[str] | None = None,
    ) -> Matching:
        postings = shelf.postings
        with self._mutex:  # facts may be filled in between
            lists = [
                (places, weight)
                for word, weight in weights
                if (places := postings.facts_with(word)) is not None
            ]
            shortest, most = postings.shortest, postings.most
        return Matching(
            lists,
            K1 + 1,
            self._flat,
            self._slope,
            postings.lengths,
            postings.shown,
            postings.owners,
            shelf.ranks_of(predicates),
            shortest,
            most,
        )


@cache
def _date_stems() -> Mapping[str, str]:
    """Return what the stems of months and weekdays name."""
    months = {stem: "month" for name in MONTHS for stem in words(name)}
    return months | {stem: "weekday" for name in WEEKDAYS for stem in words(name)}


@lru_cache(maxsize=4096)
def _day_stems(day: int) -> frozenset[str]:
    """Return the words of a day, given by its number since the epoch."""
    return frozenset(words(words_of_day(day * DAY_MS)))


def _both(first: bytearray, second: bytearray) -> bytearray:
    """Return the bitwise conjunction of two arrays of the same length."""
    both = int.from_bytes(first, "little") & int.from_bytes(second, "little")
    return bytearray(both.to_bytes(len(first), "little"))


def _order(stored: StoredRelation) -> tuple[str, int, bool]:
    return stored.schema.predicate, stored.schema.arity, not stored.schema.positive
