"""Answers in a Python program: counted, read as tuples, as Arrow columns and as JSON.

Counting makes no tuples, so that it should take a small part of the time and memory of reading.
Memory is what Python has allocated more at the peak (tracemalloc); it is measured in a run of its
own, because that slows the program down.

The named answers of a closure are handed out in the forms that DuckDB has too: both sides evaluate
the closure each time and give names.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import graphs
from closures import CLOSURE_RULES
from measure import Effort, Sample, Skipped, median_of
from programs import open_without_tables
from table import Floor, Row

from kbcore import AnswerSet, AnswerTable, KnowledgeBase, open_kb
from kbcore.reason.options import AnswerOptions
from kbplanner.syntax.parser import parse_goal

Peer = Callable[[Sequence[graphs.Pair], Effort], "dict[str, Sample]"]

BATCH = 50_000
MOST_AS_JSON = 1_000_000
"""Answers; a request may have no more."""
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


HANDED_OUT = (
    "WITH RECURSIVE r(x, y) AS (SELECT x, y FROM edge UNION SELECT r.x, e.y FROM r JOIN edge e ON e.x = r.y)"
    " SELECT x, y FROM r"
)
MIN_JSON_RATE = 400e6
"""Bytes a second."""


def handed_out(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """The closure of a cyclic graph with its names, in each form."""
    nodes, count = effort.pick(2000, 40), effort.pick(3000, 60)
    edges = graphs.scattered(nodes, count, 1)
    size = f"{nodes:,}/{count:,}"
    with open_without_tables({"edge": edges}, CLOSURE_RULES) as kb:
        goal = "right(?x, ?y)"
        literal = parse_goal(goal).literal
        sizes: list[int] = []

        def as_json() -> int:
            parts = kb.kb.infer_json(literal, _unused, AnswerOptions(limit=MOST_AS_JSON))
            sizes.append(sum(map(len, parts)))
            return sizes[-1]

        ours = {
            "tuples": median_of(lambda: len(list(kb.ask(goal))), effort),
            "Arrow": median_of(lambda: _exported(kb.ask(goal).arrow()), effort),
        }
        json_sample = median_of(as_json, effort)
    rows = {
        form: Row(
            f"named answers as {form}", size, sample.answers, sample, floors=(Floor("duckdb", 1),)
        )
        for form, sample in ours.items()
    }
    for name, evaluate in peers.items():
        try:
            samples = evaluate(edges, effort)
        except Skipped as why:
            samples = dict.fromkeys(rows, Sample(None, None, str(why)))
        for form, row in rows.items():
            row.peers[name] = samples[form]
    yield from rows.values()
    rate = sizes[-1] / (json_sample.seconds or 1.0)
    row = Row(
        "named answers as JSON", size, min(MOST_AS_JSON, ours["tuples"].answers or 0), json_sample
    )
    row.ratio = f"{sizes[-1] / 1e6:,.0f} MB, {rate / 1e6:,.0f} MB/s, inference included"
    row.floor = f"≥ {MIN_JSON_RATE / 1e6:,.0f} MB/s"
    if not effort.small:
        row.met = rate >= MIN_JSON_RATE
    yield row


def _exported(table: AnswerTable) -> int:
    """The capsule that a library would take over."""
    assert table.__arrow_c_stream__() is not None
    return table.num_rows


def _unused(rows: object, yield_now: object) -> bytes:
    raise AssertionError("the engine writes these rows")


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
