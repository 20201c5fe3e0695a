"""Relations and domains of questions in words, for `question_goals.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation with its gloss, and the phrases that ask for its value: those with its word, and
    paraphrases. `whole` are whole questions in other words.
    """

    name: str
    args: tuple[str, str]
    gloss: str
    same: tuple[str, ...]
    other: tuple[str, ...]
    whole: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Domain:
    """Relations, invented names by type, and the type of which larger data has more names.

    `people` are the types that "who" asks for, `absent` phrases about what no relation is about,
    `counts` questions for a number: a relation of which the second argument is known, and texts.
    """

    relations: tuple[Relation, ...]
    names: dict[str, list[str]]
    growing: str
    people: frozenset[str] = frozenset(("person", "engineer"))
    absent: tuple[str, ...] = ()
    counts: tuple[tuple[str, tuple[str, ...]], ...] = ()
