"""Scores of windows and answers; every score is exact, none needs a model."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .interface import Question, Recall


def tokens(text: str) -> int:
    """Return the number of tokens of a text, estimated as a quarter of its characters."""
    return -(-len(text) // 4)


def contains(window: str, value: str) -> bool:
    """Return whether a text contains a value as whole words; case and spaces do not matter."""
    words = r"\s+".join(re.escape(part) for part in value.split())
    if not words:
        raise ValueError("an expected answer is empty")
    return re.search(rf"(?<!\w){words}(?!\w)", window, re.IGNORECASE) is not None


def evidence_recall(evidence: Collection[str], turns: Collection[str]) -> float:
    """Return the share of the evidence among the turns of a window."""
    if not evidence:
        raise ValueError("a question without evidence has no recall")
    return len(set(evidence) & set(turns)) / len(set(evidence))


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that is at least as large as `share` of all values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[max(1, math.ceil(round(len(ordered) * share, 9))) - 1]


@dataclass(frozen=True, slots=True)
class Score:
    """Scores of one question.

    `recall` is None without evidence. `first_recall` is that of the first ten turns, and
    `first_precision` the share of them that are on the subject of the question, or its evidence if
    that is not known; None without evidence, and the precision also without turns. `in_window` says
    that all answers are in the window; for a question about something that was never said, that the
    window is empty. `supported` says that all the evidence is in the window too, `alone` that
    moreover no competing value is. `answered` is None if the system cannot answer.
    """

    ability: str
    recall: float | None
    in_window: bool
    supported: bool
    alone: bool
    answered: bool | None
    tokens: int
    first_recall: float | None = None
    first_precision: float | None = None


def score(
    question: Question,
    window: Recall,
    answer: frozenset[str] | None,
    first: Collection[str] = (),
) -> Score:
    """Score a window, an exact answer and the first ten turns for a question."""
    nothing_said = not question.answers and not question.evidence
    if nothing_said:
        in_window = not window.text.strip()
    else:
        in_window = bool(question.answers) and all(
            contains(window.text, value) for value in question.answers
        )
    supported = in_window and question.evidence <= set(window.turns)
    return Score(
        question.ability,
        evidence_recall(question.evidence, window.turns) if question.evidence else None,
        in_window,
        supported,
        supported and not any(contains(window.text, value) for value in question.competing),
        None if answer is None else answer == frozenset(question.answers),
        tokens(window.text),
        evidence_recall(question.evidence, first) if question.evidence else None,
        evidence_recall(first, question.related or question.evidence)
        if question.evidence and first
        else None,
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over questions; None where no question has the score."""

    questions: int
    recall: float | None
    in_window: float
    supported: float
    alone: float
    answered: float | None
    tokens: float
    first_recall: float | None
    first_precision: float | None


def summary(scores: Sequence[Score]) -> Summary:
    """Return the means of scores."""
    if not scores:
        raise ValueError("no scores")
    return Summary(
        len(scores),
        _mean([each.recall for each in scores]),
        _mean([each.in_window for each in scores]) or 0.0,
        _mean([each.supported for each in scores]) or 0.0,
        _mean([each.alone for each in scores]) or 0.0,
        _mean([each.answered for each in scores]),
        sum(each.tokens for each in scores) / len(scores),
        _mean([each.first_recall for each in scores]),
        _mean([each.first_precision for each in scores]),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [float(value) for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
