"""Goals with constants on a recursion where demand evaluation alone costs more than it saves."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import graphs
from measure import Effort, median_of
from prepared import Prepared
from programs import Peer, Program, Rows, open_without_tables
from table import Row

RULES = """
points(?x, ?y) :- flow(?x, ?y).
points(?x, ?z) :- points(?x, ?y), points(?y, ?z).
points(?x, ?y) :- through(?x, ?y).
through(?x, ?y) :- load(?x, ?p), points(?p, ?q), store(?q, ?y).
"""
"""The form of a points-to analysis, in four rules. Each answer to `points` is new demand for
`points`.
"""

MAX_RATIO = 2.0
"""Time of a goal with constants to the time of the open goal."""


def program(nodes: int) -> Program:
    """Facts with a fixed seed: one and a half flows a node, a load and a store for every fifth
    node.
    """
    rng = random.Random(14)

    def pairs(count: int) -> Rows:
        return [
            (graphs.node(rng.randrange(nodes)), graphs.node(rng.randrange(nodes)))
            for _ in range(count)
        ]

    relations = {
        "flow": pairs(nodes * 3 // 2),
        "load": pairs(nodes // 5),
        "store": pairs(nodes // 5),
    }
    return Program("points-to", f"{nodes:,}", relations, RULES, [])


def goals(source: str, target: str) -> dict[str, str]:
    """One goal for each binding pattern, the open one first."""
    return {
        "ff": "points(?x, ?y)",
        "bf": f"points({source}, ?y)",
        "fb": f"points(?x, {target})",
        "bb": f"points({source}, {target})",
    }


def demand(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """The open goal, then goals with constants after it."""
    made = program(effort.pick(300, 30))
    source, target = made.relations["load"][0][0], made.relations["store"][0][1]
    with open_without_tables(made.relations, made.rules) as kb:
        open_seconds = 0.0
        for pattern, text in goals(source, target).items():
            prepared = Prepared(kb, text)
            prepared.count()
            ours = median_of(prepared.count, effort)
            row = Row(f"{made.name}, {pattern}", made.size, ours.answers, ours)
            seconds = ours.seconds or 0.0
            if pattern == "ff":
                open_seconds = seconds
            else:
                row.ratio = f"{seconds / open_seconds:.3g} of the open goal"
                row.floor, row.met = f"≤ {MAX_RATIO:g} × open", seconds <= MAX_RATIO * open_seconds
            yield row
