"""Inverted index of a partition's facts: one posting list per word.

A write only records the changed rows (`StoredRelation.flips`). `update` gives new facts consecutive
places, across all relations, and `fill` indexes their words, in pieces; until then they are not
found. Many new facts are filled from the newest to the oldest. When a relation has been compacted
or dropped, the places of its facts become unused and its remaining facts get new ones. When more
than half of all places are unused, the index is rebuilt.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from weakref import ref

from kbcore.errors import EngineFault
from kbcore.state.partition import FLIP_GONE, FLIP_HIDDEN, FLIP_SHOWN, StoredRelation
from kbplanner.engine.backend import Attribute
from kbplanner.engine.lexical import EXCLUDED_RANK
from kbplanner.pacing import YieldNow, go_on, paced

WordsOf = Callable[["array[int]", YieldNow], Sequence[Iterable[int]]]
"""Function from symbols to the words of their texts, which rests between pieces of work."""

BATCH_ROWS = 2000
"""Rows that get places between two calls of `yield_now`. More new rows are filled newest first."""

ROWS_AT_ONCE = 10
"""Rows filled between two calls of `yield_now` and `is_enough`: about a millisecond."""

WORDS_MERGED = 1000
"""Posting lists that are merged between two such calls."""

WORDS_BETWEEN = 20_000
"""Words of rows that are indexed between two turns of others."""

ROWS_MASKED = 5000
"""Rows whose places are marked between two turns of others: about a millisecond."""

MAX_LENGTH = (1 << 16) - 1
"""Maximum stored length of a fact in words; longer facts count as this long."""

MAX_MASKS = 16
"""Symbols whose facts are remembered; of more, those are dropped that came first."""

MIN_UNUSED_PLACES = 4096
"""The index is not rebuilt while at most this many places are unused."""


class PostingPart:
    """The indexed facts of one relation: `places` and `cells` by row id, `count` visible facts with
    `words` words in total.

    Rows in `closed` have no places and cells yet. `early` has the last change of rows before they
    got them. `first` has the number of rows when the relation was first read, which of them existed
    and which were visible, in ascending order; None: all.
    """

    def __init__(self, stored: StoredRelation, owner: int, own: tuple[int, ...]) -> None:
        self.stored = ref(stored)  # a weak reference: the index must not keep the relation alive
        self.arity = stored.schema.arity
        self.owner = owner
        self.own = own
        self.clear()
        self.count = 0
        self.words = 0

    def clear(self) -> None:
        """Forget all rows."""
        self.places = array("I")
        self.cells = array("I")
        self.closed = range(0)
        self.early: dict[int, int] = {}
        self.first: tuple[int, array[int], array[int]] | None = None

    def hidden_and_gone(self, rows: range) -> tuple[set[int], set[int]]:
        """Return the hidden and the removed ones of rows that get their places."""
        hidden, gone = set[int](), set[int]()
        if self.first is not None:
            size, *known = self.first
            ids, visible = (
                set(each[bisect_left(each, rows.start) : bisect_left(each, rows.stop)])
                for each in known
            )
            gone = set(range(rows.start, min(rows.stop, size))).difference(ids)
            hidden = ids - visible
        if self.early:
            for row in rows:
                flip = self.early.pop(row, None)
                if flip is not None:
                    (gone if flip == FLIP_GONE else hidden).add(row)
                    if flip == FLIP_SHOWN:
                        hidden.discard(row)
        return hidden, gone


class Postings:
    """Posting lists for the facts of some relations: places, repeated for repeated words.

    Arrays indexed by place: `lengths` in words, `shown` 1 for a fact that is visible now, `owners`
    indexes into `parts`, `rows` ids in the relation. `pending` is the number of facts whose words
    are not indexed yet. `spare` counts per word the list entries that are repetitions or belong to
    hidden facts. `most` is the largest number of times any fact had a word, `shortest` the smallest
    number of words of a fact. The caller allows one thread at a time and holds the read lock.

    The facts that wait are those from `_low` to before `_mark`, which are filled from the end
    (`_backlog`, into the descending lists `_older`), and those from `_next` on (`_ahead`, into
    `_newer`).
    """

    def __init__(self, words_of: WordsOf) -> None:
        self._words_of = words_of
        self._begin()

    def _begin(self) -> None:
        self._lists: dict[int, array[int]] = {}
        self._older: dict[int, array[int]] = {}
        self._newer: dict[int, array[int]] = {}
        self._backlog: list[_Waiting] = []
        self._ahead: deque[_Waiting] = deque()
        self._low = self._mark = self._next = 0
        self._gone: set[int] = set()
        self.pending = 0
        self.spare: dict[int, int] = {}
        self.lengths = array("H")
        self.shown = bytearray()
        self.owners = array("I")
        self.rows = array("I")
        self._masks: dict[int, tuple[bytearray, dict[int, tuple[int, range]]]] = {}
        self.parts: list[PostingPart] = []
        self.most = 1
        self.shortest = MAX_LENGTH
        self._by_relation: dict[int, PostingPart] = {}
        self._unused = 0

    def part(self, stored: StoredRelation) -> PostingPart | None:
        """Return the indexed facts of a relation, or None."""
        part = self._by_relation.get(id(stored))
        return part if part is not None and part.stored() is stored else None

    @property
    def is_merged(self) -> bool:
        """True if all facts are filled and all posting lists are merged."""
        return not (self.pending or self._older or self._newer)

    def having(self, word: int) -> int:
        """Return the number of visible facts that have a word."""
        count = sum(
            len(lists[word]) for lists in (self._lists, self._older, self._newer) if word in lists
        )
        return count - self.spare.get(word, 0)

    def facts_with(self, word: int) -> array[int] | None:
        """Return the places of the facts that have a word, or None; later fills do not change the
        array.
        """
        lists, older, newer = (known.get(word) for known in (self._lists, self._older, self._newer))
        if older is None and newer is None:
            return lists
        return _joined(lists, older, newer)

    def with_symbol(self, symbol: int) -> bytearray:
        """Return for each place 1 if its fact has a symbol among its arguments, otherwise 0.

        The result is kept, so that a later call only looks at facts that were added since.
        """
        mask, rows_done = self._masks.pop(symbol, (bytearray(), {}))
        mask.extend(bytes(len(self.shown) - len(mask)))
        for part in self.parts:
            done = rows_done.get(part.owner, (0, range(0)))
            rows_done[part.owner] = len(part.places), part.closed
            for rows in _new_rows(part, *done):
                for position in range(part.arity):
                    first, last = rows.start * part.arity, rows.stop * part.arity
                    column = part.cells[first + position : last : part.arity]
                    for row in _places_of(symbol, column):
                        mask[part.places[rows.start + row]] = 1
        self._masks[symbol] = mask, rows_done
        if len(self._masks) > MAX_MASKS:
            del self._masks[next(iter(self._masks))]
        return mask

    def with_rows(
        self, facts: Mapping[StoredRelation, Iterable[int]], yield_now: YieldNow
    ) -> bytearray:
        """Return for each place 1 if its fact is among those given by row ids, otherwise 0."""
        mask = bytearray(len(self.shown))
        for stored, rows in facts.items():
            if (part := self.part(stored)) is not None:
                for row in paced(rows, yield_now, ROWS_MASKED):
                    if row < len(part.places) and row not in part.closed:
                        mask[part.places[row]] = 1
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
        self, relations: Sequence[tuple[StoredRelation, tuple[int, ...]]], yield_now: YieldNow
    ) -> None:
        """Follow the current state of `relations`, each with the words of its predicate.

        New facts get places, and wait to be filled. Facts of other relations are hidden. What
        `yield_now` raises ends the update, which a later call continues.
        """
        current = {id(stored): stored for stored, _ in relations}
        left = []
        for key, part in list(self._by_relation.items()):
            relation = part.stored()
            if relation is None or current.get(key) is not relation:
                del self._by_relation[key]
                left.append(part)
            elif relation.flips is None:
                left.append(part)
        unused = self._unused + sum(len(part.places) for part in left)
        if unused > max(MIN_UNUSED_PLACES, len(self.shown) // 2):
            for stored, _ in relations:
                stored.flips = None
            self._begin()
        else:
            for part in left:
                self._drop(part)
        parts = []
        for stored, own in relations:
            part_of = self._by_relation.get(id(stored))
            if part_of is None:
                part_of = self._by_relation[id(stored)] = PostingPart(stored, len(self.parts), own)
                self.parts.append(part_of)
                stored.flips = None
            counts = stored.relation.counts()
            if not part_of.places and counts.rows > counts.visible:
                _, ids = stored.relation.match([0] * part_of.arity, hidden=True)
                _, visible = stored.relation.match([0] * part_of.arity)
                part_of.first = counts.rows, ids, visible
            flips, stored.flips = stored.flips or (), array("Q")
            for flip in flips:
                self._flip(part_of, flip >> 2, flip & 3)
            if len(part_of.places) < counts.rows:
                parts.append((part_of, stored))
        self._add_places(parts, yield_now)

    def _add_places(
        self, parts: Sequence[tuple[PostingPart, StoredRelation]], yield_now: YieldNow
    ) -> None:
        """Give new rows places, in the order of their rows, and note them to be filled."""
        batches = []
        for part, stored in parts:
            newest, size = 0, stored.relation.counts().rows
            for start in range(len(part.places), size, BATCH_ROWS):
                rows = range(start, min(start + BATCH_ROWS, size))
                last = array("I", [rows[-1]])
                newest = max(newest, int(stored.relation.attributes(Attribute.CREATED_AT, last)[0]))
                batches.append((newest, part, rows))
        is_many = sum(len(rows) for _, _, rows in batches) > BATCH_ROWS
        if is_many:  # places follow the time of storage, so that the newest facts are filled first
            batches.sort(key=itemgetter(0))
        if is_many and self.is_merged:
            next_place = self._low = len(self.shown)
            for part, stored in parts:
                part.closed = range(len(part.places), stored.relation.counts().rows)
                self._reserve(part, len(part.closed))
            for _, part, rows in batches:
                self._backlog.append(_Waiting(part, rows.start, rows.stop, next_place))
                next_place += len(rows)
            self._mark = self._next = next_place
            return
        for index, (_, part, rows) in enumerate(batches):
            if index:
                yield_now()
            first = len(self.shown)
            self._reserve(part, len(rows))
            self._open(part, rows, first)
            self._ahead.append(_Waiting(part, rows.start, rows.stop, first))

    def _reserve(self, part: PostingPart, count: int) -> None:
        """Add places and rows of a part, without saying which rows have which places."""
        for values, size in (
            (self.lengths, count),
            (self.owners, count),
            (self.rows, count),
            (part.places, count),
            (part.cells, count * part.arity),
        ):
            values.frombytes(bytes(values.itemsize * size))
        self.shown.extend(bytes(count))
        self.pending += count

    def _open(self, part: PostingPart, rows: range, first: int) -> None:
        """Give rows places from `first` on."""
        count, arity, stored = len(rows), part.arity, part.stored()
        if stored is None:
            raise EngineFault("a relation was dropped under the read lock")
        hidden, gone = part.hidden_and_gone(rows)
        if gone:
            remaining = array("I", [row for row in rows if row not in gone])
            present, at, cells = stored.relation.rows(remaining), 0, array("I")
            for row in rows:  # a deleted row gets the place of a fact without words
                cells.extend([0] * arity if row in gone else present[at : at + arity])
                at += 0 if row in gone else arity
        else:
            cells = stored.relation.rows(array("I", rows))
        places = array("I", range(first, first + count))
        part.cells[rows.start * arity : rows.stop * arity] = cells
        part.places[rows.start : rows.stop] = places
        self.owners[first : first + count] = array("I", [part.owner]) * count
        self.rows[first : first + count] = array("I", rows)
        self.shown[first : first + count] = b"\x01" * count
        for row in (*hidden, *gone):
            self.shown[first + row - rows.start] = 0
        self._gone.update(first + row - rows.start for row in gone)

    def fill(
        self, yield_now: YieldNow, is_enough: Callable[[], bool], *, in_place: bool = False
    ) -> None:
        """Index the words of facts that wait for it, until `is_enough` is true between two pieces.

        The newest facts come first. At least one piece is done. With `in_place`, no search has read
        the index since the last update. What `yield_now` raises ends the work; a later call
        continues it.
        """
        pieces = self._pieces(yield_now, in_place=in_place)
        while next(pieces, None) is not None and not is_enough():
            yield_now()

    def _pieces(self, yield_now: YieldNow, *, in_place: bool) -> Iterator[bool]:
        """Do a piece of work with each step, until all facts are filled and the lists merged.

        Readers may hold posting lists: only new lists change, unless `in_place`.
        """
        in_place = in_place and not (self._backlog or self._older or self._newer)
        lists = self._lists if in_place else self._newer
        ahead, backlog = self._ahead, self._backlog
        while ahead:
            waiting = ahead[0]
            rows = range(waiting.start, min(waiting.start + ROWS_AT_ONCE, waiting.stop))
            for row in self._add(waiting.part, rows, lists, yield_now):
                waiting.start = row + 1
                self._next = waiting.part.places[row] + 1
            if waiting.start == waiting.stop:
                ahead.popleft()
            yield True
        self._next = len(self.shown)
        while backlog:
            waiting = backlog[-1]
            if waiting.stop == waiting.part.closed.stop > waiting.start:
                self._open(waiting.part, range(waiting.start, waiting.stop), waiting.first_place)
                waiting.part.closed = range(waiting.part.closed.start, waiting.start)
            rows = range(waiting.stop - 1, max(waiting.start, waiting.stop - ROWS_AT_ONCE) - 1, -1)
            for row in self._add(waiting.part, rows, self._older, yield_now):
                waiting.stop = row
                self._mark = waiting.part.places[row]
            if waiting.start == waiting.stop:
                backlog.pop()
            yield True
        self._low = self._mark = 0
        for index, word in enumerate([*self._older, *self._newer], start=1):
            if word in self._older or word in self._newer:
                self._lists[word] = _joined(
                    self._lists.get(word), self._older.pop(word, None), self._newer.pop(word, None)
                )
            if index % WORDS_MERGED == 0:
                yield True

    def _is_filled(self, index: int) -> bool:
        return index < self._next and not self._low <= index < self._mark

    def _add(
        self, part: PostingPart, rows: range, lists: dict[int, array[int]], yield_now: YieldNow
    ) -> Iterator[int]:
        """Index rows; yield each of them after it was added as a whole: `yield_now` may raise."""
        arity, own = part.arity, part.own
        first, last = min(rows[0], rows[-1]), max(rows[0], rows[-1])
        words = self._words_of(part.cells[first * arity : (last + 1) * arity], yield_now)
        work = 0
        for row in rows:
            if work >= WORDS_BETWEEN:
                work = 0
                yield_now()
            index = part.places[row]
            self.pending -= 1
            if index in self._gone:
                self._gone.discard(index)
                yield row
                continue
            at = (row - first) * arity
            row_words = [word for cell_words in words[at : at + arity] for word in cell_words]
            row_words += own
            count = len(row_words)
            work += count
            for word in row_words:
                known = lists.get(word)
                if known is None:
                    lists[word] = array("I", (index,))
                else:
                    known.append(index)
            distinct = set(row_words)
            if len(distinct) < count:
                self._repeated(row_words)
            if count < self.shortest:
                self.shortest = count
            self.lengths[index] = length = min(count, MAX_LENGTH)
            if self.shown[index]:
                part.count += 1
                part.words += length
            else:
                for word in distinct:
                    self.spare[word] = self.spare.get(word, 0) + 1
            yield row

    def _repeated(self, row_words: Sequence[int]) -> None:
        for word, times in Counter(row_words).items():
            if times > 1:
                self.spare[word] = self.spare.get(word, 0) + times - 1
                self.most = max(self.most, times)

    def _flip(self, part: PostingPart, row: int, flip: int) -> None:
        """Hide or show a fact; the counts of one that waits to be filled change when it is."""
        if row >= len(part.places) or row in part.closed:
            part.early[row] = flip
            return
        index, visible = part.places[row], flip == FLIP_SHOWN
        if not self._is_filled(index):
            self.shown[index] = visible
            if flip == FLIP_GONE:
                self._gone.add(index)
            return
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
            if row not in part.closed:
                self._flip(part, row, FLIP_HIDDEN)
        self.pending -= sum(
            waiting.stop - waiting.start
            for waiting in (*self._ahead, *self._backlog)
            if waiting.part is part
        )
        self._ahead = deque(waiting for waiting in self._ahead if waiting.part is not part)
        self._backlog = [waiting for waiting in self._backlog if waiting.part is not part]
        self._masks.clear()  # the rows that remain get new places
        self._unused += len(part.places)
        part.clear()


@dataclass(slots=True)
class _Waiting:
    """Rows from `start` to before `stop` that wait to be filled; `first_place` is that of the first
    one.
    """

    part: PostingPart
    start: int
    stop: int
    first_place: int


def _new_rows(part: PostingPart, size: int, closed: range) -> list[range]:
    """Return the rows that got places since the part had `size` rows of which some were
    `closed`.
    """
    now, rows = part.closed, len(part.places)
    is_rest = now.start == closed.start and now.stop <= closed.stop
    opened = range(now.stop if is_rest else closed.start, closed.stop)
    if not now:
        return [opened, range(size, rows)]
    return [opened, range(size, now.start), range(max(size, now.stop), rows)]


def _joined(
    first: array[int] | None, descending: array[int] | None, last: array[int] | None
) -> array[int]:
    """Return ascending places of three lists, the second of which descends, as a new array."""
    joined = array("I")
    for places in (first, None if descending is None else descending[::-1], last):
        if places is not None:
            joined.extend(places)
    return joined


def _places_of(symbol: int, column: array[int]) -> list[int]:
    """Return the indexes of a symbol in a column, ascending."""
    if symbol not in column:
        return []
    return [index for index, cell in enumerate(column) if cell == symbol]
