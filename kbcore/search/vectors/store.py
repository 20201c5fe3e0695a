"""The vectors of texts, as integers, each at a numbered place; texts are known by their digests."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kbplanner.engine.vectors import CELL_MAX, NO_PLACE, QUERY_MAX, Quantized, quantized

DIGEST_BYTES = 16
"""Bytes of the digest of a text."""

ENTRY_BYTES = 160
"""Memory of an entry besides the numbers of its vector, approximately."""

Digest = bytes


class Entry(NamedTuple):
    """The vector of a text: number `i` is about `cells[i] * factor`, as integers of 8 bits."""

    digest: Digest
    factor: float
    cells: bytes


def digest_of(text: str) -> Digest:
    """Return the digest by which a text is known (BLAKE2b)."""
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def entry_of(text: str, vector: array[float]) -> Entry:
    """Return the entry of a text."""
    integers = quantized(vector, CELL_MAX, "b")
    # The factor is stored as a float of 32 bits.
    return Entry(digest_of(text), array("f", [integers.factor])[0], integers.cells.tobytes())


def query_of(vector: array[float]) -> Quantized:
    """Return the vector of a query in the form that a search takes."""
    return quantized(vector, QUERY_MAX, "h")


class VectorStore:
    """Vectors of `dimension` numbers, in at most `max_bytes` of memory.

    `cells` has the numbers by place and `factors` the factor of each place. A place is in use while
    facts count on it; the others are freed by `drop_unused`. Not safe for several threads at once.
    """

    def __init__(self, dimension: int, max_bytes: int) -> None:
        self.dimension = dimension
        self.cells = bytearray()
        self.factors = array("f")
        self._entry_bytes = dimension + ENTRY_BYTES
        self._max_entries = max_bytes // self._entry_bytes
        self._uses = array("I")
        self._places: dict[Digest, int] = {}
        self._free: list[int] = []
        self._idle = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def bytes(self) -> int:
        """Memory of the vectors."""
        return len(self.factors) * self._entry_bytes

    @property
    def full(self) -> bool:
        """True if there is no memory for a further vector."""
        return len(self._places) >= self._max_entries

    def place(self, digest: Digest) -> int:
        """Return the place of the vector of a text, NO_PLACE if it has none."""
        return self._places.get(digest, NO_PLACE)

    def add(self, entry: Entry) -> int:
        """Store a vector and return its place; NO_PLACE if the store is full.

        A text that has a vector keeps it.
        """
        known = self._places.get(entry.digest)
        if known is not None:
            return known
        if self.full:
            return NO_PLACE
        if self._free:
            place = self._free.pop()
            self.cells[place * self.dimension : (place + 1) * self.dimension] = entry.cells
            self.factors[place] = entry.factor
        else:
            place = len(self.factors)
            self.cells += entry.cells
            self.factors.append(entry.factor)
            self._uses.append(0)
        self._places[entry.digest] = place
        self._idle += 1
        return place

    def use(self, place: int) -> None:
        """Count a fact on a place."""
        self._idle -= not self._uses[place]
        self._uses[place] += 1

    def release(self, place: int) -> None:
        """Count a fact less on a place."""
        self._uses[place] -= 1
        self._idle += not self._uses[place]

    @property
    def has_unused(self) -> bool:
        """True if no fact counts on some vectors."""
        return self._idle > 0

    def drop_unused(self) -> int:
        """Remove the vectors that no fact counts on; return their number."""
        if not self._idle:
            return 0
        unused = [digest for digest, place in self._places.items() if not self._uses[place]]
        for digest in unused:
            place = self._places.pop(digest)
            self.cells[place * self.dimension : (place + 1) * self.dimension] = bytes(
                self.dimension
            )
            self._free.append(place)
        self._idle = 0
        return len(unused)

    def entries(self) -> Iterator[Entry]:
        """Yield every vector; the store must not change meanwhile."""
        return self.chosen(self._places)

    def chosen(self, digests: Iterable[Digest]) -> Iterator[Entry]:
        """Yield the vectors of some texts, without those that have none."""
        for digest in digests:
            if (place := self._places.get(digest)) is not None:
                cells = self.cells[place * self.dimension : (place + 1) * self.dimension]
                yield Entry(digest, self.factors[place], bytes(cells))
