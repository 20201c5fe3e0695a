"""Run a system over conversations and measure it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace

from .interface import Conversation, Question, Request, System
from .scoring import Score, Summary, percentile, score, summary, tokens

FIRST = 10
FIRST_BUDGET = 100_000
"""Turns that are looked at for recall and precision of the first ten, of any length."""


@dataclass
class Result:
    """Scores and times of a system; times in seconds of wall time."""

    system: str
    scores: list[Score] = field(default_factory=list)
    recall_times: list[float] = field(default_factory=list)
    answer_times: list[float] = field(default_factory=list)
    turns: int = 0
    ingestion_seconds: float = 0.0

    def by_ability(self) -> dict[str, Summary]:
        """Return the mean scores of each ability, in order of appearance."""
        groups: defaultdict[str, list[Score]] = defaultdict(list)
        for each in self.scores:
            groups[each.ability].append(each)
        return {ability: summary(scores) for ability, scores in groups.items()}

    def total(self) -> Summary:
        """Return the mean scores of all questions."""
        return summary(self.scores)

    def latency(self, share: float) -> float:
        """Return a percentile of the time of a window."""
        return percentile(self.recall_times, share)


def run(system: System, conversations: Iterable[Conversation], budget: int) -> Result:
    """Store each conversation in an empty system and ask its questions; close the system.

    Raises ValueError if a window exceeds the budget.
    """
    result = Result(system.name)
    with closing(system):
        for conversation in conversations:
            system.reset(conversation.rules)
            start = time.perf_counter()
            for turn in conversation.turns:
                system.store(turn)
            system.finish()
            result.ingestion_seconds += time.perf_counter() - start
            result.turns += len(conversation.turns)
            for question in conversation.questions:
                _ask(system, question, budget, result)
    return result


def _ask(system: System, question: Question, budget: int, result: Result) -> None:
    request = Request(
        question.text, budget, question.asker, question.at, question.goals, question.query
    )
    start = time.perf_counter()
    window = system.recall(request)
    result.recall_times.append(time.perf_counter() - start)
    size = tokens(window.text)
    if size > budget:
        raise ValueError(
            f"{system.name}, {question.id}: the window has {size} tokens, more than {budget}"
        )
    start = time.perf_counter()
    answer = system.answer(request)
    if answer is not None:
        result.answer_times.append(time.perf_counter() - start)
    first = system.recall(replace(request, budget=FIRST_BUDGET, most=FIRST))
    result.scores.append(score(question, window, answer, first.turns))
