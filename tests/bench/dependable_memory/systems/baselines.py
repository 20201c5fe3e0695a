"""Baselines that need no package but PyStemmer: BM25 and "the last mention wins".

Robertson and Zaragoza, "The probabilistic relevance framework: BM25 and beyond" (2009).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib import metadata

from ..interface import NotAvailable, Passage, within
from ..model import Case, Input
from ..searching import Searching

K1, B = 1.2, 0.75
# fmt: off
COMMON = frozenset((
    "a", "an", "and", "are", "at", "be", "by", "did", "do", "does", "for", "from", "had", "has",
    "have", "how", "i", "in", "is", "it", "its", "me", "of", "on", "or", "tell", "that", "the",
    "then", "there", "they", "to", "was", "were", "what", "when", "where", "which", "who", "you",
    "your", "would",
))
# fmt: on
_WORD = re.compile(r"\w+")


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.casefold())


def english_stems() -> Callable[[str], list[str]]:
    """Return a function from a text to its English stems without common words.

    Raises NotAvailable without PyStemmer.
    """
    try:
        from Stemmer import Stemmer
    except ImportError as error:
        raise NotAvailable("pip install PyStemmer") from error
    stemmer = Stemmer("english")

    def words(text: str) -> list[str]:
        rare = [word for word in plain_words(text) if word not in COMMON]
        return [str(stem) for stem in stemmer.stemWords(rare)]

    return words


class BM25(Searching):
    """An index for each user. Requests to forget are texts like all others."""

    def __init__(self, name: str, words: Callable[[str], list[str]], stemmer: str = "") -> None:
        super().__init__(name, "1", {"k1": str(K1), "b": str(B), "stemmer": stemmer or "none"})
        self._words = words

    def open(self, case: Case) -> None:
        """Begin with empty indexes."""
        super().open(case)
        self._passages: defaultdict[str, list[Passage]] = defaultdict(list)
        self._lengths: defaultdict[str, list[int]] = defaultdict(list)
        self._postings: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)

    def store(self, entry: Input) -> None:
        """Index the line of an input."""
        words = self._words(entry.line)
        for word, count in Counter(words).items():
            number = len(self._passages[entry.user])
            self._postings[entry.user, word].append((number, count))
        self._passages[entry.user].append(Passage(entry.line, entry.at))
        self._lengths[entry.user].append(len(words))

    def search(self, text: str, user: str, max_tokens: int) -> Sequence[Passage]:
        """Return the passages with the highest scores."""
        lengths = self._lengths[user]
        mean = sum(lengths) / max(1, len(lengths))
        scores: defaultdict[int, float] = defaultdict(float)
        for word in sorted(set(self._words(text))):
            postings = self._postings.get((user, word), [])
            rarity = math.log(1 + (len(lengths) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                norm = 1 - B + B * lengths[number] / mean
                scores[number] += rarity * count * (K1 + 1) / (count + K1 * norm)
        best = sorted(scores, key=lambda number: (-scores[number], number))
        return within([self._passages[user][number] for number in best], max_tokens)


class LastMention(Searching):
    """The newest passages that share a capitalized name or a number with the question."""

    def __init__(self) -> None:
        super().__init__("last-mention", "1")

    def open(self, case: Case) -> None:
        """Begin with an empty list."""
        super().open(case)
        self._passages: defaultdict[str, list[Passage]] = defaultdict(list)

    def store(self, entry: Input) -> None:
        """Append the line of an input."""
        self._passages[entry.user].append(Passage(entry.line, entry.at))

    def search(self, text: str, user: str, max_tokens: int) -> Sequence[Passage]:
        """Return the passages with the most names of the question, the newest first."""
        capitalized = [word for word in _WORD.findall(text)[1:] if not word.islower()]
        names = {word.casefold() for word in capitalized} or set(plain_words(text)) - COMMON
        ranked = [
            (len(names & set(plain_words(passage.text))), number)
            for number, passage in enumerate(self._passages[user])
        ]
        most = max((count for count, _ in ranked), default=0)
        best = [number for count, number in reversed(ranked) if count == most and most]
        return within([self._passages[user][number] for number in best], max_tokens)


def bm25() -> BM25:
    """Return BM25 over plain words."""
    return BM25("bm25", plain_words)


def bm25_stems() -> BM25:
    """Return BM25 over English stems; raise NotAvailable without PyStemmer."""
    return BM25("bm25-stems", english_stems(), f"PyStemmer {metadata.version('PyStemmer')}")
