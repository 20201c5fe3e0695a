"""Answers in a Python program: counted, and read as tuples, through `kb.ask` and `kb.query`.

Counting makes no tuples, so that it should take a small part of the time and memory of reading. Memory is what Python has
allocated more at the peak (tracemalloc); it is measured in a run of its own, because that slows the program down.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice

from measure import Effort, Sample, median_of
from table import Row

from kbcore import AnswerSet, KnowledgeBase, open_kb

BATCH = 50_000
TIME_FLOOR, MEMORY_FLOOR = 3, 5
"""Smallest factors by which reading takes longer and needs more memory."""


def answers(effort: Effort, peers: object = None) -> Iterator[Row]:
    """A conclusion and a stored fact with two arguments, all answers of an open goal."""
    count = effort.pick(1_000_000, 5000)
    with open_kb() as kb:
        _fill(kb, count)
        questions: dict[str, Callable[[], AnswerSet]] = {
            "ask": lambda: kb.ask("q(?x, ?y)"),
            "query": lambda: kb.query("p(?x, ?y)"),
        }
        for name, question in questions.items():
            counted = median_of(lambda question=question: len(question()), effort)
            read = median_of(lambda question=question: len(list(question())), effort)
            small, large = _peak(lambda: len(question())), _peak(lambda: len(list(question())))  # noqa: B023
            row = Row(f"len of {name}", f"{count:,}", counted.answers, counted)
            if counted.answers != count or read.answers != count:
                row.wrong = f"{row.workload}: {counted.answers} counted, {read.answers} read"
            row.ratio = (
                f"{_ratio(read, counted):.3g} times faster than reading ({read}); "
                f"{small / 1e6:.3g} MB, reading {large / 1e6:.3g} MB"
            )
            row.floor = f"≥ {TIME_FLOOR} × reading, memory ≥ {MEMORY_FLOOR} ×"
            if not effort.small:
                row.met = _ratio(read, counted) >= TIME_FLOOR and large >= MEMORY_FLOOR * small
            yield row


def _fill(kb: KnowledgeBase, count: int) -> None:
    facts = ((f"name-{n}", str(n)) for n in range(count))
    while batch := list(islice(facts, BATCH)):
        kb.tell_many("p", batch)
    kb.teach("q(?x, ?y) :- p(?x, ?y).")


def _ratio(read: Sample, counted: Sample) -> float:
    return (read.seconds or 0.0) / (counted.seconds or 1.0)


def _peak(call: Callable[[], int]) -> int:
    """Bytes that Python has allocated more at the peak of a call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
