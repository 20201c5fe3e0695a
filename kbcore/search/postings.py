"""Which facts of a partition have which words: one posting list a word, kept up with the relations when it is looked at.

A write leaves a note (`StoredRelation.flips`) and nothing more. Facts have places in the order in which they were worked in,
whatever their relation. When a relation has moved its rows together, or is no more, the places of its facts are given up and
those that are left get new ones; when the greater part of all places is given up, everything is worked in anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from weakref import ref

from kbcore.reason.budget import Budget
from kbcore.state.partition import FLIP_GONE, FLIP_HIDDEN, FLIP_SHOWN, StoredRelation
from kbplanner.engine.lexical import UNASKED

WordsOf = Callable[["array[int]"], Sequence[tuple[int, ...]]]
"""The words of the texts of some symbols."""

PIECE = 2000
"""Rows worked in between two pauses."""

MAX_LENGTH = (1 << 16) - 1
"""A longer text counts as one of so many words."""

FEW = 4096
"""So many places that were given up do not matter."""


class Part:
    """The facts of one relation: `places` by row id, `count` of them shown, with `words` words together."""

    def __init__(self, stored: StoredRelation, owner: int, own: tuple[int, ...]) -> None:
        self.stored = ref(stored)  # whoever keeps this must not keep the relation
        self.arity = stored.schema.arity
        self.owner = owner
        self.own = own
        self.places = array("I")
        self.cells = array("I")
        self.count = 0
        self.words = 0


class Postings:
    """Word to places, ascending, one as often as a fact has the word; of all facts of some relations.

    By place: `lengths` in words, `shown` 1 for a fact that holds now, `owners`, numbers of `parts`. `spare` says how
    many entries of a list are not of another shown fact. No fact ever had a word more than `most` times, or fewer than
    `shortest` words. Who calls sees to it that one thread at a time does, and that nothing is written meanwhile.
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
        self.parts: list[Part] = []
        self.most = 1
        self.shortest = MAX_LENGTH
        self._by_relation: dict[int, Part] = {}
        self._given_up = 0

    def part(self, stored: StoredRelation) -> Part | None:
        """The facts of a relation."""
        found = self._by_relation.get(id(stored))
        return found if found is not None and found.stored() is stored else None

    def having(self, word: int) -> int:
        """How many shown facts have a word."""
        some = self.lists.get(word)
        return 0 if some is None else len(some) - self.spare.get(word, 0)

    def ranks(self, order: Iterable[StoredRelation]) -> array[int]:
        """By owner the place of its relation in some order; UNASKED for a relation that is not there."""
        found = array("I", [UNASKED]) * len(self.parts)
        for rank, stored in enumerate(order):
            if (part := self.part(stored)) is not None:
                found[part.owner] = rank
        return found

    def update(self, relations: Sequence[tuple[StoredRelation, tuple[int, ...]]], budget: Budget) -> None:
        """Come to the present of some relations, each with the words of its predicate; others are given up.

        Raises BudgetExceeded between pieces; what was done stays.
        """
        current = {id(stored): stored for stored, _ in relations}
        for key, part in list(self._by_relation.items()):
            if current.get(key) is not (held := part.stored()) or held is None:
                self._give_up(part)
                del self._by_relation[key]
            elif held.flips is None:
                self._give_up(part)
        if self._given_up > max(FEW, len(self.shown) // 2):
            for stored, _ in relations:
                stored.flips = None
            self._begin()
        for stored, own in relations:
            part_of = self._by_relation.get(id(stored))
            if part_of is None:
                part_of = self._by_relation[id(stored)] = Part(stored, len(self.parts), own)
                self.parts.append(part_of)
                stored.flips = None
            self._follow(part_of, stored, budget)

    def _follow(self, part: Part, stored: StoredRelation, budget: Budget) -> None:
        if stored.flips is None:
            stored.flips = array("Q")
        flips, size = stored.flips, stored.relation.counts().rows
        if len(part.places) == size and not flips:
            return
        if not part.places:
            _, every = stored.relation.match([0] * part.arity, hidden=True)
            _, visible = stored.relation.match([0] * part.arity)
            flips.extend(place << 2 | FLIP_HIDDEN for place in set(every).difference(visible))
            flips.extend(place << 2 | FLIP_GONE for place in set(range(size)).difference(every))
        gone = {flip >> 2 for flip in flips if flip & 3 == FLIP_GONE}
        while (start := len(part.places)) < size:
            self._add(part, stored, range(start, min(start + PIECE, size)), gone)
            if len(part.places) < size:
                budget.check_time()  # no turn is waited for here: who has one may wait for this
                if budget.pause is not None:
                    budget.pause()
        for flip in flips:
            self._flip(part, flip >> 2, flip & 3 == FLIP_SHOWN)
        stored.flips = array("Q")

    def _add(self, part: Part, stored: StoredRelation, rows: range, gone: set[int]) -> None:
        arity, lists, here = part.arity, self.lists, len(self.shown)
        if gone:
            kept = array("I", [row for row in rows if row not in gone])
            cells, at = stored.relation.rows(kept), 0
            for row in rows:  # a row that is gone has the place of a fact without words
                part.cells.extend([0] * arity if row in gone else cells[at : at + arity])
                at += 0 if row in gone else arity
        else:
            part.cells.extend(stored.relation.rows(array("I", rows)))
        words, at = self._words_of(part.cells[rows.start * arity : rows.stop * arity]), 0
        for place, row in enumerate(rows, here):
            found = [word for some in words[at : at + arity] for word in some]
            at += arity
            alive = row not in gone
            if alive:
                found += part.own
                for word in found:
                    known = lists.get(word)
                    if known is None:
                        lists[word] = array("I", (place,))
                    else:
                        known.append(place)
                if len(set(found)) < len(found):
                    self._repeated(found)
                part.count += 1
                part.words += min(len(found), MAX_LENGTH)
                self.shortest = min(self.shortest, len(found))
            self.lengths.append(min(len(found), MAX_LENGTH) if alive else 0)
            self.shown.append(alive)
        self.owners.extend([part.owner] * len(rows))
        part.places.extend(range(here, here + len(rows)))

    def _repeated(self, found: Sequence[int]) -> None:
        for word in set(found):
            if (times := found.count(word)) > 1:
                self.spare[word] = self.spare.get(word, 0) + times - 1
                self.most = max(self.most, times)

    def _flip(self, part: Part, row: int, shown: bool) -> None:
        place = part.places[row]
        if self.shown[place] == shown:
            return
        step = 1 if shown else -1
        self.shown[place] = shown
        part.count += step
        part.words += step * self.lengths[place]
        symbols = part.cells[row * part.arity : (row + 1) * part.arity]
        for word in {word for some in self._words_of(symbols) for word in some}.union(part.own):
            self.spare[word] = self.spare.get(word, 0) - step

    def _give_up(self, part: Part) -> None:
        """Hide the facts of a relation for good; there are none of it then."""
        for row in range(len(part.places)):
            self._flip(part, row, False)
        self._given_up += len(part.places)
        part.places, part.cells = array("I"), array("I")
