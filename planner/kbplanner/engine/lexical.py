"""The input of a word search: posting lists, weights and the facts to search."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

MAX_WORDS = 64
"""Maximum number of words in one search."""

EXCLUDED_RANK = 0xFFFFFFFF
"""Rank of an owner whose facts are excluded."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Words of a text, and the facts to search, which have indexes from 0.

    `words` are at most MAX_WORDS posting lists with weights above 0, heaviest first; a list has the
    indexes of the facts with the word, ascending, repeated for each occurrence. A word gives a fact
    weight * times * scale / (times + flat + slope * length). By index: `lengths` in words,
    `visible` 1 for searchable facts, `owners`; `ranks` by owner, the lowest first where scores are
    equal. No fact is shorter than `shortest` or has a word more than `most` times. Facts with a
    score below `minimum` are not found.
    """

    words: Sequence[tuple[array[int], float]]
    scale: float
    flat: float
    slope: float
    lengths: array[int]
    visible: bytearray
    owners: array[int]
    ranks: array[int]
    shortest: int
    most: int
    minimum: float = 0.0

    def is_searchable(self, index: int) -> bool:
        """Return True if a fact is searchable."""
        return bool(self.visible[index]) and self.ranks[self.owners[index]] != EXCLUDED_RANK
