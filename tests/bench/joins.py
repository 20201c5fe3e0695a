"""Rules without recursion, and negation over recursion: a three-way join, triangles, what is not
reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import graphs
from measure import Effort
from programs import Goal, Peer, Program, measured
from table import Row

JOIN_RULES = "far(?x, ?w) :- r(?x, ?y), s(?y, ?z), t(?z, ?w)."
JOIN_SQL = {
    "ff": "SELECT count(*) FROM (SELECT DISTINCT r.x, t.y FROM r JOIN s ON s.x = r.y JOIN t ON t.x = s.y)",
    "bf": "SELECT count(*) FROM (SELECT DISTINCT t.y FROM r JOIN s ON s.x = r.y JOIN t ON t.x = s.y WHERE r.x = ?)",
}
JOIN_ASP = {
    "ff": "goal(X, W) :- r(X, Y), s(Y, Z), t(Z, W).",
    "bf": "goal(W) :- r(n, Y), s(Y, Z), t(Z, W).",
}

TRIANGLE_RULES = "triangle(?x, ?y, ?z) :- edge(?x, ?y), edge(?y, ?z), edge(?x, ?z)."
TRIANGLE_SQL = (
    "SELECT count(*) FROM edge a JOIN edge b ON b.x = a.y JOIN edge c ON c.x = a.x AND c.y = b.y"
)
TRIANGLE_ASP = "goal(X, Y, Z) :- edge(X, Y), edge(Y, Z), edge(X, Z)."

NEGATION_RULES = """
path(?x, ?y) :- edge(?x, ?y).
path(?x, ?y) :- path(?x, ?z), edge(?z, ?y).
apart(?x, ?y) :- node(?x), node(?y), not path(?x, ?y).
"""
NEGATION_SQL = {
    "ff": "WITH RECURSIVE p(x, y) AS (SELECT x, y FROM edge UNION SELECT p.x, e.y FROM p JOIN edge e ON e.x = p.y)"
    " SELECT count(*) FROM node a, node b WHERE NOT EXISTS (SELECT 1 FROM p WHERE p.x = a.x AND p.y = b.x)",
    "bf": "WITH RECURSIVE p(y) AS (SELECT y FROM edge WHERE x = ? UNION SELECT e.y FROM p JOIN edge e ON e.x = p.y)"
    " SELECT count(*) FROM node WHERE NOT EXISTS (SELECT 1 FROM p WHERE p.y = node.x)",
}
NEGATION_ASP = {
    "ff": "path(X, Y) :- edge(X, Y). path(X, Y) :- path(X, Z), edge(Z, Y). goal(X, Y) :- node(X), node(Y), not path(X, Y).",
    "bf": "path(Y) :- edge(n, Y). path(Y) :- path(Z), edge(Z, Y). goal(Y) :- node(Y), not path(Y).",
}


def join_programs(effort: Effort) -> Iterator[Program]:
    """About a million combinations of the first two relations and four of all three."""
    nodes, rows = effort.pick(10_000, 50), effort.pick(100_000, 200)
    relations = {name: graphs.scattered(nodes, rows, seed) for name, seed in (("r", 20), ("s", 21))}
    relations["t"] = graphs.scattered(nodes, effort.pick(5_000, 100), 22)
    source = int(relations["r"][0][0][1:])
    goals = [
        Goal("ff", "far(?x, ?w)", JOIN_SQL["ff"], None, JOIN_ASP["ff"]),
        Goal("bf", f"far({graphs.node(source)}, ?w)", JOIN_SQL["bf"], source, JOIN_ASP["bf"]),
    ]
    size = "/".join(f"{len(found):,}" for found in relations.values())
    yield Program("three-way join", size, relations, JOIN_RULES, goals)


def triangle_programs(effort: Effort) -> Iterator[Program]:
    """A graph whose nodes are alike, and one with hubs."""
    goal = Goal("fff", "triangle(?x, ?y, ?z)", TRIANGLE_SQL, None, TRIANGLE_ASP)
    n, m = effort.pick(10_000, 30), effort.pick(200_000, 200)
    yield Program(
        "triangles, uniform",
        f"{n:,}/{m:,}",
        {"edge": graphs.scattered(n, m, 23)},
        TRIANGLE_RULES,
        [goal],
    )
    n, m = effort.pick(10_000, 60), effort.pick(100_000, 300)
    yield Program(
        "triangles, skewed", f"{n:,}/{m:,}", {"edge": graphs.zipf(n, m, 24)}, TRIANGLE_RULES, [goal]
    )


def negation_programs(effort: Effort) -> Iterator[Program]:
    """Pairs of which the second cannot be reached from the first."""
    n = effort.pick(1000, 30)
    for name, m, edges in (
        ("cyclic", effort.pick(1500, 45), graphs.scattered),
        ("acyclic", effort.pick(3000, 60), graphs.downhill),
    ):
        relations: dict[str, list[tuple[str, ...]]] = {
            "edge": [*edges(n, m, 25)],
            "node": [(graphs.node(i),) for i in range(n)],
        }
        source = min(int(row[0][1:]) for row in relations["edge"])
        goals = [
            Goal("ff", "apart(?x, ?y)", NEGATION_SQL["ff"], None, NEGATION_ASP["ff"]),
            Goal(
                "bf",
                f"apart({graphs.node(source)}, ?y)",
                NEGATION_SQL["bf"],
                source,
                NEGATION_ASP["bf"],
            ),
        ]
        yield Program(f"not reached, {name}", f"{n:,}/{m:,}", relations, NEGATION_RULES, goals)


def joins(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """The three-way join."""
    for program in join_programs(effort):
        yield from measured(program, effort, peers)


def triangles(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Triangles."""
    for program in triangle_programs(effort):
        yield from measured(program, effort, peers)


def negation(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Stratified negation over a closure."""
    for program in negation_programs(effort):
        yield from measured(program, effort, peers)
