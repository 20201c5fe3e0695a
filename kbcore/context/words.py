"""Text to words: identifiers split, case and accents folded, stop words left out, English stems.

Porter, "Snowball: a language for stemming algorithms" (2001). A word is a run of letters or of digits; `worksAt`,
`works_at`, `works-at` and "works at" are the same words. Scripts written without spaces are cut into pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import snowballstemmer

# fmt: off
STOP_WORDS = frozenset({
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "been", "being", "but", "by", "did", "do", "does", "doing",
    "for", "from", "had", "has", "have", "having", "he", "her", "hers", "him", "his", "how", "i", "if", "in", "into",
    "is", "it", "its", "me", "my", "of", "on", "or", "our", "she", "so", "some", "than", "that", "the", "their", "them",
    "then", "there", "these", "they", "this", "those", "to", "was", "we", "were", "what", "when", "where", "which", "who",
    "whom", "whose", "why", "with", "would", "you", "your"
})
# fmt: on
"""Words that say nothing about what a text is about. Names and months (will, may) and units are not among them."""

MAX_STEMS = 1 << 17
"""Stems that are remembered; a word takes some 10 microseconds."""

_RUNS = re.compile(r"[^\W\d_]+|\d+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]{2,}")
_stemmer = snowballstemmer.stemmer("english")
_stems: dict[str, str] = {}


def words(text: str) -> list[str]:
    """The stems of a text in its order, stop words left out."""
    found = []
    for run in _RUNS.findall(_folded(text)):
        for part in _parts(run):
            word = part.casefold()
            if word not in STOP_WORDS:
                found.append(_stem(word))
    return found


def _folded(text: str) -> str:
    """Compatibility forms made plain (NFKD), accents dropped."""
    text = text.replace("'s ", " ").replace("\u2019s ", " ").removesuffix("'s")
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(each for each in plain if unicodedata.category(each) != "Mn"))


def _parts(run: str) -> Iterator[str]:
    """A run cut where a capital follows a small letter (worksAt), and before the last of many capitals (HTTPServer)."""
    if _UNSPACED.fullmatch(run):
        yield from (run[i : i + 2] for i in range(len(run) - 1))
        return
    if run.islower() or run.isupper() or run.isdigit() or run[1:].islower():
        yield run
        return
    start = 0
    for i in range(1, len(run)):
        starts_word = run[i].isupper() and (run[i - 1].islower() or (i + 1 < len(run) and run[i + 1].islower()))
        if starts_word:
            yield run[start:i]
            start = i
    yield run[start:]


def _stem(word: str) -> str:
    found = _stems.get(word)
    if found is None:
        if len(_stems) >= MAX_STEMS:
            _stems.clear()
        found = _stems[word] = _stemmer.stemWord(word)
    return found
