"""The vectors of texts, as integers, each at a numbered position; texts are known by their
digests.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kbcore.search.vectors.signs import Signs
from kbplanner.engine.vectors import (
    CELL_MAX,
    NO_POSITION,
    QUERY_MAX,
    Quantized,
    StoredVectors,
    quantized,
    sign_words,
)

DIGEST_BYTES = 16
"""Bytes of the digest of a text."""

ENTRY_BYTES = 160
"""Memory of an entry besides the numbers of its vector, approximately."""

Digest = bytes


class VectorEntry(NamedTuple):
    """The vector of a text: number `i` is about `cells[i] * factor`, as integers of 8 bits."""

    digest: Digest
    factor: float
    cells: bytes


def digest_of(text: str) -> Digest:
    """Return the digest by which a text is known (BLAKE2b)."""
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def entry_of(text: str, vector: array[float]) -> VectorEntry:
    """Return the entry of a text."""
    integers = quantized(vector, CELL_MAX, "b")
    # The factor is stored as a float of 32 bits.
    return VectorEntry(digest_of(text), array("f", [integers.factor])[0], integers.cells.tobytes())


def query_of(vector: array[float]) -> Quantized:
    """Return the vector of a query in the form that a search takes."""
    return quantized(vector, QUERY_MAX, "h")


class VectorStore:
    """Vectors of `dimension` numbers, in at most `max_bytes` of memory.

    `cells` has the numbers by position, `factors` the factor of each position, `signs` the signs. A
    position is in use while facts count on it; the others are freed by `drop_unused`. Not safe for
    several threads at once.
    """

    def __init__(self, dimension: int, max_bytes: int) -> None:
        self.dimension = dimension
        self.cells = bytearray()
        self.factors = array("f")
        self.signs = Signs(dimension)
        self._entry_bytes = dimension + 8 * sign_words(dimension) + ENTRY_BYTES
        self._max_entries = max_bytes // self._entry_bytes
        self._uses = array("I")
        self._positions: dict[Digest, int] = {}
        self._free: list[int] = []
        self._idle = 0

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def vectors(self) -> StoredVectors:
        """The vectors by position, as the engine takes them."""
        return StoredVectors(self.cells, self.factors, self.dimension)

    @property
    def bytes(self) -> int:
        """Memory of the vectors."""
        return len(self.factors) * self._entry_bytes

    @property
    def full(self) -> bool:
        """True if there is no memory for a further vector."""
        return len(self._positions) >= self._max_entries

    def position(self, digest: Digest) -> int:
        """Return the position of the vector of a text, NO_POSITION if it has none."""
        return self._positions.get(digest, NO_POSITION)

    def add(self, entry: VectorEntry) -> int:
        """Store a vector and return its position; NO_POSITION if the store is full.

        A text that has a vector keeps it.
        """
        known = self._positions.get(entry.digest)
        if known is not None:
            return known
        if self.full:
            return NO_POSITION
        if self._free:
            position = self._free.pop()
            self.cells[position * self.dimension : (position + 1) * self.dimension] = entry.cells
            self.factors[position] = entry.factor
            self.signs.change(position)
        else:
            position = len(self.factors)
            self.cells += entry.cells
            self.factors.append(entry.factor)
            self._uses.append(0)
        self._positions[entry.digest] = position
        self._idle += 1
        return position

    def use(self, position: int) -> None:
        """Count a fact on a position."""
        self._idle -= not self._uses[position]
        self._uses[position] += 1

    def release(self, position: int) -> None:
        """Count a fact less on a position."""
        self._uses[position] -= 1
        self._idle += not self._uses[position]

    @property
    def has_unused(self) -> bool:
        """True if no fact counts on some vectors."""
        return self._idle > 0

    def drop_unused(self) -> int:
        """Remove the vectors that no fact counts on; return their number."""
        if not self._idle:
            return 0
        unused = [
            digest for digest, position in self._positions.items() if not self._uses[position]
        ]
        for digest in unused:
            position = self._positions.pop(digest)
            self.cells[position * self.dimension : (position + 1) * self.dimension] = bytes(
                self.dimension
            )
            self.signs.erase(position)
            self._free.append(position)
        self._idle = 0
        return len(unused)

    def entries(self) -> Iterator[VectorEntry]:
        """Yield every vector; the store must not change until the last one is read."""
        return self.chosen(self._positions)

    def chosen(self, digests: Iterable[Digest]) -> Iterator[VectorEntry]:
        """Yield the vectors of some texts, without those that have none."""
        for digest in digests:
            if (position := self._positions.get(digest)) is not None:
                cells = self.cells[position * self.dimension : (position + 1) * self.dimension]
                yield VectorEntry(digest, self.factors[position], bytes(cells))
