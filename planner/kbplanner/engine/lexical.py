"""Facts that best match the words of a text, computed in Python as the C engine does."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MAX_WORDS = 64
"""Maximum number of words in one search."""

UNASKED = 0xFFFFFFFF
"""Rank of an owner whose facts are excluded."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Words of a text, and the facts to search, which have indexes from 0.

    `words` are at most MAX_WORDS posting lists with weights above 0, heaviest first; a list has the
    indexes of the facts with the word, ascending, repeated for each occurrence. A word gives a fact
    weight * times * scale / (times + flat + slope * length). By index: `lengths` in words, `shown`
    1 for searchable facts, `owners`; `ranks` by owner, the lowest first where scores are equal. No
    fact is shorter than `shortest` or has a word more than `most` times.
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

    def asked(self, index: int) -> bool:
        """Return True if a fact is searchable."""
        return bool(self.shown[index]) and self.ranks[self.owners[index]] != UNASKED


class PlainMatches:
    """The word search of the reference engine."""

    def best_matches(self, how: Matching, k: int) -> tuple[array[int], array[float]]:
        """Implement `backend.Engine.best_matches`, one posting after the other."""
        scores: dict[int, float] = {}
        for places, weight in how.words:
            for index, times in Counter(places).items():
                if how.asked(index):
                    part = (
                        weight
                        * times
                        * how.scale
                        / (times + how.flat + how.slope * how.lengths[index])
                    )
                    scores[index] = scores.get(index, 0.0) + part
        best = heapq.nsmallest(
            k, scores, key=lambda index: (-scores[index], how.ranks[how.owners[index]], index)
        )
        return array("I", best), array("d", [scores[index] for index in best])

    def having(self, how: Matching) -> list[int]:
        """Implement `backend.Engine.having`."""
        return [sum(how.asked(index) for index in set(places)) for places, _ in how.words]
