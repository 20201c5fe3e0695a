"""An equivalence relation: the class of a name, the test of a pair, and all pairs, from nothing
each time.

DuckDB gets a recursive query with a key that labels each name with the least number of its class.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from measure import Effort, Sample, Skipped, median_of
from prepared import Prepared
from programs import open_without_tables
from table import Row

RULES = """
@equivalence same/2.
@canonical same/2.
same(?x, ?y) :- alias(?x, ?y).
"""
SQL = """
WITH RECURSIVE label(x, c) USING KEY (x) AS (
    SELECT x, min(c) FROM (
        SELECT x, least(x, y) AS c FROM alias UNION ALL SELECT y, least(x, y) FROM alias
    ) GROUP BY x
    UNION
    SELECT e.y, min(label.c)
    FROM label JOIN (SELECT x, y FROM alias UNION ALL SELECT y, x FROM alias) e ON e.x = label.x
        JOIN recurring.label known ON known.x = e.y
    WHERE label.c < known.c
    GROUP BY e.y
)
SELECT sum(n * n) FROM (SELECT count(*) AS n FROM label GROUP BY c)
"""
"""The number of pairs."""

CLASS = 60
MAX_SECONDS = 0.020
"""For a goal with a name over 60,000 names, whose classes are found from nothing."""

Pairs = Sequence[tuple[int, int]]
Peer = Callable[[Pairs, Effort], Sample]


def trees(classes: int) -> Pairs:
    """A random tree for each class, its edges in random order, with a fixed seed."""
    rng = random.Random(11)
    pairs = [
        (c * CLASS + rng.randrange(i), c * CLASS + i)
        for c in range(classes)
        for i in range(1, CLASS)
    ]
    rng.shuffle(pairs)
    return pairs


def equivalence(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Goals on the names of classes of 60."""
    classes = effort.pick(1000, 10)
    pairs = trees(classes)
    facts = {"alias": [(f"n{x}", f"n{y}") for x, y in pairs]}
    size = f"{classes * CLASS:,} names"
    with open_without_tables(facts, RULES) as kb:
        for pattern, goal in (
            ("bf", "same(n5, ?y)"),
            ("bb", "same(n5, n7)"),
            ("representative of a name", "canonical(same, n5, ?y)"),
            ("representatives of all", "canonical(same, ?x, ?y)"),
            ("ff", "same(?x, ?y)"),
        ):
            ours = median_of(Prepared(kb, goal).count, effort)
            row = Row(f"equivalence, {pattern}", size, ours.answers, ours)
            if pattern == "ff":
                for name, run in peers.items():
                    try:
                        row.peers[name] = run(pairs, effort)
                    except Skipped as why:
                        row.peers[name] = Sample(None, None, str(why))
            elif not effort.small and pattern != "representatives of all":
                row.floor = f"≤ {MAX_SECONDS * 1e3:g} ms"
                row.met = (ours.seconds or 0.0) <= MAX_SECONDS
            yield row
