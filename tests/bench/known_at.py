"""Questions about what was known at an earlier instant, beside the same questions now.

People work for companies, and a rule names colleagues. After the instant some people change their
company, so that the state has to be rebuilt from the log: by the first question about it, in CPU
time that grows with the log. Later questions find the state in memory. Every question is about
another person, and its answers are compared with those that were given at the instant.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from measure import Effort, Sample, collector_off, duration, stream_of
from table import Row

import kbcore

RULES = "colleague(?x, ?y) :- works_for(?x, ?c), works_for(?y, ?c), ?x != ?y."
STAFF = 10
"""People of a company: a question has about as many answers."""

QUESTIONS = 300
MOVES = 1000
MOST_TIMES_NOW = 2.0
"""Later questions about one earlier state may take this many times as long as questions now."""


def known_at(effort: Effort, peers: Mapping[str, object]) -> Iterator[Row]:
    """Time of questions now, of the first one at an earlier instant, and of the later ones at
    it.
    """
    people, moves = effort.pick(100_000, 500), effort.pick(MOVES, 20)
    draw = random.Random(29)
    names = [f"p{number}" for number in range(people)]
    companies = [f"c{number}" for number in range(people // STAFF)]
    employer = {name: draw.choice(companies) for name in names}
    asked = draw.sample(names, effort.pick(QUESTIONS, 20))
    with (
        tempfile.TemporaryDirectory() as folder,
        kbcore.open_kb(path=folder) as kb,
    ):
        kb.teach(RULES)
        kb.tell_many("works_for", list(employer.items()))
        expected = [set(kb.ask(_goal(name))) for name in asked]
        instant = int(time.time() * 1000)
        while int(time.time() * 1000) <= instant:
            pass  # the moves are at a later millisecond
        for name in draw.sample(names, moves):
            kb.retract("works_for", [name, employer[name]], count=False)
            kb.tell("works_for", [name, draw.choice(companies)])
        now, present = _asked(lambda: kb, asked)
        began = time.process_time()
        list(kb.known_at(instant).ask(_goal(asked[0])))
        first = time.process_time() - began
        then, answers = _asked(lambda: kb.known_at(instant), asked)
    size = f"{people:,} facts"
    changed = sum(one != other for one, other in zip(present, expected, strict=True))
    wrong = "" if answers == expected else "the answers are not those of the instant"
    if not changed:
        wrong = wrong or "the moves changed no answer"
    count = sum(map(len, expected))
    yield Row("colleagues now", size, sum(map(len, present)), now)
    row = Row("colleagues at an instant, the first question", size, None, Sample(first))
    row.ratio = f"{first / (now.seconds or first):,.0f} × now, {moves:,} moves after it"
    yield row
    row = Row("colleagues at an instant, later questions", size, count, then, wrong=wrong)
    if now.seconds and then.seconds:
        times = then.seconds / now.seconds
        row.ratio = f"{times:.2f} × now ({duration(now.seconds)})"
        if not effort.small:
            row.floor, row.met = f"≤ {MOST_TIMES_NOW:g} × now", times <= MOST_TIMES_NOW
    yield row


def _goal(name: str) -> str:
    return f"colleague({name}, ?who)"


def _asked(
    kb: Callable[[], kbcore.KnowledgeBase], names: Sequence[str]
) -> tuple[Sample, list[set[tuple[str, ...]]]]:
    """Return p50 and p99 of a question about each of some people, and the answers."""
    times, answers = [], []
    list(kb().ask(_goal(names[0])))
    with collector_off():
        for name in names:
            began = time.process_time()
            rows = list(kb().ask(_goal(name)))
            times.append(time.process_time() - began)
            answers.append(set(rows))
    return stream_of(times), answers
