"""A program: relations, rules over them, goals with the queries that other engines are given for
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from measure import Effort, Sample, Skipped, median_of
from prepared import Prepared
from table import BATCH, BOUND, Row

import kbcore
from kbcore.config import Config
from kbcore.embed import EmbeddedKB

Rows = Sequence[tuple[str, ...]]
"""Facts of one relation; every argument is `n` and a number, which is what engines over integers
are given.
"""


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal in the rule language, and what a peer is given for it.

    `sql` counts the answers, with `constant` as its parameter if there is one. `asp` is a program
    for clingo whose atoms of `goal` are the answers, or empty where it is not asked.
    """

    label: str
    text: str
    sql: str
    constant: int | None = None
    asp: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """Relations, rules over them, goals."""

    name: str
    size: str
    relations: Mapping[str, Rows]
    rules: str
    goals: Sequence[Goal]


Peer = Callable[[Program, Effort], "list[Sample]"]


def open_without_tables(relations: Mapping[str, Rows], rules: str) -> EmbeddedKB:
    """A knowledge base in which every goal is evaluated again."""
    config = Config(
        goal_table_mb=0,
        query_timeout_ms=60_000,
        query_max_rows=1 << 30,
        query_max_bytes=1 << 32,
        query_max_steps=1 << 40,
    )
    kb = kbcore.open_kb(config=config)
    for name, rows in relations.items():
        for start in range(0, len(rows), 5000):
            kb.tell_many(name, rows[start : start + 5000])
    kb.teach(rules)
    return kb


def count_named(kb: EmbeddedKB, text: str) -> int:
    """Goal text in, names out."""
    return len(kb.ask(text))


def measured(program: Program, effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """A row for each goal of a program."""
    rows = []
    with open_without_tables(program.relations, program.rules) as kb:
        for goal in program.goals:
            prepared = Prepared(kb, goal.text)
            prepared.count()  # the first run makes the indexes its plan asks for; a peer has its own from the load
            ours = median_of(prepared.count, effort)
            named = median_of(partial(count_named, kb, goal.text), effort)
            floors = BATCH if goal.constant is None else BOUND
            rows.append(
                Row(
                    f"{program.name}, {goal.label}",
                    program.size,
                    ours.answers,
                    ours,
                    named=named,
                    floors=floors,
                )
            )
    for name, evaluate in peers.items():
        try:
            samples = evaluate(program, effort)
        except Skipped as why:
            samples = [Sample(None, None, str(why))] * len(rows)
        for row, sample in zip(rows, samples, strict=True):
            row.peers[name] = sample
    for row in rows:
        print(f"  {row.workload}: {row.ours}, named {row.named}, {', '.join(f'{n} {s}' for n, s in row.peers.items())}",
              file=sys.stderr, flush=True)  # fmt: skip
    yield from rows
