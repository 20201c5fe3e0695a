"""Base of systems that search texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .interface import PROSE, Answer, Passage
from .model import Case, Input, Question
from .reader import read


@dataclass
class Searching:
    """Base of systems with the form PROSE: they return passages, best first, and `reader` reads
    the answer in them.
    """

    name: str
    version: str
    settings: Mapping[str, str] = field(default_factory=dict)
    form: str = PROSE

    def search(self, text: str, user: str, max_tokens: int) -> Sequence[Passage]:
        """Return passages for a question in words, best first, of at most that size."""
        raise NotImplementedError

    def open(self, case: Case) -> None:
        """Begin with an empty memory."""
        self.case = case

    def store(self, entry: Input) -> None:
        """Store an input."""
        raise NotImplementedError

    def answer(self, question: Question) -> Answer:
        """Read the answer in the passages."""
        return read(self, self.case, question)

    def close(self) -> None:
        """Do nothing."""
