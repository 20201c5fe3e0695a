"""Word vectors in text form (GloVe, word2vec, fastText), and the words of a text that have one.

Each line of a file is a word and its numbers, separated by spaces, the most frequent word first;
the first line may state the number of words and of numbers instead. Words are weighted by "smooth
inverse frequency", and the component that all texts share is removed (Arora, Liang and Ma, "A
simple but tough-to-beat baseline for sentence embeddings", 2017). Files have no frequencies, so
that they follow from the order of the words by Zipf's law.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

from kbcore.errors import ConfigError
from kbplanner.engine.vectors import MAX_DIMENSION

SMOOTHING = 1e-3
"""Frequency of a word whose weight is 1/2, as in the paper."""

COMMON_WORDS = 10_000
"""Words from which the shared component is estimated: the most frequent ones, most of any text."""

MIN_COMMON_WORDS = 1_000
"""A file with fewer words is no sample of a language, and no component is removed."""

WORD_BYTES = 160
"""Memory of a word besides its numbers, approximately."""

MAX_LINE_BYTES = 1 << 20

VERSION = b"1"
"""Part of the revision: other weights or another way to find words need another number."""

EULER = 0.5772
"""The sum of 1/rank up to a rank is about its logarithm plus this number."""

Line: TypeAlias = tuple[int, list[str]]

_RUN = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_PART = re.compile(r"[^\W\d_A-Z]+|[A-Z]+(?![a-z])|[A-Z][^\W\d_A-Z]*|\d+")

_log = logging.getLogger("kbcore.embedder")


class WordVectors:
    """The vectors of a file, in at most `max_bytes` of memory: those of its first words.

    `source` names the file in messages. Raises ConfigError for a file that is missing or malformed,
    naming the line.
    """

    def __init__(self, path: Path, max_bytes: int, source: str) -> None:
        self.dimension = 0
        self.vectors = array("f")
        self._rows: dict[str, int] = {}
        self._source = source
        self._max_bytes = max_bytes
        digest = hashlib.blake2b(VERSION, digest_size=16)
        try:
            with path.open("rb") as file:
                complete = self._read(self._lines(file, digest.update))
        except OSError as error:
            raise ConfigError(f"{source}: this file cannot be read: {error.strerror}") from None
        if not self._rows:
            raise ConfigError(f"{source}: this file has no word vectors")
        if not complete:
            _log.warning(
                "only the first %d words of the file of EMBEDDER_STATIC_MODEL are used:"
                " raise EMBEDDER_STATIC_MB",
                self._count,
            )
        self.revision = digest.hexdigest()
        total = math.log(self._count) + EULER  # about the sum of 1/rank
        frequencies = [1 / (rank * total) for rank in range(1, self._count + 1)]
        self._weights = array("f", [SMOOTHING / (SMOOTHING + each) for each in frequencies])
        self.common = self._common(frequencies)

    def weighted_rows(self, text: str, limit: int) -> list[tuple[int, float]]:
        """Return the rows and weights of the first `limit` words of a text that have a vector."""
        rows: list[int] = []
        for match in _RUN.finditer(text):
            if len(rows) >= limit:
                break
            row = self._row(match.group())
            if row is None:
                parts = map(self._row, _PART.findall(match.group()))
                rows += [part for part in parts if part is not None]
            else:
                rows.append(row)
        return [(row, self._weights[row]) for row in rows[:limit]]

    def _row(self, word: str) -> int | None:
        row = self._rows.get(word)
        return self._rows.get(word.lower()) if row is None else row

    @property
    def _count(self) -> int:
        return len(self.vectors) // self.dimension

    def _lines(self, file: BinaryIO, update: Callable[[bytes], None]) -> Iterator[Line]:
        """Yield the number and the fields of each line, and update the digest with it."""
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if len(line) == MAX_LINE_BYTES:
                raise self._wrong(number, f"is longer than {MAX_LINE_BYTES - 1} bytes")
            update(line)
            try:
                yield number, line.decode().rstrip("\r\n ").split(" ")
            except UnicodeDecodeError:
                raise self._wrong(number, "is not UTF-8 text") from None

    def _read(self, lines: Iterator[Line]) -> bool:
        """Read the lines; return False if some were left out for lack of memory."""
        for number, fields in lines:
            if number == 1 and len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
                self._set_dimension(number, int(fields[1]))
                continue
            if not self.dimension:
                self._set_dimension(number, len(fields) - 1)
            if len(fields) <= self.dimension:
                raise self._wrong(number, f"must have a word and {self.dimension} numbers")
            if self._count >= self._max_bytes // (4 * self.dimension + WORD_BYTES):
                return False
            try:
                vector = array("f", map(float, fields[-self.dimension :]))
            except (ValueError, OverflowError):
                raise self._wrong(number, "has text in place of a number") from None
            if not all(map(math.isfinite, vector)):
                raise self._wrong(number, "has a number that is too large or not finite")
            # A word may have spaces. Of equal words the first is the more frequent one.
            self._rows.setdefault(" ".join(fields[: -self.dimension]), self._count)
            self.vectors += vector
        return True

    def _set_dimension(self, number: int, dimension: int) -> None:
        if not 1 <= dimension <= MAX_DIMENSION:
            raise self._wrong(number, f"must have a word and 1 to {MAX_DIMENSION} numbers")
        self.dimension = dimension

    def _wrong(self, number: int, problem: str) -> ConfigError:
        return ConfigError(f"{self._source}: line {number} {problem}")

    def _common(self, frequencies: list[float]) -> list[float] | None:
        """Return the direction of a text of random words, None for a file with few words.

        It stands for the first principal component of many texts, which the paper removes.
        """
        if len(frequencies) < MIN_COMMON_WORDS:
            return None
        total = [0.0] * self.dimension
        for row, frequency in enumerate(frequencies[:COMMON_WORDS]):
            share = frequency * self._weights[row]
            vector = self.vectors[row * self.dimension : (row + 1) * self.dimension]
            total = [old + share * number for old, number in zip(total, vector, strict=True)]
        length = math.sqrt(sum(number * number for number in total))
        return [number / length for number in total] if length else None
