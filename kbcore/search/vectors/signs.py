"""Candidates of a search among many vectors, chosen by the signs of their numbers.

A bit for each number says if it is above the mean of all vectors; vectors whose bits differ in few
places from those of the query have a small angle to it (Charikar, "Similarity estimation techniques
from rounding algorithms", 2002). The bits take an eighth of the memory of the numbers, and are
compared in a tenth of the time. The candidates are then compared by their numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate

from kbplanner.engine.backend import Engine
from kbplanner.engine.vectors import (
    Quantized,
    SignSearch,
    StoredVectors,
    sign_words,
    signs_of_query,
)

EXACT_NUMBERS = 20_000_000
"""Numbers that a search compares without signs, such as 52,000 vectors of 384: 2 milliseconds."""

MIN_DIMENSION = 128
"""Vectors of fewer numbers have too few signs to tell them apart, and are all compared."""

MIN_CANDIDATES = 4096
CANDIDATES_PER_RESULT = 16
"""Candidates for each result that is asked for; at least MIN_CANDIDATES."""

SIGN_ROWS = 1 << 18
"""Vectors whose signs are compared in a single call of the engine: about two milliseconds."""

WRITE_ROWS = 1 << 14
"""Vectors whose signs are made in a single call of the engine."""

CENTRE_SAMPLES, SAMPLE_ROWS = 16, 4096
"""The centre is the mean of this many pieces of this many vectors."""


class Signs:
    """The signs of the vectors of a store, made when a search needs them.

    Not safe for several threads at once.
    """

    def __init__(self, dimension: int) -> None:
        self._words = sign_words(dimension)
        self._bits = array("Q")
        self._centre = array("d")
        self._centred = 0  # vectors in the store when the centre was made
        self._written = 0
        self._changed: set[int] = set()

    def change(self, position: int) -> None:
        """Note that a position has another vector."""
        if position < self._written:
            self._changed.add(position)

    def erase(self, position: int) -> None:
        """Remove the signs of a position."""
        if position < self._written:
            first = position * self._words
            self._bits[first : first + self._words] = array("Q", bytes(8 * self._words))

    def clear(self) -> None:
        """Remove all signs."""
        self._bits = array("Q")
        self._centred = self._written = 0
        self._changed.clear()

    def update(self, engine: Engine, vectors: StoredVectors, pause: Callable[[], None]) -> None:
        """Make the signs of new vectors; those of all if the store has doubled, about a new mean.

        `pause` may raise to end the work, and what was done stays done.
        """
        count = len(vectors.factors)
        if count >= 2 * self._centred:
            self.clear()
            self._centre, self._centred = _mean(engine, vectors), count
        for position in self._changed:
            engine.write_signs(vectors, position, position + 1, self._centre, self._bits)
        self._changed.clear()
        self._bits.extend(array("Q", bytes(8 * (count * self._words - len(self._bits)))))
        while self._written < count:
            stop = min(self._written + WRITE_ROWS, count)
            engine.write_signs(vectors, self._written, stop, self._centre, self._bits)
            self._written = stop
            pause()

    def candidates(
        self,
        engine: Engine,
        query: Quantized,
        positions: array[int],
        count: int,
        pause: Callable[[], None],
    ) -> array[int]:
        """Return the indexes of at least `count` positions with the fewest signs unlike the query.

        Positions with equally many are either all returned or none. All vectors have signs.
        """
        search = SignSearch(self._bits, signs_of_query(query, self._centre))
        differing = array("H", bytes(2 * len(positions)))
        counts = array("I", bytes(4 * (64 * self._words + 1)))
        with memoryview(positions) as places, memoryview(differing) as numbers:
            for start in range(0, len(positions), SIGN_ROWS):
                stop = start + SIGN_ROWS
                engine.differing_signs(search, places[start:stop], numbers[start:stop], counts)
                pause()
        totals = list(accumulate(counts))
        most = next((most for most, total in enumerate(totals) if total >= count), len(counts) - 1)
        return engine.at_most(differing, most, totals[most])


def candidate_count(visible: int, dimension: int, k: int) -> int | None:
    """Return how many candidates a search for `k` of the visible vectors needs; None: all of
    them.
    """
    count = max(MIN_CANDIDATES, CANDIDATES_PER_RESULT * k)
    if dimension < MIN_DIMENSION or visible * dimension <= EXACT_NUMBERS or 2 * count > visible:
        return None
    return count


def _mean(engine: Engine, vectors: StoredVectors) -> array[float]:
    """Return the mean of vectors that are spread evenly over the store."""
    count, total = len(vectors.factors), 0
    sums = array("d", bytes(8 * vectors.dimension))
    for start in range(0, count, max(SAMPLE_ROWS, count // CENTRE_SAMPLES)):
        stop = min(start + SAMPLE_ROWS, count)
        engine.add_vectors(vectors, start, stop, sums)
        total += stop - start
    return array("d", [number / max(total, 1) for number in sums])
