"""Run systems over cases; what fails is recorded, never left out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .interface import NotAvailable, System
from .model import Case, Input
from .scoring import Score

RAN, NOT_AVAILABLE = "ran", "not available"


@dataclass
class Result:
    """The row of a system: its counts by task, its seconds of wall time, and its errors."""

    system: str
    status: str = RAN
    reason: str = ""
    form: str = ""
    version: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    scores: list[Score] = field(default_factory=list)
    inputs: int = 0
    store_seconds: float = 0.0
    answer_seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)


def run(name: str, make: Callable[[], System], cases: Sequence[Case]) -> Result:
    """Store the inputs of each case in an empty system, ask its questions, and count."""
    result = Result(name)
    try:
        system = make()
    except NotAvailable as error:
        result.status, result.reason = NOT_AVAILABLE, str(error)
        return result
    result.form, result.version = system.form, system.version
    result.settings = dict(system.settings)
    scores: dict[tuple[str, str], Score] = {}
    try:
        for case in cases:
            system.open(case)
            start = time.perf_counter()
            for entry in case.inputs:
                _store(system, entry, result)
            result.store_seconds += time.perf_counter() - start
            result.inputs += len(case.inputs)
            for question in case.questions:
                key = question.ability, question.task
                answer = None
                start = time.perf_counter()
                try:
                    answer = system.answer(question)
                except Exception as error:  # noqa: BLE001  an error of a system is a result
                    _count(result, error)
                result.answer_seconds += time.perf_counter() - start
                scores.setdefault(key, Score(*key)).add(question, answer)
    finally:
        system.close()
    result.scores = list(scores.values())
    return result


def _store(system: System, entry: Input, result: Result) -> None:
    try:
        system.store(entry)
    except Exception as error:  # noqa: BLE001  an error of a system is a result
        _count(result, error)


def _count(result: Result, error: Exception) -> None:
    result.errors[f"{type(error).__name__}: {str(error)[:200]}"] += 1
