"""Splitting of a long text into overlapping chunks for a model, cut between sentences.

The overlap is for pronouns: "She works at Acme." has no meaning without the sentence before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kbcore.context.quotations import NO_ABBREVIATION
from kbplanner.pacing import YieldNow

_BREAK = re.compile(
    r"(?<=[.!?\u3002\uff01\uff1f])[\s\"')\]]*\s|(?<=[\u3002\uff01\uff1f])|\n\s*\n|\n(?=\s*[-*\u2022])"
)
_SPACE = re.compile(r"\s")
_SENTENCE = re.compile(rf"(?<=[.!?\u3002\uff01\uff1f]){NO_ABBREVIATION}\s+|\n+")

OVERLAP_DIVISOR = 8
"""At most this fraction (1/8) of a chunk is repeated from the previous chunk."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a text: the characters from `start` up to, but not including, `end`."""

    start: int
    end: int
    text: str


def chunks(text: str, size: int) -> list[Chunk]:
    """Split a text into chunks of at most `size` characters that cover it; blank chunks are left
    out.

    Time is linear in the length of the text.
    """
    result: list[Chunk] = []
    spans = _sentences(text, size)
    first = 0
    while first < len(spans):
        last, start = first, spans[first][0]
        while last + 1 < len(spans) and spans[last + 1][1] - start <= size:
            last += 1
        chunk_text = text[start : spans[last][1]]
        if chunk_text.strip():
            result.append(Chunk(start, spans[last][1], chunk_text))
        if last + 1 == len(spans):
            break
        restart = last + 1
        while restart - 1 > first and _repeats(spans, restart, last, size):
            restart -= 1
        first = restart
    return result


def parts(
    text: str, start: int, end: int, size: int, yield_now: YieldNow
) -> Iterator[tuple[int, int]]:
    """Yield adjacent spans that cover the characters of a text from `start` up to `end`, cut
    between sentences where possible.

    Spans have about `size` characters and at most a quarter more. Time is linear in the length of
    the text; `yield_now` is called for each of them.
    """
    while end - start > size * 5 // 4:
        left = end - start
        goal = start + left // -(-left // size)
        cut = _cut(text, start, goal, min(start + size * 5 // 4, end))
        yield start, cut
        yield_now()
        start = cut
    if end > start:
        yield start, end


def sentence_of(
    text: str, start: int, end: int, fact: tuple[str, tuple[str, ...], bool]
) -> tuple[int, int]:
    """Return the span of the sentence of a piece of text that has most words of a fact.

    Later arguments count a little more: the first one is often a pronoun in the text. The result
    is the whole piece, from `start` up to `end`, if no sentence has any of the words.
    """
    predicate, args, _ = fact
    weights = [(word, 0.5) for word in predicate.split("_")]
    weights += [(arg, 1 + index / 10) for index, arg in enumerate(args)]
    names = [
        (re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE), weight)
        for word, weight in weights
        if word
    ]
    best, best_score = (start, end), 0.0
    at = start
    for stop in (*(match.start() for match in _SENTENCE.finditer(text, start, end)), end):
        while at < stop and text[at].isspace():
            at += 1
        score = sum(weight for name, weight in names if name.search(text, at, stop))
        if score > best_score:
            best, best_score = (at, stop), score
        at = stop
    return best


def _cut(text: str, start: int, goal: int, end: int) -> int:
    """Return the place after a sentence that is nearest to `goal`, in the second half of the
    characters from `start` up to `end`; otherwise a place between words, otherwise `end`.
    """
    first = start + (end - start) // 2
    for pattern in (_BREAK, _SPACE):
        places = (match.end() for match in pattern.finditer(text, first, end))
        if (cut := min(places, key=lambda offset: abs(offset - goal), default=0)) > 0:
            return cut
    return end


def _repeats(spans: list[tuple[int, int]], restart: int, last: int, size: int) -> bool:
    """Return whether the sentence before `restart` fits into the overlap, and with the next one
    into a chunk.
    """
    start = spans[restart - 1][0]
    return spans[last][1] - start <= size // OVERLAP_DIVISOR and spans[last + 1][1] - start <= size


def _sentences(text: str, size: int) -> list[tuple[int, int]]:
    """Return the adjacent spans of sentences.

    A sentence over `size` is cut, between words if possible.
    """
    ends = [match.end() for match in _BREAK.finditer(text)]
    spans: list[tuple[int, int]] = []
    start = 0
    for end in [*ends, len(text)]:
        while end - start > size:
            blanks = _SPACE.finditer(text, start + size // 2, start + size)
            cut = max((match.end() for match in blanks), default=start + size)
            spans.append((start, cut))
            start = cut
        if end > start:
            spans.append((start, end))
            start = end
    return spans
