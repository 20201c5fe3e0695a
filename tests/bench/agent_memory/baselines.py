"""Baselines: BM25 over the turns, with and without stems and stop words.

Robertson and Zaragoza, "The probabilistic relevance framework: BM25 and beyond" (2009).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import lru_cache

from Stemmer import Stemmer

from .interface import Recall, Request, Turn
from .scoring import tokens

K1, B = 1.2, 0.75

# fmt: off
STOP_WORDS = frozenset({
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "did", "do",
    "does", "for", "from", "had", "has", "have", "how", "if", "in", "into", "is", "it", "its",
    "of", "on", "or", "so", "some", "than", "that", "the", "then", "there", "these", "this",
    "those", "to", "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why",
    "with", "would",
})
# fmt: on
FIRST_PERSON = frozenset({"i", "me", "mine", "my", "myself"})

_WORD = re.compile(r"\w+")
_stemmer = Stemmer("english")


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.casefold())


def stems(text: str) -> list[str]:
    """Return the English stems of a text without stop words."""
    return [_stem(word) for word in plain_words(text) if word not in STOP_WORDS]


@lru_cache(maxsize=1 << 17)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


class BM25:
    """The turns with the highest BM25 scores, as many as the budget allows, best first.

    A question in the first person is searched with the name of its asker.
    """

    def __init__(self, name: str, words: Callable[[str], list[str]]) -> None:
        self.name = name
        self._words = words
        self.reset("")

    def reset(self, rules: str) -> None:
        """Forget everything; rules are not used."""
        self._turns: list[Turn] = []
        self._lengths: list[int] = []
        self._postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def store(self, turn: Turn) -> None:
        """Index the line of a turn."""
        words = self._words(turn.line)
        for word, count in Counter(words).items():
            self._postings[word].append((len(self._turns), count))
        self._turns.append(turn)
        self._lengths.append(len(words))

    def finish(self) -> None:
        """Compute the mean length of the turns."""
        self._mean = sum(self._lengths) / max(1, len(self._lengths))

    def recall(self, request: Request) -> Recall:
        """Return the turns with the highest scores that fit the budget."""
        words = set(self._words(request.text))
        if request.asker and FIRST_PERSON & set(plain_words(request.text)):
            words.update(self._words(request.asker))
        scores: defaultdict[int, float] = defaultdict(float)
        for word in sorted(words):
            postings = self._postings.get(word, ())
            rarity = math.log(1 + (len(self._turns) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                length = 1 - B + B * self._lengths[number] / self._mean
                scores[number] += rarity * count * (K1 + 1) / (count + K1 * length)
        text, turns = "", list[str]()
        for number in sorted(scores, key=lambda each: (-scores[each], each)):
            if len(turns) == request.most:
                break
            turn = self._turns[number]
            longer = f"{text}\n{turn.line}" if text else turn.line
            if tokens(longer) <= request.budget:
                text = longer
                turns.append(turn.id)
        return Recall(text, turns)

    def answer(self, request: Request) -> frozenset[str] | None:
        """Return None: search cannot answer."""
        return None

    def close(self) -> None:
        """Do nothing: the index is in memory."""
