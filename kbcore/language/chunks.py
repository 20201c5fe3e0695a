"""A long text in pieces a model can read at a time, cut between sentences, each beginning with the end of the one before.

The overlap is for pronouns: "She works at Acme." says nothing without the sentence before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BREAK = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])[\s\"')\]]*\s|(?<=[\u3002\uff01\uff1f])|\n\s*\n|\n(?=\s*[-*\u2022])")
_SPACE = re.compile(r"\s")

OVERLAP = 8
"""At most one part in so many of a piece is repeated from the one before."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a text: the characters from `start` up to, but not at, `end`."""

    start: int
    end: int
    text: str


def chunks(text: str, size: int) -> list[Chunk]:
    """Cut a text into pieces of at most `size` characters that together hold all of it; none of one without words.

    Time is linear in the length of the text.
    """
    found: list[Chunk] = []
    spans = _sentences(text, size)
    first = 0
    while first < len(spans):
        last, start = first, spans[first][0]
        while last + 1 < len(spans) and spans[last + 1][1] - start <= size:
            last += 1
        piece = text[start : spans[last][1]]
        if piece.strip():
            found.append(Chunk(start, spans[last][1], piece))
        if last + 1 == len(spans):
            break
        again = last + 1
        while again - 1 > first and _repeats(spans, again, last, size):
            again -= 1
        first = again
    return found


def _repeats(spans: list[tuple[int, int]], again: int, last: int, size: int) -> bool:
    """Whether the sentence before `again` fits into the overlap, and with the next one into a piece."""
    start = spans[again - 1][0]
    return spans[last][1] - start <= size // OVERLAP and spans[last + 1][1] - start <= size


def _sentences(text: str, size: int) -> list[tuple[int, int]]:
    """The places of sentences, which touch each other; one that is too long is cut, between words where there are some."""
    ends = [found.end() for found in _BREAK.finditer(text)]
    spans: list[tuple[int, int]] = []
    start = 0
    for end in [*ends, len(text)]:
        while end - start > size:
            blanks = _SPACE.finditer(text, start + size // 2, start + size)
            cut = max((found.end() for found in blanks), default=start + size)
            spans.append((start, cut))
            start = cut
        if end > start:
            spans.append((start, end))
            start = end
    return spans
