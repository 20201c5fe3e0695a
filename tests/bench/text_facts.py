"""Costs of a text fact: its storing and indexing beside SQLite's FTS5 on the same texts, its
memory, and the first question after a start.

Made with a fixed seed: sentences of 5 to 40 words, with the frequencies of words that texts have.
They are stored as facts `said(person, text)`, and, a thirtieth of them, as messages of a user with
`memory.add`, 200 at a time.
"""

from __future__ import annotations

import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from measure import Effort, Sample, collector_off
from question_speed import VOCABULARY, vocabulary
from table import Row
from talk import NAMES

from kbcore import Config, open_kb
from kbcore.context.request import WindowRequest
from kbcore.search.tokens import STOP_WORDS
from kbcore.state.facts import FactRows

FIRST_SECONDS = 0.2
"""Aim for the wall time of the first question after a start, on an idle machine."""

FACT_BYTES = 800
"""Aim for the memory of a text fact with its index."""

ROWS_AT_ONCE, MESSAGES_AT_ONCE = 5000, 200
MESSAGES_SHARE = 30


def text_facts(effort: Effort, peers: Any) -> Iterator[Row]:
    """Give rows for the storing of facts and messages, their memory, and the first question."""
    texts = sentences(effort.pick(1_000_000, 3000))
    size = f"{len(texts):,}"
    theirs = _sqlite(texts)
    with tempfile.TemporaryDirectory() as folder:
        stored, indexed, grown = _in_process(_store_facts, folder, texts)
        ours = Sample(stored + indexed)
        row = Row("text facts: stored and indexed", size, len(texts), ours)
        row.ratio = f"FTS5 {Sample(theirs)}: {theirs / (stored + indexed):.3g} ×"
        yield row
        row = Row("text facts: memory of one", size, None, f"{grown / len(texts):.0f} B")
        row.floor, row.met = f"≤ {FACT_BYTES} B", grown <= FACT_BYTES * len(texts)
        yield row
        wall, progress = _in_process(_first_question, folder, texts)
        row = Row("text facts: first question after a start", size, None, Sample(wall))
        row.ratio = f"{progress:.1%} indexed"
        row.floor, row.met = f"≤ {FIRST_SECONDS * 1000:g} ms", wall <= FIRST_SECONDS
        yield row
    some = texts[: max(MESSAGES_AT_ONCE, len(texts) // MESSAGES_SHARE)]
    with tempfile.TemporaryDirectory() as folder:
        stored, grown = _in_process(_store_messages, folder, some)
        size = f"{len(some):,}"
        yield Row("messages: stored", size, len(some), Sample(stored))
        yield Row(
            "messages: memory of one, without its index", size, None, f"{grown / len(some):.0f} B"
        )


def sentences(count: int) -> list[str]:
    """Return sentences of 5 to 40 words."""
    draw = random.Random(23)
    known = vocabulary(draw)
    cumulated = list(accumulate(1 / rank for rank in range(3, VOCABULARY + 3)))
    filling = sorted(STOP_WORDS)
    texts = []
    for _ in range(count):
        chosen = draw.choices(known, cum_weights=cumulated, k=draw.randint(5, 40))
        texts.append(
            " ".join(draw.choice(filling) if draw.random() < 0.4 else word for word in chosen)
        )
    return texts


def _in_process(work: Any, folder: str, texts: Sequence[str]) -> Any:
    """Return what a function returns in a process of its own, so that its memory is its own."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(work, folder, len(texts), there))
    process.start()
    there.close()
    try:
        return here.recv()
    finally:
        process.join()


def _run(work: Any, folder: str, count: int, out: Connection) -> None:
    out.send(work(folder, sentences(count)))
    out.close()


def _config() -> Config:
    return Config(query_timeout_ms=60_000)


def _store_facts(folder: str, texts: Sequence[str]) -> tuple[float, float, int]:
    with open_kb(path=folder, config=_config()) as kb, collector_off():
        before, start = _resident(), time.process_time()
        for at in range(0, len(texts), ROWS_AT_ONCE):
            args = []
            for number, text in enumerate(texts[at : at + ROWS_AT_ONCE], at):
                args += [NAMES[number % len(NAMES)], text]
            kb.kb.assert_rows([FactRows("said", 2, args)])
        stored = time.process_time() - start
        while kb.kb.context(WindowRequest(query=texts[7], max_facts=1)).index_progress is not None:
            pass
        return stored, time.process_time() - start - stored, _resident() - before


def _store_messages(folder: str, texts: Sequence[str]) -> tuple[float, int]:
    with open_kb(path=folder, config=_config()) as kb:
        memory = kb.memory()
        memory.add("A first message, which installs the vocabulary.")
        before, start = _resident(), time.process_time()
        for at in range(0, len(texts), MESSAGES_AT_ONCE):
            memory.add(
                [{"role": "user", "content": each} for each in texts[at : at + MESSAGES_AT_ONCE]],
                session=f"s{at}",
            )
        return time.process_time() - start, _resident() - before


def _first_question(folder: str, texts: Sequence[str]) -> tuple[float, float]:
    with open_kb(path=folder, config=_config()) as kb:
        start = time.perf_counter()
        window = kb.kb.context(WindowRequest(query=texts[7], max_facts=10))
        wall = time.perf_counter() - start
        assert window.entries
        return wall, 1.0 if window.index_progress is None else window.index_progress


def _resident() -> int:
    """Return the resident memory in bytes."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _sqlite(texts: Sequence[str]) -> float:
    """Return the CPU seconds in which SQLite stores and indexes the texts, in one transaction."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(
            "CREATE VIRTUAL TABLE fact USING fts5(person, text, tokenize = 'porter unicode61')"
        )
        start = time.process_time()
        database.executemany(
            "INSERT INTO fact VALUES (?, ?)",
            ((NAMES[number % len(NAMES)], text) for number, text in enumerate(texts)),
        )
        database.commit()
        return time.process_time() - start
