"""Free text: time of a search at 100,000 facts beside rank_bm25, and how often the answer is among
the first ten.
"""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from glosses import glosses
from measure import Effort, collector_off, stream_of
from relevance import first_person
from table import Row
from talk import collection, many, recall

from kbcore.config import Config
from kbcore.context.request import WindowRequest
from kbcore.node.opening import open_runtime
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.tokens import words
from kbcore.state.facts import Fact, FactRows

try:
    from rank_bm25 import BM25Okapi
except ImportError:
    BM25Okapi = None

TOP = 10
TIMES = 50
"""How many times as fast as rank_bm25 a search is to be."""

FIRST_MS = 200
"""Time within which the first question after a start is to be answered."""


def lexical(effort: Effort, peers: Mapping[str, object]) -> Iterator[Row]:
    """Quality first, then time."""
    yield from quality("made", *collection(), plainly=True)
    yield from first_person(effort)
    found = glosses(effort.pick(None, 3000))
    if found is None:
        yield Row("recall@10, WordNet", "", None, "not installed (wordnet-base)")
    else:
        facts, definitions, examples = found
        yield from quality("of a definition", facts, definitions)
        yield from quality("usage examples", facts, examples)
    yield from speed(effort)


def quality(
    kind: str,
    facts: Sequence[tuple[str, ...]],
    asked: Sequence[tuple[str, int]],
    plainly: bool = False,
) -> Iterator[Row]:
    """Recall of the first ten on a labelled collection; `plainly` the peer is also asked with
    lower-case words.
    """
    size = f"{len(facts):,}"
    questions = [text for text, _ in asked]
    with open_runtime(Config.from_env({"STORAGE_BACKEND": "memory"})) as node:
        kb = node.knowledge_base()
        places = load(kb, facts)
        found = [
            [places[stored.schema.predicate][row] for stored, row, _ in hits]
            for hits, _ in searches(kb, questions)
        ]
    ours = recall(found, asked)
    row = Row(f"recall@10, {kind}", size, len(asked), f"{ours:.3f}")
    if BM25Okapi is not None:
        stemmed = recall(list(peer(facts, questions, words)), asked)
        row.ratio = f"rank_bm25 {stemmed:.3f} with our words"
        if plainly:
            row.ratio += f", {recall(list(peer(facts, questions, plain_words)), asked):.3f} with lower-case words"
        row.floor, row.met = "≥ rank_bm25 with our words", ours >= stemmed
    yield row


def speed(effort: Effort) -> Iterator[Row]:
    """The same words for both; every search ranks ten facts."""
    facts, questions = many(effort.pick(100_000, 2000))
    size = f"{len(facts):,}"
    with open_runtime(Config.from_env({"STORAGE_BACKEND": "memory"})) as node:
        kb = node.knowledge_base()
        load(kb, facts)
        start = time.perf_counter()
        window = kb.context(WindowRequest(25, query=questions[0]))
        first = time.perf_counter() - start
        row = Row("first window with a query", size, 1, f"{first * 1000:.0f} ms")
        row.ratio = f"{window.index_progress or 1.0:.1%} indexed"
        row.floor, row.met = f"< {FIRST_MS} ms", first * 1000 < FIRST_MS
        yield row
        kb._read_tenant().attached.pop(LexicalIndex).close()
        start = time.process_time()
        list(searches(kb, ["warm"]))
        built = time.process_time() - start
        ours = stream_of([seconds for _, seconds in searches(kb, questions)])
        row = Row("search by text", size, len(questions), ours)
        if BM25Okapi is not None:
            index, times = BM25Okapi([document(fact, words) for fact in facts]), []
            for question in questions[: effort.pick(20, 5)]:
                with collector_off():
                    start = time.process_time()
                    best_of(index, words(question))
                    times.append(time.process_time() - start)
            theirs = stream_of(times)
            assert theirs.seconds is not None
            assert ours.seconds is not None
            row.ratio = f"rank_bm25 {theirs}: {theirs.seconds / ours.seconds:.3g} ×"
            row.floor, row.met = (
                f"≥ {TIMES} × rank_bm25, p50",
                theirs.seconds >= TIMES * ours.seconds,
            )
        yield row
        yield Row("first search, index made", size, None, f"{built:.2f} s")
        after = []
        for at in range(20):
            kb.assert_facts([Fact("visited", (f"newcomer {at}", "Oslo"))])
            kb.retract_fact(facts[at][0], facts[at][1:])
            after += [seconds for _, seconds in searches(kb, questions[at : at + 1])]
        yield Row("search after a fact came and one went", size, 20, stream_of(after))
        kb._read_tenant().attached.pop(LexicalIndex).close()
        tracemalloc.start()
        list(searches(kb, ["warm"]))
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        yield Row(
            "memory of the index",
            size,
            None,
            f"{held / 1e6:.3g} MB, {held / len(facts):.0f} bytes a fact",
        )


def load(kb: Any, facts: Sequence[tuple[str, ...]]) -> dict[str, list[int]]:
    """Tell all facts; the place of each by predicate and row id."""
    places: dict[str, list[int]] = {}
    seen = set()
    for place, fact in enumerate(facts):
        if fact not in seen:
            seen.add(fact)
            places.setdefault(fact[0], []).append(place)
    rows = [
        (name, [arg for place in some for arg in facts[place][1:]]) for name, some in places.items()
    ]
    kb.assert_rows([FactRows(name, len(facts[0]) - 1, args) for name, args in rows])
    return places


def searches(kb: Any, questions: Sequence[str]) -> Iterator[tuple[list[Any], float]]:
    """What each question finds, and its CPU seconds."""
    for question in questions:
        with kb._reads(None) as (tenant, budget), collector_off():
            start = time.process_time()
            hits = LexicalIndex.of(tenant).search(tenant.partition(None), question, TOP, budget)
            yield hits, time.process_time() - start


def peer(
    facts: Sequence[tuple[str, ...]], questions: Sequence[str], split: Callable[[str], list[str]]
) -> Iterator[list[int]]:
    """What rank_bm25 finds."""
    index = BM25Okapi([document(fact, split) for fact in facts])
    for question in questions:
        yield best_of(index, split(question))


def best_of(index: Any, query: list[str]) -> list[int]:
    """The places of the best ten."""
    scores = index.get_scores(query)
    return [int(place) for place in (-scores).argsort(kind="stable")[:TOP]]


def document(fact: tuple[str, ...], split: Callable[[str], list[str]]) -> list[str]:
    """The words of a fact."""
    return [word for part in fact for word in split(part)]


def plain_words(text: str) -> list[str]:
    """Lower-case words, identifiers split, neither stems nor stop words."""
    return re.findall(r"[a-z]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
