"""Exact scores: sets of answers are compared, wrong answers and abstentions counted apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from .interface import Answer, tokens
from .model import VALUES, Question
from .reader import names


@dataclass
class Score:
    """Counts of one task.

    `right`, `wrong`, `abstained` and `failed` add up to `questions`. `right` means the exact set of
    answers, which can be empty; `abstained` no answer where there is one; `failed` an error.
    `hits`, `extra` and `missing` count single answers. The other counts are about the questions
    that were answered with a text: `windows`, of them `full` with all answers, `leaking` with a
    value of `gone` among the `windows_with_gone` that could have one, `oversized`, and their
    `tokens`.
    """

    ability: str
    task: str
    questions: int = 0
    right: int = 0
    wrong: int = 0
    abstained: int = 0
    failed: int = 0
    hits: int = 0
    extra: int = 0
    missing: int = 0
    windows: int = 0
    windows_with_answer: int = 0
    full: int = 0
    windows_with_gone: int = 0
    leaking: int = 0
    oversized: int = 0
    tokens: int = 0

    def add(self, question: Question, answer: Answer | None) -> None:
        """Count a question; the answer is None after an error."""
        self.questions += 1
        expected = frozenset(question.answers)
        if answer is None:
            self.failed += 1
            self.missing += len(expected)
            return
        self.hits += len(answer.values & expected)
        self.extra += len(answer.values - expected)
        self.missing += len(expected - answer.values)
        if answer.values == expected:
            self.right += 1
        elif answer.values:
            self.wrong += 1
        else:
            self.abstained += 1
        if answer.window is not None:
            self._add_window(question, answer.window)

    def _add_window(self, question: Question, window: str) -> None:
        self.windows += 1
        self.tokens += tokens(window)
        self.oversized += len(question.path) == 1 and tokens(window) > question.window
        if question.kind == VALUES and question.answers:
            self.windows_with_answer += 1
            self.full += all(names(window, value) for value in question.answers)
        if question.gone:
            self.windows_with_gone += 1
            self.leaking += any(names(window, value) for value in question.gone)


def total(scores: Iterable[Score], ability: str) -> Score:
    """Return the sum of scores, of one ability or, with an empty name, of all."""
    result = Score(ability or "all", "")
    for score in scores:
        if not ability or score.ability == ability:
            for name, value in asdict(score).items():
                if name not in ("ability", "task"):
                    setattr(result, name, getattr(result, name) + value)
    return result
