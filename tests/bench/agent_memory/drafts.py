"""Parts of the generator that all abilities share: people, dates, and turns before they have
ids.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from .interface import StatedFact

FIRST_DAY = date(2024, 1, 1)
DAYS = 300

# fmt: off
PEOPLE = (
    "Ada", "Alba", "Amir", "Anouk", "Basil", "Bea", "Bruno", "Carla", "Cyrus", "Dana", "Diego",
    "Edith", "Elio", "Emre", "Fay", "Felix", "Gita", "Greta", "Hana", "Hugo", "Ines", "Ivo",
    "Jana", "Joel", "Kira", "Lars", "Leila", "Luca", "Maya", "Milo", "Nadia", "Nils", "Olga",
    "Omar", "Petra", "Quinn", "Rosa", "Rami", "Sana", "Sven", "Tara", "Theo", "Uma", "Vera",
    "Wanda", "Xenia", "Yusuf", "Zora",
)
# fmt: on
# fmt: off
CITIES = (
    "Lisbon", "Porto", "Ghent", "Lyon", "Turin", "Graz", "Brno", "Gdansk", "Malmo", "Bergen",
    "Aarhus", "Tampere", "Tartu", "Riga", "Vilnius", "Split", "Cork", "Leeds", "Basel", "Seville",
)
# fmt: on


@dataclass(eq=False)
class Draft:
    """A turn without id; `day` counts from FIRST_DAY."""

    day: int
    speaker: str
    text: str
    facts: list[StatedFact] = field(default_factory=list)


@dataclass(eq=False)
class QuestionDraft:
    """A question whose evidence are drafts of turns."""

    ability: str
    text: str
    evidence: Sequence[Draft]
    answers: Sequence[str]
    goal: str
    query: str = ""
    competing: Sequence[str] = ()
    asker: str | None = None


@dataclass
class World:
    """Turns and questions under construction; all choices come from `draw`."""

    draw: random.Random
    people: Sequence[str]
    turns: list[Draft] = field(default_factory=list)
    questions: list[QuestionDraft] = field(default_factory=list)

    def say(self, day: int, speaker: str, text: str, *facts: tuple[str, ...]) -> Draft:
        """Add a turn; a fact is a predicate with its arguments."""
        stated = [StatedFact(predicate, tuple(args)) for predicate, *args in facts]
        draft = Draft(day, speaker, text, stated)
        self.turns.append(draft)
        return draft

    def days(self, count: int) -> list[int]:
        """Return distinct days in order."""
        return sorted(self.draw.sample(range(DAYS), count))

    def ask(self, question: QuestionDraft) -> None:
        """Add a question."""
        self.questions.append(question)


def iso(day: int) -> str:
    """Return a day as an ISO date."""
    return (FIRST_DAY + timedelta(days=day)).isoformat()


def in_words(day: int) -> str:
    """Return a day as people write it: 3 March 2024."""
    value = FIRST_DAY + timedelta(days=day)
    return f"{value.day} {value:%B %Y}"


def atom(predicate: str, *args: str) -> str:
    """Return an atom of the rule language; arguments that begin with `?` are variables."""
    terms = [arg if arg.startswith("?") or arg == "_" else f'"{arg}"' for arg in args]
    return f"{predicate}({', '.join(terms)})"
