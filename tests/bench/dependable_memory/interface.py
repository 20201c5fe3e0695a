"""The interface of a memory system, its answers and its passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .model import Case, Input, Question

FACTS, PROSE = "facts", "prose"
"""Forms of the data that a system takes."""


class NotAvailable(Exception):
    """A system that cannot run here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The exact values that a system answers, and the text it would pass to a model.

    `values` are empty if the system says that it knows no answer. `window` is None for systems
    that return no text.
    """

    values: frozenset[str]
    window: str | None = None


class System(Protocol):
    """A memory system under test.

    The runner calls `open` with an empty memory for each case, `store` for each input in order,
    `answer` for each question, and `close`. Exceptions in `store` and `answer` are counted as
    failures, with their texts. Nothing about a question is known while inputs are stored.
    """

    name: str
    form: str
    version: str
    settings: Mapping[str, str]

    def open(self, case: Case) -> None:
        """Begin with an empty memory. Only `relations` and `rules` of the case may be read."""

    def store(self, entry: Input) -> None:
        """Store an input; systems with the form PROSE read `line`, `user`, `at` and `about`."""

    def answer(self, question: Question) -> Answer:
        """Answer a question."""

    def close(self) -> None:
        """Release resources."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A stored text and the time of learning, as ISO 8601 text."""

    text: str
    at: str


def tokens(text: str) -> int:
    """Return the size of a text in tokens: characters divided by 4, rounded up."""
    return -(-len(text) // 4)


def within(passages: Sequence[Passage], max_tokens: int) -> list[Passage]:
    """Return the first passages whose lines together have at most that number of tokens."""
    chosen: list[Passage] = []
    size = 0
    for passage in passages:
        size += len(passage.text) + (1 if chosen else 0)
        if -(-size // 4) > max_tokens:
            break
        chosen.append(passage)
    return chosen
