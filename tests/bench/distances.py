"""Shortest distances from one node: a recursion that keeps the least value of each group.

DuckDB has the same as a recursive query with a key; next to it, Dijkstra's algorithm written by
hand in Python.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from measure import Effort, Sample, Skipped, median_of
from prepared import Prepared
from programs import open_without_tables
from table import Row

RULES = """
dist(?x, min ?d) :- start(?x), ?d = 0.
dist(?y, min ?d) :- dist(?x, ?e), edge(?x, ?y, ?w), ?d = ?e + ?w.
"""
SQL = """
WITH RECURSIVE dist(x, d) USING KEY (x) AS (
    SELECT 0, 0
    UNION
    SELECT e.y, min(dist.d + e.w)::INTEGER
    FROM dist JOIN edge e ON e.x = dist.x LEFT JOIN recurring.dist known ON known.x = e.y
    WHERE known.d IS NULL OR dist.d + e.w < known.d
    GROUP BY e.y
)
SELECT count(*), sum(d) FROM dist
"""
"""The number of nodes that are reached, and the sum of their distances."""

MAX_SECONDS = 0.010
"""For all distances from one node over 60,000 edges."""

Edges = Sequence[tuple[int, int, int]]

Peer = Callable[[Edges, Effort], "tuple[Sample, int]"]
"""Returns the time with the number of nodes reached, and the sum of the distances."""


def graph(nodes: int, edges: int) -> Edges:
    """Random edges with weights from 1 to 99, with a fixed seed."""
    rng = random.Random(7)
    return [
        (rng.randrange(nodes), rng.randrange(nodes), rng.randrange(1, 100)) for _ in range(edges)
    ]


def dijkstra(out: Mapping[int, Sequence[tuple[int, int]]]) -> dict[int, int]:
    """The distances from node 0."""
    best: dict[int, int] = {}
    queue = [(0, 0)]
    while queue:
        distance, node = heapq.heappop(queue)
        if node not in best:
            best[node] = distance
            for target, weight in out.get(node, ()):
                if target not in best:
                    heapq.heappush(queue, (distance + weight, target))
    return best


def distances(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """The distances to all nodes, and to one."""
    nodes, count = effort.pick(10_000, 100), effort.pick(60_000, 600)
    edges = graph(nodes, count)
    out: dict[int, list[tuple[int, int]]] = {}
    for source, target, weight in edges:
        out.setdefault(source, []).append((target, weight))
    expected = dijkstra(out)
    total = sum(expected.values())
    facts = {
        "start": [("n0",)],
        "edge": [(f"n{source}", f"n{target}", str(weight)) for source, target, weight in edges],
    }
    size = f"{count:,} edges"
    by_hand = median_of(lambda: len(dijkstra(out)), effort)
    with open_without_tables(facts, RULES) as kb:
        prepared = Prepared(kb, "dist(?x, ?d)")
        ours = median_of(prepared.count, effort)
        row = Row("distances, ff", size, ours.answers, ours)
        for name, run in peers.items():
            try:
                row.peers[name], found = run(edges, effort)
            except Skipped as why:
                row.peers[name] = Sample(None, None, str(why))
                continue
            if found != total:
                row.wrong = (
                    f"{row.workload}: the distances add up to {total}, but {name} has {found}"
                )
        row.compare()
        row.ratio += f"; by hand in Python {by_hand}"
        if ours.answers != len(expected):
            row.wrong = f"{row.workload}: {ours.answers} nodes, but {len(expected)} are reached"
        if not effort.small:
            row.floor = f"≤ {MAX_SECONDS * 1e3:g} ms"
            row.met = (ours.seconds or 0.0) <= MAX_SECONDS
        yield row
        one = Prepared(kb, f"dist(n{nodes // 2}, ?d)")
        ours = median_of(one.count, effort)
        yield Row("distances, bf", size, ours.answers, ours)
