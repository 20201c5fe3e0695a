"""Types of the benchmark: conversations, questions, and the interface of a memory system."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StatedFact:
    """The structured form of something said in a turn: a predicate and its arguments."""

    predicate: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation.

    `facts` is the structured form of the text, empty for small talk and for public data. A system
    that stores texts only ignores it.
    """

    id: str
    session: str
    speaker: str
    text: str
    at: datetime
    facts: tuple[StatedFact, ...] = ()

    @property
    def line(self) -> str:
        """The turn as a line of a window, with its date and speaker."""
        return f"[{self.at:%Y-%m-%d}] {self.speaker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Request:
    """A question for a memory system.

    `asker` is the person that "I" and "my" stand for, `at` the time of the question, None if
    unknown. `goals` are atoms of the rule language that say what a window should answer, and
    `query` is the conjunction whose variables `?x` and `?y` are the answer. An agent with
    structured memory would write both as a tool call; they are empty for public data. `most` limits
    the number of turns.
    """

    text: str
    budget: int
    asker: str | None = None
    at: datetime | None = None
    goals: tuple[str, ...] = ()
    query: str = ""
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Recall:
    """A window: its text, and the ids of the turns that it contains or that support its facts."""

    text: str
    turns: Collection[str]


class System(Protocol):
    """A memory system under test.

    The runner calls `reset`, then `store` for each turn in order of time, `finish` once, and
    `recall` for each question. Windows with more than `request.budget` tokens (characters divided
    by 4, rounded up) end the run with an error.
    """

    name: str

    def reset(self, rules: str) -> None:
        """Forget everything. `rules` is text in the rule language that structured memory may
        use.
        """

    def store(self, turn: Turn) -> None:
        """Store one turn."""

    def finish(self) -> None:
        """Complete work that was put off, such as building an index; counts as ingestion."""

    def recall(self, request: Request) -> Recall:
        """Return the window for a question."""

    def answer(self, request: Request) -> frozenset[str] | None:
        """Return the exact answers, empty if there are none; None if the system cannot answer."""

    def close(self) -> None:
        """Release resources; called once, after the last question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what is known about it.

    `evidence` has the ids of the turns that an answer needs; `answers` are texts that must all be
    in the window. `competing` are wrong values that were said as well: outdated ones, or those of
    another time. A question without evidence and answers asks for something that was never said.
    """

    id: str
    ability: str
    text: str
    evidence: frozenset[str]
    answers: tuple[str, ...]
    competing: tuple[str, ...] = ()
    asker: str | None = None
    at: datetime | None = None
    goals: tuple[str, ...] = ()
    query: str = ""
    related: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order of time and questions about them.

    `unknown_evidence` lists ids of evidence, as `question: id`, that name no turn; such evidence
    is left out of the question.
    """

    id: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]
    rules: str = ""
    unknown_evidence: tuple[str, ...] = ()
