"""The input of a vector search: vectors of integers, a query, and the positions to search."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

MAX_DIMENSION = 8192
"""Maximum length of a vector."""

NO_POSITION = 0xFFFFFFFF
"""In position of a position: there is no vector, and the entry is skipped."""

CELL_MAX = 127
QUERY_MAX = 2047
"""Largest magnitude of a number of a vector, and of a query."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A vector as integers: number `i` of the vector is about `cells[i] * factor`."""

    cells: array[int]
    factor: float


def quantized(vector: array[float], largest: int, typecode: str) -> Quantized:
    """Return a vector as integers of at most the magnitude `largest`, in an array of a typecode."""
    peak = max(max(vector), -min(vector))
    if not peak:
        return Quantized(array(typecode, [0]) * len(vector), 0.0)
    scale = largest / peak
    return Quantized(array(typecode, [round(number * scale) for number in vector]), peak / largest)


@dataclass(frozen=True, slots=True)
class NearestSearch:
    """Vectors by position, `len(query.cells)` integers of 8 bits each, with a factor each, and a
    query.

    The score of a vector is its dot product with the query. Scores below `least` are left out.
    """

    cells: bytearray
    factors: array[float]
    query: Quantized
    least: float


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """Vectors by position, `dimension` integers of 8 bits each, with a factor each."""

    cells: bytearray
    factors: array[float]
    dimension: int


@dataclass(frozen=True, slots=True)
class SignSearch:
    """The signs of vectors by position, and of a query: `len(query)` words of 64 bits each.

    Bit `i` of a vector, from the lowest bit of the first word on, is 1 if number `i` is above that
    of a centre. The number of signs that differ between two vectors grows with the angle between
    them.
    """

    signs: array[int]
    query: array[int]


def sign_words(dimension: int) -> int:
    """Return the number of words for the signs of a vector."""
    return (dimension + 63) // 64


def signs_of_query(query: Quantized, centre: array[float]) -> array[int]:
    """Return the signs of a query."""
    words = array("Q", bytes(8 * sign_words(len(centre))))
    for index, (number, middle) in enumerate(zip(query.cells, centre, strict=True)):
        words[index >> 6] |= (number * query.factor > middle) << (index & 63)
    return words
