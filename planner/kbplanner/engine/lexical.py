"""Which facts match the words of a text best, by posting lists. The C engine has the same sums; here they are in Python."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MAX_WORDS = 64
"""Words that can be asked for at a time."""

UNASKED = 0xFFFFFFFF
"""Rank of an owner whose facts are not asked for."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Words of a text, and the facts they are looked for in, which have places from 0 on.

    `words` are at most MAX_WORDS posting lists with weights above 0, heaviest first; a list has the places of the facts that
    have the word, ascending, one as often as it has it. A word gives a fact weight * times * scale / (times + flat +
    slope * length). By place: `lengths` in words, `shown` 1 for what may be found, `owners`; `ranks` by owner, the lowest
    first where scores are equal. No fact is shorter than `shortest` or has a word more than `most` times.
    """

    words: Sequence[tuple[array[int], float]]
    scale: float
    flat: float
    slope: float
    lengths: array[int]
    shown: bytearray
    owners: array[int]
    ranks: array[int]
    shortest: int
    most: int

    def asked(self, place: int) -> bool:
        """Whether a fact may be found."""
        return bool(self.shown[place]) and self.ranks[self.owners[place]] != UNASKED


class PlainMatches:
    """The part of the reference engine that matches words."""

    def best_matches(self, how: Matching, k: int) -> tuple[array[int], array[float]]:
        """As `backend.Engine` says, one posting after the other."""
        scores: dict[int, float] = {}
        for places, weight in how.words:
            for place, times in Counter(places).items():
                if how.asked(place):
                    part = weight * times * how.scale / (times + how.flat + how.slope * how.lengths[place])
                    scores[place] = scores.get(place, 0.0) + part
        best = heapq.nsmallest(k, scores, key=lambda place: (-scores[place], how.ranks[how.owners[place]], place))
        return array("I", best), array("d", [scores[place] for place in best])

    def having(self, how: Matching) -> list[int]:
        """As `backend.Engine` says."""
        return [sum(how.asked(place) for place in set(places)) for places, _ in how.words]
