"""Words of predicates: the words of a question that mean a predicate, or one of its arguments.

They come from the name of the predicate, its `@phrase`, the gloss and the argument names of its
`@input`, and the variables in the heads of its rules. Words are stems.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from kbcore.search.tokens import STOP_WORDS, name_words, words

MAX_WORDINGS = 4096
"""Number of wordings that are cached."""

MIN_NAME_CHARS = 3
"""Shortest name of a variable in the head of a rule that says what the argument is."""

NAME_WEIGHT = 1.0
ABOUT_WEIGHT = 0.9
TARGET_WEIGHT = 0.7
LEARNT_WEIGHT = 0.7
SOURCE_WEIGHT = 0.3
"""Weights of a word of a question: in the name of a predicate, in its phrase or gloss, the name of
the argument that is asked for, learnt, or the name of the known argument.
"""

_TOKEN = re.compile(r"\{\d+\}|[^\W_]+")
_ARTICLES = frozenset(("a", "an", "the", "each", "every", "its", "their", "his", "her"))


_JOINING = frozenset(("and", "are", "be", "been", "is", "or", "was", "were"))


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of a predicate.

    `names` are the stems of its name, `about` those of its phrase and gloss that are in no name,
    `texts` all of these, and `args` has those of the name of each argument. `before` has pairs of a
    stem and the preposition after it, with the argument that follows them in the phrase or the
    gloss: `works for {1}`. `after` has the prepositions and pronouns that follow stems in the name,
    the phrase and the gloss. `learnt` are stems of the passages that its facts are based on.
    `description` is a text for a sentence model: the name, and the gloss or else the phrase.
    """

    predicate: str
    arity: int
    names: frozenset[str]
    about: frozenset[str]
    args: tuple[frozenset[str], ...]
    before: frozenset[tuple[str, str, int]]
    texts: frozenset[str]
    after: tuple[tuple[str, frozenset[str]], ...]
    learnt: frozenset[str] = frozenset()
    description: str = ""

    @property
    def stems(self) -> frozenset[str]:
        """All stems."""
        return self.names.union(self.about, self.learnt, *self.args)

    def is_part_of_name(self, stems: Set[str]) -> bool:
        """Return whether stems are some words of the name, which could be those of another one."""
        return stems < self.names and stems.isdisjoint(self.texts)

    def of(self, stem: str) -> frozenset[str]:
        """Return the prepositions and pronouns that follow a stem in the texts of the predicate."""
        return next((following for each, following in self.after if each == stem), frozenset())

    def weight(self, stem: str, target: int) -> float:
        """Return the weight of a stem of a question that asks for the argument `target`."""
        if stem in self.names:
            return NAME_WEIGHT
        if stem in self.about:
            return ABOUT_WEIGHT
        if stem in self.args[target]:
            return TARGET_WEIGHT
        if stem in self.learnt:
            return LEARNT_WEIGHT
        return SOURCE_WEIGHT if any(stem in each for each in self.args) else 0.0


@lru_cache(maxsize=MAX_WORDINGS)
def wording_of(
    predicate: str, arity: int, phrase: str | None, gloss: str | None, args: tuple[str, ...]
) -> Wording:
    """Return the words of a predicate with a phrase, a gloss, and names of its arguments, which may
    be empty.
    """
    named = (*args, *("" for _ in range(arity - len(args))))
    of_args = tuple(frozenset(name_words(each)) for each in named)
    names = frozenset(name_words(predicate))
    texts = [each for each in (phrase, gloss) if each is not None]
    about = frozenset(stem for text in texts for stem in words(re.sub(r"\{\d+\}", " ", text)))
    before = frozenset(
        entry for text in texts for entry in _before(text, of_args) if entry[2] < arity
    )
    after: dict[str, frozenset[str]] = {}
    for text in (predicate.replace("_", " "), *texts):
        for stem, following in pairs_of(text).items():
            after[stem] = after.get(stem, frozenset()) | following
    own = about.difference(names, *of_args)
    said = gloss or re.sub(r"\{\d+\}", " ", phrase or "")
    description = " ".join(f"{predicate.replace('_', ' ')}: {said}".split()).removesuffix(":")
    return Wording(
        predicate,
        arity,
        names,
        own,
        of_args,
        before,
        about,
        tuple(after.items()),
        description=description,
    )


def _before(text: str, of_args: tuple[frozenset[str], ...]) -> list[tuple[str, str, int]]:
    """Return the stems of a text that stand before a preposition and an argument."""
    tokens = [token for token in _TOKEN.findall(text) if token.casefold() not in _ARTICLES]
    entries = []
    for word, preposition, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if preposition.casefold() in STOP_WORDS and (stems := words(word)):
            if after.startswith("{"):
                entries.append((stems[-1], preposition.casefold(), int(after[1:-1])))
            else:
                meant = frozenset(words(after))
                entries += [
                    (stems[-1], preposition.casefold(), position)
                    for position, own in enumerate(of_args)
                    if own and own == meant
                ]
    return entries


def pairs_of(text: str) -> dict[str, frozenset[str]]:
    """Return the prepositions and pronouns after the words of a text, by the stem of the word."""
    tokens = _TOKEN.findall(text)
    pairs: dict[str, set[str]] = {}
    for word, after in pairwise(tokens):
        if after.casefold() in STOP_WORDS - _ARTICLES - _JOINING:
            for stem in words(word):
                pairs.setdefault(stem, set()).add(after.casefold())
    return {stem: frozenset(each) for stem, each in pairs.items()}
