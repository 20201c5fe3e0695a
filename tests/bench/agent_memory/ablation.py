"""kbcore-text without some of what its search by words looks at, to see what each part is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from kbcore.context.relevance import conversation, matches
from kbcore.search import bm25

from .interface import Recall, Request
from .kbcore_systems import TEXTS, KBCore


def _no_words(*_: object) -> list[str]:
    return []


def _no_text(*_: object) -> str:
    return ""


OFF: dict[str, tuple[tuple[ModuleType, str, Any], ...]] = {
    "dates": ((bm25, "date_words", _no_words), (matches, "resolved_dates", _no_text)),
    "session": ((conversation, "SESSION_WEIGHT", 0.0),),
    "neighbours": ((conversation, "NEIGHBOUR_WEIGHT", 0.0),),
    "answers": ((conversation, "ANSWER_WEIGHT", 0.0),),
    "pairs": ((bm25, "PAIR_WEIGHT", 0.0),),
}
"""By part of the search: what is replaced, and by which value, to leave the part out."""

WORDS = "words only"


class Without(KBCore):
    """`kbcore-text` without some parts of its search."""

    def __init__(self, name: str, parts: Sequence[str], min_relevance: float = 0.0) -> None:
        super().__init__(TEXTS, min_relevance=min_relevance)
        self.name = name
        self._parts = parts

    def finish(self) -> None:
        """Wait until the index of words is complete."""
        with _left_out(self._parts):
            super().finish()

    def recall(self, request: Request) -> Recall:
        """Return the window for a question."""
        with _left_out(self._parts):
            return super().recall(request)


def steps(min_relevance: float = 0.0) -> list[Callable[[], KBCore]]:
    """Return systems with words only, and then with one more part each."""
    parts = list(OFF)
    names = [WORDS, *(f"+ {part}" for part in parts)]
    return [
        partial(Without, name, parts[index:], min_relevance) for index, name in enumerate(names)
    ]


@contextmanager
def _left_out(parts: Sequence[str]) -> Iterator[None]:
    replaced = [entry for part in parts for entry in OFF[part]]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    try:
        for module, name, value in replaced:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
