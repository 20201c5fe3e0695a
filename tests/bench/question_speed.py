"""The time of a window for a question over 100,000 facts, beside a search of SQLite on the same
texts.

Made with a fixed seed: three of five facts are sentences of 5 to 40 words that someone said, with
the frequencies of words that texts have (Zipf's law), the others are small facts. A question has 4
to 15 words: some of a fact, common ones, and words of almost every sentence. SQLite's FTS5
has the same words with Porter's stems, and finds the best 100 by its own bm25.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from measure import Effort, Sample, collector_off, stream_of
from table import Row
from talk import KINDS, NAMES

from kbcore import Config, open_runtime
from kbcore.clock import ManualClock
from kbcore.context.request import NATURAL, WindowRequest
from kbcore.operations.tenant_kb import TenantKB
from kbcore.search.tokens import STOP_WORDS, words
from kbcore.state.facts import FactRows

START = 1_700_000_000_000
VOCABULARY = 20_000
COMMON = 40
"""Words of the vocabulary that are in many sentences."""

SENTENCES_OF_FIVE = 3
LIMIT = 0.020
"""Seconds that a window may take, p99."""

TOP = 100

Fact = tuple[str, ...]


def speed_of_questions(effort: Effort, able: object) -> Iterator[Row]:
    """Give the time of the first window, then those of a stream of questions of several kinds."""
    facts, questions = made(effort.pick(100_000, 2000), effort.pick(400, 20))
    size = f"{len(facts):,}"
    theirs = _sqlite(facts, questions)
    clock = ManualClock(START)
    with open_runtime(Config(storage_backend="memory"), clock=clock) as node:
        kb = node.knowledge_base()
        _load(kb, facts)
        first = _stream(kb, clock, questions[:1], lambda text: WindowRequest(query=text))
        yield Row("window for a question, index made", size, None, first)
        for name, request in KINDS_OF_WINDOWS.items():
            ours = _stream(kb, clock, questions, request)
            row = Row(f"window for a question, {name}", size, len(questions), ours)
            assert ours.seconds is not None
            assert ours.tail is not None
            assert theirs.seconds is not None
            row.ratio = f"FTS5 {theirs}: {theirs.seconds / ours.seconds:.3g} ×"
            row.floor, row.met = f"p99 ≤ {LIMIT * 1000:g} ms", ours.tail <= LIMIT
            yield row
        after = []
        for at, text in enumerate(questions[: effort.pick(100, 5)]):
            kb.assert_rows([FactRows("said", 2, ["Newcomer", f"sentence {at} about {text}"])])
            after += _times(kb, clock, [text], lambda text: WindowRequest(query=text))
        ours = stream_of(after)
        assert ours.tail is not None
        row = Row("window for a question, after each write", size, len(after), ours)
        row.floor, row.met = f"p99 ≤ {LIMIT * 1000:g} ms", ours.tail <= LIMIT
        yield row


KINDS_OF_WINDOWS: dict[str, Callable[[str], WindowRequest]] = {
    "100 facts": lambda text: WindowRequest(query=text),
    "10 facts": lambda text: WindowRequest(10, query=text),
    "1,000 tokens of text": lambda text: WindowRequest(query=text, max_tokens=1000, format=NATURAL),
    "an asker": lambda text: WindowRequest(query=f"{text} and I", asker=NAMES[0]),
}


def made(count: int, questions: int) -> tuple[list[Fact], list[str]]:
    """Return facts, and questions on some of them."""
    draw = random.Random(23)
    known = vocabulary(draw)
    cumulated = list(accumulate(1 / rank for rank in range(3, VOCABULARY + 3)))
    filling = sorted(STOP_WORDS)

    def sentence(length: int) -> str:
        chosen = draw.choices(known, cum_weights=cumulated, k=length)
        return " ".join(draw.choice(filling) if draw.random() < 0.4 else word for word in chosen)

    facts: list[Fact] = []
    for at in range(count):
        who = f"{draw.choice(NAMES)} {draw.choice(NAMES)}son"
        if at % 5 < SENTENCES_OF_FIVE:
            facts.append(("said", who, sentence(draw.randint(5, 40))))
        else:
            predicate, values, _ = draw.choice(KINDS)
            facts.append((predicate, f"{who} {at % 997}", draw.choice(values.split("|"))))
    asked = []
    for _ in range(questions):
        fact = draw.choice(facts)
        length = draw.randint(4, 15)
        terms = " ".join(fact[1:]).split()
        own = draw.sample(terms, min(len(terms), length // 2))
        common = draw.choices(known[:COMMON], k=length // 4)
        text = [*own, *common, *draw.choices(filling, k=length - len(own) - len(common))]
        draw.shuffle(text)
        asked.append(" ".join(text))
    return facts, asked


def vocabulary(draw: random.Random) -> list[str]:
    """Return words that can be pronounced, short ones first, as in most languages."""
    known: dict[str, None] = {}
    while len(known) < VOCABULARY:
        syllables = 1 + len(known) // 60 if len(known) < 120 else draw.randint(2, 4)
        word = "".join(
            draw.choice("bcdfghjklmnprstvw") + draw.choice("aeiou") for _ in range(syllables)
        )
        known.setdefault(word + draw.choice(("", "n", "r", "l")))
    return list(known)


def _load(kb: TenantKB, facts: Sequence[Fact]) -> None:
    rows: dict[str, list[str]] = {}
    for fact in facts:
        rows.setdefault(fact[0], []).extend(fact[1:])
    kb.assert_rows([FactRows(name, 2, args) for name, args in rows.items()])


def _stream(
    kb: TenantKB,
    clock: ManualClock,
    questions: Sequence[str],
    request: Callable[[str], WindowRequest],
) -> Sample:
    return stream_of(_times(kb, clock, questions, request))


def _times(
    kb: TenantKB,
    clock: ManualClock,
    questions: Sequence[str],
    request: Callable[[str], WindowRequest],
) -> list[float]:
    """Return the CPU seconds of the window for each question; no window is an earlier one."""
    times = []
    with collector_off():
        for text in questions:
            clock.advance(20_000)
            start = time.process_time()
            kb.context(request(text))
            times.append(time.process_time() - start)
    return times


def _sqlite(facts: Sequence[Fact], questions: Sequence[str]) -> Sample:
    """Return the CPU seconds of SQLite for the same questions; it reads the texts it finds."""
    with sqlite3.connect(":memory:") as database:
        database.execute(
            "CREATE VIRTUAL TABLE fact USING fts5(text, tokenize = 'porter unicode61')"
        )
        database.executemany(
            "INSERT INTO fact VALUES (?)", ((" ".join(fact).replace("_", " "),) for fact in facts)
        )
        times = []
        with collector_off():
            for text in questions:
                start = time.process_time()
                query = " OR ".join(f'"{word}"' for word in text.split() if words(word))
                database.execute(
                    f"SELECT text FROM fact WHERE fact MATCH ? ORDER BY rank LIMIT {TOP}", [query]
                ).fetchall()
                times.append(time.process_time() - start)
    return stream_of(times)
