"""Transitive closure and same generation, free and bound, in right-, left- and non-linear form; and
work in proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import graphs
from measure import Effort
from prepared import Prepared
from programs import Goal, Peer, Program, measured, open_without_tables
from table import Row

LINEAR = {
    "right": "{p}(?x, ?y) :- edge(?x, ?y). {p}(?x, ?y) :- edge(?x, ?z), {p}(?z, ?y).",
    "left": "{p}(?x, ?y) :- edge(?x, ?y). {p}(?x, ?y) :- {p}(?x, ?z), edge(?z, ?y).",
    "both": "{p}(?x, ?y) :- edge(?x, ?y). {p}(?x, ?y) :- {p}(?x, ?z), {p}(?z, ?y).",
}
CLOSURE_RULES = "\n".join(text.format(p=name) for name, text in LINEAR.items())
SAME_RULES = """
same(?x, ?y) :- edge(?x, ?p), edge(?y, ?p).
same(?x, ?y) :- edge(?x, ?u), same(?u, ?v), edge(?y, ?v).
"""

CLOSURE_SQL = {
    "ff": "WITH RECURSIVE r(x, y) AS (SELECT x, y FROM edge UNION SELECT r.x, e.y FROM r JOIN edge e ON e.x = r.y)"
    " SELECT count(*) FROM r",
    "bf": "WITH RECURSIVE r(y) AS (SELECT y FROM edge WHERE x = ? UNION SELECT e.y FROM r JOIN edge e ON e.x = r.y)"
    " SELECT count(*) FROM r",
    "fb": "WITH RECURSIVE r(x) AS (SELECT x FROM edge WHERE y = ? UNION SELECT e.x FROM r JOIN edge e ON e.y = r.x)"
    " SELECT count(*) FROM r",
}
SAME_SQL = {
    "ff": "WITH RECURSIVE r(x, y) AS (SELECT a.x, b.x FROM edge a JOIN edge b ON a.y = b.y"
    " UNION SELECT a.x, b.x FROM r JOIN edge a ON a.y = r.x JOIN edge b ON b.y = r.y) SELECT count(*) FROM r",
    "bf": "WITH RECURSIVE up(n, d) AS (SELECT ?, 0 UNION SELECT e.y, up.d + 1 FROM up JOIN edge e ON e.x = up.n),"
    " down(n, d) AS (SELECT n, d FROM up WHERE d > 0 UNION SELECT e.x, down.d - 1 FROM down JOIN edge e ON e.y = down.n"
    " WHERE down.d > 0) SELECT count(*) FROM down WHERE d = 0",
}
CLOSURE_ASP = {
    "right ff": "goal(X, Y) :- edge(X, Y). goal(X, Y) :- edge(X, Z), goal(Z, Y).",
    "left ff": "goal(X, Y) :- edge(X, Y). goal(X, Y) :- goal(X, Z), edge(Z, Y).",
    "both ff": "goal(X, Y) :- edge(X, Y). goal(X, Y) :- goal(X, Z), goal(Z, Y).",
    "bf": "goal(Y) :- edge(n, Y). goal(Y) :- goal(X), edge(X, Y).",
    "fb": "goal(X) :- edge(X, n). goal(X) :- edge(X, Y), goal(Y).",
}
SAME_ASP = {
    "ff": "goal(X, Y) :- edge(X, P), edge(Y, P). goal(X, Y) :- edge(X, U), goal(U, V), edge(Y, V).",
    "bf": "up(n, 0). up(Y, D + 1) :- up(X, D), edge(X, Y). down(X, D) :- up(X, D), D > 0."
    " down(X, D - 1) :- down(Y, D), D > 0, edge(X, Y). goal(X) :- down(X, 0).",
}
"""What clingo grounds; `n` is the constant of a bound goal, for which the program is written by
hand as the SQL is.
"""


def closure_graph(name: str, size: str, edges: list[graphs.Pair], wanted: Iterable[str]) -> Program:
    """Goals like `right bf`: the form of the recursion and the binding pattern.

    Goals start from the ends of some edge; where edges lead downhill, from the top and to the
    bottom, to reach far.
    """
    source, target = int(edges[0][0][1:]), int(edges[-1][1][1:])
    if "acyclic" in name:
        source, target = min(int(x[1:]) for x, _ in edges), max(int(y[1:]) for _, y in edges)
    made = []
    for label in wanted:
        form, pattern = label.split()
        x = graphs.node(source) if pattern[0] == "b" else "?x"
        y = graphs.node(target) if pattern[1] == "b" else "?y"
        constant = {"ff": None, "bf": source, "fb": target}[pattern]
        asp = CLOSURE_ASP.get(label) or CLOSURE_ASP[pattern]
        made.append(Goal(label, f"{form}({x}, {y})", CLOSURE_SQL[pattern], constant, asp))
    return Program(name, size, {"edge": edges}, CLOSURE_RULES, made)


def closure_graphs(effort: Effort) -> Iterator[Program]:
    """Yield the programs one by one, so only one is in memory at a time."""
    bound = [f"{form} {pattern}" for pattern in ("bf", "fb") for form in ("right", "left")]
    linear = ["right ff", "left ff", *bound]
    n = effort.pick(1000, 60)
    yield closure_graph("chain", f"{n:,}", graphs.chain(n), [*linear, "both ff"])
    n = effort.pick(10_000, 200)
    yield closure_graph("long chain", f"{n:,}", graphs.chain(n), bound)
    n, m = (
        effort.pick(500, 30),
        effort.pick(750, 45),
    )  # the non-linear form is cubic: not on the larger ones
    yield closure_graph(
        "small sparse cyclic",
        f"{n:,}/{m:,}",
        graphs.scattered(n, m, 0),
        [*linear, "both ff", "both bf", "both fb"],
    )
    n, m = effort.pick(2000, 40), effort.pick(3000, 60)
    yield closure_graph("sparse cyclic", f"{n:,}/{m:,}", graphs.scattered(n, m, 1), linear)
    n, m = effort.pick(2000, 40), effort.pick(6000, 80)
    yield closure_graph("sparse acyclic", f"{n:,}/{m:,}", graphs.downhill(n, m, 12), linear)
    n, m = effort.pick(500, 20), effort.pick(20_000, 100)
    yield closure_graph(
        "dense cyclic", f"{n:,}/{m:,}", graphs.scattered(n, m, 2), [*linear, "both ff"]
    )
    n, m = effort.pick(500, 20), effort.pick(20_000, 100)
    yield closure_graph(
        "dense acyclic", f"{n:,}/{m:,}", graphs.downhill(n, m, 13), [*linear, "both ff"]
    )
    n, m = effort.pick(100_000, 100), effort.pick(300_000, 300)
    yield closure_graph("large", f"{n:,}/{m:,}", graphs.scattered(n, m, 3), bound)


def same_generation_graphs(effort: Effort) -> Iterator[Program]:
    """Everybody has two parents."""
    layers, width = effort.pick(10, 4), effort.pick(150, 8)
    last = layers * width - 1
    goals = [
        Goal("ff", "same(?x, ?y)", SAME_SQL["ff"], None, SAME_ASP["ff"]),
        Goal("bf", f"same({graphs.node(last)}, ?y)", SAME_SQL["bf"], last, SAME_ASP["bf"]),
        Goal("fb", f"same(?x, {graphs.node(last)})", SAME_SQL["bf"], last, SAME_ASP["bf"]),
    ]
    edges = graphs.generations(layers, width, 4)
    yield Program("same generation", f"{layers}x{width}", {"edge": edges}, SAME_RULES, goals)


def closure(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Transitive closures."""
    for program in closure_graphs(effort):
        yield from measured(program, effort, peers)


def same_generation(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Same generation."""
    for program in same_generation_graphs(effort):
        yield from measured(program, effort, peers)


def proportion(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Engine steps of goals that reach the same 100 nodes in ever larger graphs: they must stay the
    same.
    """
    core = effort.pick(100, 20)
    sizes = [effort.pick(10_000, 100), effort.pick(100_000, 1000), effort.pick(1_000_000, 5000)]
    x = graphs.node(1)
    patterns = {"bf": f"({x}, ?y)", "fb": f"(?x, {x})", "bb": f"({x}, {graphs.node(core - 1)})"}
    goals = {
        f"{form} {pattern}": form + args for form in LINEAR for pattern, args in patterns.items()
    }
    steps: dict[str, list[int]] = {label: [] for label in goals}
    answers: dict[str, int] = {}
    for size in sizes:
        with open_without_tables(
            {"edge": graphs.with_surroundings(core, size, 5)}, CLOSURE_RULES
        ) as kb:
            for label, text in goals.items():
                prepared = Prepared(kb, text)
                prepared.count()
                answers[label] = prepared.count()
                steps[label].append(prepared.stats.steps)
    for label, found in steps.items():
        row = Row(
            f"steps, {label}",
            " ".join(f"{size:,}" for size in sizes),
            answers[label],
            " ".join(map(str, found)),
        )
        row.ratio = f"{max(found) / max(min(found), 1):.3g} (most/least)"
        row.floor, row.met = "steps do not grow", max(found) <= 1.5 * min(found)
        if not row.met:
            row.wrong = f"steps of {label} grow with the graph: {found}"
        yield row
