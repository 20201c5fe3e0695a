"""The input of a vector search: vectors of integers, a query, and the places to search."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

MAX_DIMENSION = 8192
"""Maximum length of a vector."""

NO_PLACE = 0xFFFFFFFF
"""In place of a place: there is no vector, and the entry is skipped."""

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
    """Vectors by place, `len(query.cells)` integers of 8 bits each, with a factor each, and a query.

    The score of a vector is its dot product with the query. Scores below `least` are left out.
    """

    cells: bytearray
    factors: array[float]
    query: Quantized
    least: float
