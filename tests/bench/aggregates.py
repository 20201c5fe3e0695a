"""Aggregates over stored facts, and grouped in a rule, against SQL over the same rows.

Arguments are texts here, also those that are numbers; so the peers' tables have them as texts and
their queries cast them. That is what the floor is about. What DuckDB takes where the column is a
native integer stands next to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from measure import Effort, Sample, Skipped, median_of
from prepared import Prepared
from programs import open_without_tables
from table import Floor, Row

from kbcore.embed import EmbeddedKB
from kbcore.reason.aggregate import AggregateQuery

RULES = "total(?c, sum(?v)) :- amount(?o, ?c, ?v)."
OPERATIONS = ("COUNT", "SUM", "MIN", "MAX", "AVG")
GROUPED = "grouped SUM"

Rows = Sequence[tuple[str, str, str]]
Answers = dict[str, tuple[Sample, float]]
"""By operation: the time, and the result or, of the grouped one, the number of groups."""

Peer = Callable[[Rows, Effort, bool], Answers]
"""Told whether the values are native integers."""


def sql(operation: str, native: bool) -> str:
    """The query for an operation, or for the groups, as one number."""
    value = "v" if native else "CAST(v AS BIGINT)"
    if operation == GROUPED:
        return f"SELECT count(*) FROM (SELECT c, sum({value}) AS s FROM amount GROUP BY c) AS g WHERE s IS NOT NULL"
    return f"SELECT {operation}({value}) FROM amount"


def run_queries(fetch: Callable[[str], float], effort: Effort, native: bool) -> Answers:
    """Each operation through a function that gives a query's one number."""
    found: Answers = {}
    for operation in (*OPERATIONS, GROUPED):
        query = sql(operation, native)
        result = float(fetch(query))
        found[operation] = (
            median_of(lambda query=query: int(fetch(query) is not None), effort),
            result,
        )
    return found


def one(kb: EmbeddedKB, operation: str) -> int:
    """One aggregate of the stored facts; there is one answer."""
    return int(
        kb.kb.aggregate(
            AggregateQuery("amount", operation, arg_index=None if operation == "COUNT" else 2)
        ).result
        is not None
    )


def aggregates(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """COUNT, SUM, MIN, MAX and AVG of an argument, and the sum by group, from nothing each time."""
    n = effort.pick(1_000_000, 1000)
    rng = random.Random(50)
    rows = [
        (f"o{i}", f"c{rng.randrange(n // 1000 or 1)}", str(rng.randrange(10_000))) for i in range(n)
    ]
    results: dict[str, float] = {}
    made: list[tuple[str, Row]] = []
    with open_without_tables({"amount": rows}, RULES) as kb:
        for operation in OPERATIONS:
            argument = None if operation == "COUNT" else 2
            results[operation] = float(
                kb.kb.aggregate(AggregateQuery("amount", operation, arg_index=argument)).result or 0
            )
            ours = median_of(partial(one, kb, operation), effort)
            made.append(
                (
                    operation,
                    Row(
                        f"aggregate, {operation}", f"{n:,}", 1, ours, floors=(Floor("duckdb", 0.5),)
                    ),
                )
            )
        prepared = Prepared(kb, "total(?c, ?s)")
        results[GROUPED] = prepared.count()
        ours = median_of(prepared.count, effort)
        row = Row(
            "aggregate, SUM by group, in a rule",
            f"{n:,}",
            ours.answers,
            ours,
            floors=(Floor("duckdb", 0.5),),
        )
        made.append((GROUPED, row))
    for name, run in peers.items():
        try:
            found = run(rows, effort, False)
            native = run(rows, effort, True) if name == "duckdb" else {}
        except Skipped as why:
            for _, row in made:
                row.peers[name] = Sample(None, None, str(why))
            continue
        for operation, row in made:
            sample, result = found[operation]
            row.peers[name] = Sample(sample.seconds, row.answers)
            if abs(result - results[operation]) > 1e-9 * abs(result):
                row.wrong = f"{row.workload}: {results[operation]}, but {name} has {result}"
            if operation in native:
                row.compare()
                row.ratio += f"; duckdb with native integers {native[operation][0]}"
    for _, row in made:
        yield row
