"""Inverted index of a partition's facts: one posting list per word, updated when a search reads it.

A write only records the changed rows (`StoredRelation.flips`). Facts get consecutive places in the
order in which they are indexed, across all relations. When a relation has been compacted or
dropped, the places of its facts become unused and its remaining facts get new ones. When more than
half of all places are unused, the index is rebuilt.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from weakref import ref

from kbcore.reason.budget import Budget
from kbcore.state.partition import FLIP_GONE, FLIP_HIDDEN, FLIP_SHOWN, StoredRelation
from kbplanner.engine.lexical import EXCLUDED_RANK
from kbplanner.pacing import YieldNow, go_on

WordsOf = Callable[["array[int]", YieldNow], Sequence[tuple[int, ...]]]
"""Function from symbols to the words of their texts, which rests between pieces of work."""

BATCH_ROWS = 2000
"""Rows indexed between two budget checks."""

WORDS_BETWEEN = 20_000
"""Words of rows that are indexed between two turns of others."""

MAX_LENGTH = (1 << 16) - 1
"""Maximum stored length of a fact in words; longer facts count as this long."""

MAX_MASKS = 16
"""Symbols whose facts are remembered; of more, those are dropped that came first."""

MIN_UNUSED_PLACES = 4096
"""The index is not rebuilt while at most this many places are unused."""


class PostingPart:
    """The indexed facts of one relation: `places` by row id, `count` visible facts with `words`
    words in total.
    """

    def __init__(self, stored: StoredRelation, owner: int, own: tuple[int, ...]) -> None:
        self.stored = ref(stored)  # a weak reference: the index must not keep the relation alive
        self.arity = stored.schema.arity
        self.owner = owner
        self.own = own
        self.places = array("I")
        self.cells = array("I")
        self.count = 0
        self.words = 0


class Postings:
    """Posting lists for the facts of some relations: ascending places, repeated for repeated words.

    Arrays indexed by place: `lengths` in words, `shown` 1 for a fact that is visible now, `owners`
    indexes into `parts`, `rows` ids in the relation. `spare` counts per word the list entries that
    are repetitions or belong to hidden facts. `most` is the largest number of times any fact had a
    word, `shortest` the smallest number of words of a fact. The caller allows one thread at a time
    and holds the read lock.
    """

    def __init__(self, words_of: WordsOf) -> None:
        self._words_of = words_of
        self._begin()

    def _begin(self) -> None:
        self.lists: dict[int, array[int]] = {}
        self.spare: dict[int, int] = {}
        self.lengths = array("H")
        self.shown = bytearray()
        self.owners = array("I")
        self.rows = array("I")
        self._masks: dict[int, tuple[bytearray, dict[int, int]]] = {}
        self.parts: list[PostingPart] = []
        self.most = 1
        self.shortest = MAX_LENGTH
        self._by_relation: dict[int, PostingPart] = {}
        self._unused = 0

    def part(self, stored: StoredRelation) -> PostingPart | None:
        """Return the indexed facts of a relation, or None."""
        part = self._by_relation.get(id(stored))
        return part if part is not None and part.stored() is stored else None

    def having(self, word: int) -> int:
        """Return the number of visible facts that have a word."""
        postings = self.lists.get(word)
        return 0 if postings is None else len(postings) - self.spare.get(word, 0)

    def with_symbol(self, symbol: int) -> bytearray:
        """Return for each place 1 if its fact has a symbol among its arguments, otherwise 0.

        The result is kept, so that a later call only looks at facts that were added since.
        """
        mask, rows_done = self._masks.pop(symbol, (bytearray(), {}))
        mask.extend(bytes(len(self.shown) - len(mask)))
        for part in self.parts:
            first = rows_done.get(part.owner, 0)
            rows_done[part.owner] = len(part.places)
            for position in range(part.arity):
                column = part.cells[first * part.arity + position :: part.arity]
                for row in _places_of(symbol, column):
                    mask[part.places[first + row]] = 1
        self._masks[symbol] = mask, rows_done
        if len(self._masks) > MAX_MASKS:
            del self._masks[next(iter(self._masks))]
        return mask

    def ranks(self, order: Iterable[StoredRelation]) -> array[int]:
        """Return for each owner the index of its relation in `order`, or EXCLUDED_RANK if it is not
        in `order`.
        """
        ranks = array("I", [EXCLUDED_RANK]) * len(self.parts)
        for rank, stored in enumerate(order):
            if (part := self.part(stored)) is not None:
                ranks[part.owner] = rank
        return ranks

    def update(
        self, relations: Sequence[tuple[StoredRelation, tuple[int, ...]]], budget: Budget
    ) -> None:
        """Update the index to the current state of `relations`, each with the words of its
        predicate.

        Facts of other relations are hidden. Raises BudgetExceeded between batches; the work done
        so far is kept.
        """
        current = {id(stored): stored for stored, _ in relations}
        for key, part in list(self._by_relation.items()):
            if current.get(key) is not (relation := part.stored()) or relation is None:
                self._drop(part)
                del self._by_relation[key]
            elif relation.flips is None:
                self._drop(part)
        if self._unused > max(MIN_UNUSED_PLACES, len(self.shown) // 2):
            for stored, _ in relations:
                stored.flips = None
            self._begin()
        for stored, own in relations:
            part_of = self._by_relation.get(id(stored))
            if part_of is None:
                part_of = self._by_relation[id(stored)] = PostingPart(stored, len(self.parts), own)
                self.parts.append(part_of)
                stored.flips = None
            self._follow(part_of, stored, budget)

    def _follow(self, part: PostingPart, stored: StoredRelation, budget: Budget) -> None:
        def yield_now() -> None:
            budget.check_time()  # do not wait for a slot here: its holder may be waiting for this index
            if budget.runtime_yield is not None:
                budget.runtime_yield()

        if stored.flips is None:
            stored.flips = array("Q")
        flips, size = stored.flips, stored.relation.counts().rows
        if len(part.places) == size and not flips:
            return
        if not part.places:
            _, all_ids = stored.relation.match([0] * part.arity, hidden=True)
            _, visible = stored.relation.match([0] * part.arity)
            flips.extend(row << 2 | FLIP_HIDDEN for row in set(all_ids).difference(visible))
            flips.extend(row << 2 | FLIP_GONE for row in set(range(size)).difference(all_ids))
        gone = {flip >> 2 for flip in flips if flip & 3 == FLIP_GONE}
        while (start := len(part.places)) < size:
            self._add(part, stored, range(start, min(start + BATCH_ROWS, size)), gone, yield_now)
            if len(part.places) < size:
                yield_now()
        for flip in flips:
            self._flip(part, flip >> 2, flip & 3 == FLIP_SHOWN)
        stored.flips = array("Q")

    def _add(
        self,
        part: PostingPart,
        stored: StoredRelation,
        rows: range,
        gone: set[int],
        yield_now: YieldNow,
    ) -> None:
        arity, lists = part.arity, self.lists
        if gone:
            remaining = array("I", [row for row in rows if row not in gone])
            present, at, cells = stored.relation.rows(remaining), 0, array("I")
            for row in rows:  # a deleted row gets the place of a fact without words
                cells.extend([0] * arity if row in gone else present[at : at + arity])
                at += 0 if row in gone else arity
        else:
            cells = stored.relation.rows(array("I", rows))
        words, at, work = self._words_of(cells, yield_now), 0, 0
        for row in rows:  # each row is added as a whole: `yield_now` may raise
            if work >= WORDS_BETWEEN:
                work = 0
                yield_now()
            index = len(self.shown)
            row_words = [word for cell_words in words[at : at + arity] for word in cell_words]
            work += len(row_words)
            alive = row not in gone
            if alive:
                row_words += part.own
                for word in row_words:
                    known = lists.get(word)
                    if known is None:
                        lists[word] = array("I", (index,))
                    else:
                        known.append(index)
                if len(set(row_words)) < len(row_words):
                    self._repeated(row_words)
                part.count += 1
                part.words += min(len(row_words), MAX_LENGTH)
                self.shortest = min(self.shortest, len(row_words))
            self.lengths.append(min(len(row_words), MAX_LENGTH) if alive else 0)
            self.shown.append(alive)
            self.owners.append(part.owner)
            self.rows.append(row)
            part.cells.extend(cells[at : at + arity])
            part.places.append(index)
            at += arity

    def _repeated(self, row_words: Sequence[int]) -> None:
        for word, times in Counter(row_words).items():
            if times > 1:
                self.spare[word] = self.spare.get(word, 0) + times - 1
                self.most = max(self.most, times)

    def _flip(self, part: PostingPart, row: int, visible: bool) -> None:
        index = part.places[row]
        if self.shown[index] == visible:
            return
        step = 1 if visible else -1
        self.shown[index] = visible
        part.count += step
        part.words += step * self.lengths[index]
        symbols = part.cells[row * part.arity : (row + 1) * part.arity]
        for word in {
            word for cell_words in self._words_of(symbols, go_on) for word in cell_words
        }.union(part.own):
            self.spare[word] = self.spare.get(word, 0) - step

    def _drop(self, part: PostingPart) -> None:
        """Hide the facts of a relation permanently and clear its places."""
        for row in range(len(part.places)):
            self._flip(part, row, False)
        self._masks.clear()  # the rows that remain get new places
        self._unused += len(part.places)
        part.places, part.cells = array("I"), array("I")


def _places_of(symbol: int, column: array[int]) -> list[int]:
    """Return the indexes of a symbol in a column, ascending."""
    if symbol not in column:
        return []
    return [index for index, cell in enumerate(column) if cell == symbol]
