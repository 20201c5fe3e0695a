"""Programs that other engines publish times for, over generated data: our time on one core beside
their published ones.

The rules are those of the FlowLog benchmark (https://github.com/flowlog-rs/flowlog-bench). At a
small size every program is compared with clingo, where it is installed. `cc` and `sssp` recurse
through an aggregate there, which the rule language refuses: they are written with a recursion whose
rows are aggregated at the end. `doop-like` and `ddisasm-like` are small programs of the kind that
the two large published ones are: their published rules number hundreds and belong to their tools.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import graphs
from graphs import node
from measure import Effort, Sample, Skipped, median_of
from prepared import Prepared
from programs import Goal, Peer, Program, Rows, open_without_tables
from table import Row

Relations = dict[str, Rows]
MACHINE = "128 cores, 251 GiB; 32 threads; median of 3; FlowLog 20f2aa0, Soufflé 2.5"
"""Where the published times were taken: docs/historical/sweep-20260611-4engine-w32/RESULTS.md of
that repository.
"""

ASKED_MS = {
    ("tc", 5000): 60,
    ("tc", 10_000): 300,
    ("sg", 5000): 600,
    ("sg", 10_000): 4000,
    ("cspa", 500): 30,
    ("cspa", 1000): 200,
    ("cspa", 4000): 8000,
}
"""Times that are asked of us, by program and size."""

TC = """
tc(?x, ?y) :- arc(?x, ?y).
tc(?x, ?y) :- tc(?x, ?z), arc(?z, ?y).
"""
SG = """
sg(?x, ?y) :- arc(?a, ?x), arc(?a, ?y), ?x != ?y.
sg(?x, ?y) :- arc(?a, ?x), sg(?a, ?b), arc(?b, ?y).
"""
REACH = """
reach(?y) :- source(?y).
reach(?y) :- reach(?x), arc(?x, ?y).
"""
BIPARTITE = """
zero(?x) :- source(?x).
one(?y) :- arc(?x, ?y), zero(?x).
one(?x) :- arc(?x, ?y), zero(?y).
zero(?y) :- arc(?x, ?y), one(?x).
zero(?x) :- arc(?x, ?y), one(?y).
violation(?x) :- one(?x), zero(?x).
"""
CC = """
connected(?x, ?x) :- arc(?x, ?y).
connected(?x, ?y) :- connected(?x, ?z), arc(?z, ?y).
cc(?y, min(?x)) :- connected(?x, ?y).
"""
CC_ASP = """
connected(X, X) :- arc(X, Y).
connected(X, Y) :- connected(X, Z), arc(Z, Y).
cc(Y, M) :- connected(_, Y), M = #min { X : connected(X, Y) }.
"""
SSSP = """
distance(?x, 0) :- source(?x).
distance(?y, ?d) :- distance(?x, ?d1), arc(?x, ?y, ?d2), ?d = ?d1 + ?d2, ?d < 30.
sssp(?x, min(?d)) :- distance(?x, ?d).
"""
SSSP_ASP = """
distance(X, 0) :- source(X).
distance(Y, D) :- distance(X, D1), arc(X, Y, D2), D = D1 + D2, D < 30.
sssp(X, M) :- distance(X, _), M = #min { D : distance(X, D) }.
"""
CSDA = """
null_node(?x, ?y) :- null_edge(?x, ?y).
null_node(?x, ?y) :- null_node(?x, ?w), edge(?w, ?y).
"""
CSPA = """
value_flow(?y, ?x) :- assign(?y, ?x).
value_flow(?x, ?y) :- assign(?x, ?z), memory_alias(?z, ?y).
value_flow(?x, ?y) :- value_flow(?x, ?z), value_flow(?z, ?y).
memory_alias(?x, ?w) :- dereference(?y, ?x), value_alias(?y, ?z), dereference(?z, ?w).
value_alias(?x, ?y) :- value_flow(?z, ?x), value_flow(?z, ?y).
value_alias(?x, ?y) :- value_flow(?z, ?x), memory_alias(?z, ?w), value_flow(?w, ?y).
value_flow(?x, ?x) :- assign(?x, ?y).
value_flow(?x, ?x) :- assign(?y, ?x).
memory_alias(?x, ?x) :- assign(?y, ?x).
memory_alias(?x, ?x) :- assign(?x, ?y).
"""
ANDERSEN = """
points_to(?y, ?x) :- address_of(?y, ?x).
points_to(?y, ?x) :- assign(?y, ?z), points_to(?z, ?x).
points_to(?y, ?w) :- load(?y, ?x), points_to(?x, ?z), points_to(?z, ?w).
points_to(?z, ?w) :- store(?y, ?x), points_to(?y, ?z), points_to(?x, ?w).
"""
DYCK = """
dyck(?x, ?y) :- zero(?x, ?z), zero(?z, ?y).
dyck(?x, ?y) :- one(?x, ?z), one(?z, ?y).
dyck(?x, ?y) :- zero(?x, ?z), dyck(?z, ?w), zero(?w, ?y).
dyck(?x, ?y) :- one(?x, ?z), dyck(?z, ?w), one(?w, ?y).
dyck(?x, ?y) :- dyck(?x, ?z), dyck(?z, ?y).
"""
GALEN = """
out_p(?x, ?z) :- p(?x, ?z).
out_q(?x, ?r, ?z) :- q(?x, ?r, ?z).
out_p(?x, ?z) :- out_p(?x, ?y), out_p(?y, ?z).
out_q(?x, ?r, ?z) :- out_p(?x, ?y), out_q(?y, ?r, ?z).
out_p(?x, ?z) :- out_p(?y, ?w), u(?w, ?r, ?z), out_q(?x, ?r, ?y).
out_p(?x, ?z) :- c(?y, ?w, ?z), out_p(?x, ?w), out_p(?x, ?y).
out_q(?x, ?q, ?z) :- out_q(?x, ?r, ?z), s(?r, ?q).
out_q(?x, ?e, ?o) :- out_q(?x, ?y, ?z), r(?y, ?u, ?e), out_q(?z, ?u, ?o).
"""
POLONIUS = """
subset(?a, ?b, ?p) :- subset_base(?a, ?b, ?p).
subset(?a, ?c, ?p) :- subset(?a, ?b, ?p), subset_base(?b, ?c, ?p), ?a != ?c.
subset(?a, ?b, ?q) :- subset(?a, ?b, ?p), cfg_edge(?p, ?q), live(?a, ?q), live(?b, ?q).
holds_loan(?o, ?l, ?p) :- loan_issued_at(?l, ?o, ?p).
holds_loan(?b, ?l, ?p) :- holds_loan(?a, ?l, ?p), subset(?a, ?b, ?p).
holds_loan(?o, ?l, ?q) :- holds_loan(?o, ?l, ?p), cfg_edge(?p, ?q), not loan_killed_at(?l, ?p), live(?o, ?q).
loan_live_at(?l, ?p) :- holds_loan(?o, ?l, ?p), live(?o, ?p).
error(?l, ?p) :- loan_invalidated_at(?l, ?p), loan_live_at(?l, ?p).
var_live(?v, ?p) :- var_used_at(?v, ?p).
var_live(?v, ?p) :- var_live(?v, ?q), cfg_edge(?p, ?q), not var_defined_at(?v, ?p).
live(?o, ?p) :- var_live(?v, ?p), use_of_var_derefs_origin(?v, ?o).
"""
POINTS_TO = """
assigned(?a, ?b) :- primitive_assign(?a, ?b).
alias(?a, ?b) :- var_points_to(?a, ?h), var_points_to(?b, ?h).
var_points_to(?v, ?h) :- assign_alloc(?v, ?h).
var_points_to(?a, ?h) :- assigned(?b, ?a), var_points_to(?b, ?h).
assigned(?a, ?b) :- store(?a, ?i, ?f), alias(?i, ?j), load(?j, ?b, ?f).
"""
DOOP_LIKE = """
reachable(?m) :- entry(?m).
points_to(?v, ?h) :- allocated(?v, ?h, ?m), reachable(?m).
points_to(?to, ?h) :- moved(?to, ?from), points_to(?from, ?h).
field_points_to(?b, ?f, ?h) :- stored(?base, ?f, ?from), points_to(?base, ?b), points_to(?from, ?h).
points_to(?to, ?h) :- loaded(?to, ?base, ?f), points_to(?base, ?b), field_points_to(?b, ?f, ?h).
receives(?h, ?s, ?m) :- heap_type(?h, ?t), dispatch(?t, ?s, ?m).
target(?base, ?s, ?m) :- points_to(?base, ?h), receives(?h, ?s, ?m).
calls(?i, ?m) :- virtual_call(?i, ?base, ?s, ?in), reachable(?in), target(?base, ?s, ?m).
reachable(?m) :- calls(?i, ?m).
this_points_to(?m, ?h) :- calls(?i, ?m), virtual_call(?i, ?base, ?s, ?in), points_to(?base, ?h), receives(?h, ?s, ?m).
points_to(?this, ?h) :- this_of(?m, ?this), this_points_to(?m, ?h).
points_to(?formal, ?h) :- calls(?i, ?m), actual(?i, ?n, ?a), formal(?m, ?n, ?formal), points_to(?a, ?h).
points_to(?to, ?h) :- calls(?i, ?m), returned(?m, ?v), result(?i, ?to), points_to(?v, ?h).
"""
"""Points-to analysis of an object-oriented program whose call graph is found on the way, without
contexts.
"""
DDISASM_LIKE = """
invalid(?a) :- undecoded(?a).
invalid(?a) :- falls_through(?a, ?b), invalid(?b).
invalid(?a) :- jumps(?a, ?b), not decoded(?b).
invalid(?a) :- jumps(?a, ?b), invalid(?b).
possible(?a) :- decoded(?a), not invalid(?a).
code(?a) :- entry(?a), possible(?a).
code(?b) :- code(?a), falls_through(?a, ?b), possible(?b).
code(?b) :- code(?a), jumps(?a, ?b), possible(?b).
next(?a, ?b) :- code(?a), falls_through(?a, ?b), code(?b).
next(?a, ?b) :- code(?a), jumps(?a, ?b), code(?b).
reaches(?d, ?r, ?b) :- defines(?d, ?r), next(?d, ?b).
reaches(?d, ?r, ?c) :- reaches(?d, ?r, ?b), not defines(?b, ?r), next(?b, ?c).
used(?d, ?r, ?u) :- reaches(?d, ?r, ?u), uses(?u, ?r).
"""
"""Disassembly: which decoded addresses are code, and which definition of a register reaches which
use.
"""


@dataclass(frozen=True, slots=True)
class Published:
    """A program: its rules, the goal whose answers are counted, and its facts by size.

    `sizes` are those of a full run; the program is compared with another engine at `small`. `asp`
    is the program for clingo where it is not the translation of the rules.
    """

    name: str
    rules: str
    goal: str
    facts: Callable[[int], Relations]
    sizes: tuple[int, ...]
    small: int
    asp: str = ""

    def program(self, size: int) -> Program:
        """The program with its facts."""
        predicate, args = self.goal.rstrip(")").split("(")
        variables = ", ".join(args.replace("?", "").upper().split(", "))
        asp = f"{self.asp or translated(self.rules)}goal({variables}) :- {predicate}({variables})."
        goal = Goal("", self.goal, "", None, asp)
        return Program(self.name, f"{size:,}", self.facts(size), self.rules, [goal])


def translated(rules: str) -> str:
    """Rules as a program for clingo, whose variables begin with a capital letter."""
    return re.sub(r"\?(\w+)", lambda match: match[1].upper(), rules)


def random_graph(size: int) -> Relations:
    """An edge from each node to one of a thousand of the others: G5K-0.001 and G10K-0.001 of the
    published list.
    """
    return {"arc": graphs.scattered(size, max(size * size // 1000, 3 * size), 1)}


def sparse_graph(size: int) -> Relations:
    """Five edges a node, and one node to begin with."""
    return {"arc": graphs.scattered(size, 5 * size, 2), "source": [(node(0),)]}


def undirected(size: int) -> Relations:
    """Nodes as numbers; each edge in both directions, two a node, so that there are several
    components.
    """
    pairs = [(x[1:], y[1:]) for x, y in graphs.scattered(size, size, 3)]
    return {"arc": list(dict.fromkeys([*pairs, *((y, x) for x, y in pairs)]))}


def weighted(size: int) -> Relations:
    """Five edges a node, of lengths from 1 to 9."""
    rng = random.Random(4)
    arcs = [(x[1:], y[1:], str(rng.randint(1, 9))) for x, y in graphs.scattered(size, 5 * size, 4)]
    return {"arc": arcs, "source": [("0",)]}


def control_flow(size: int) -> Relations:
    """Procedures of a hundred statements, one after the other with some jumps, and a null in every
    tenth.
    """
    rng = random.Random(5)
    edges: dict[graphs.Pair, None] = {}
    for start in range(0, size, 100):
        end = min(start + 100, size)
        edges.update(((node(i), node(i + 1)), None) for i in range(start, end - 1))
        for _ in range(20):
            x, y = rng.randrange(start, end), rng.randrange(start, end)
            edges[node(x), node(y)] = None
    nulls = rng.sample(list(edges), max(len(edges) // 10, 1))
    return {"edge": list(edges), "null_edge": nulls}


def pointers(size: int) -> Relations:
    """One assignment and one dereference for each variable."""
    return {
        "assign": graphs.scattered(size, size, 6),
        "dereference": graphs.scattered(size, size, 7),
    }


def statements(size: int) -> Relations:
    """For each variable two assignments, and half as many addresses, loads and stores."""
    return {
        "address_of": graphs.scattered(size, size // 2, 8),
        "assign": graphs.scattered(size, 2 * size, 9),
        "load": graphs.scattered(size, size // 2, 10),
        "store": graphs.scattered(size, size // 2, 11),
    }


def brackets(size: int) -> Relations:
    """Edges of two kinds, two of each kind for three nodes."""
    return {
        "zero": graphs.scattered(size, 2 * size // 3, 12),
        "one": graphs.scattered(size, 2 * size // 3, 13),
    }


def ontology(size: int) -> Relations:
    """A hierarchy of classes, relations between them of ten kinds, and axioms."""
    rng = random.Random(14)
    kinds = [f"k{i}" for i in range(10)]

    def some() -> str:
        return node(rng.randrange(size))

    return {
        "p": [(node(i), node(rng.randrange(i // 2, i))) for i in range(1, size)],
        "q": list({(some(), rng.choice(kinds), some()): None for _ in range(size // 4)}),
        "r": [(kinds[0], kinds[1], kinds[2]), (kinds[3], kinds[4], kinds[5])],
        "c": list({(some(), some(), some()): None for _ in range(size // 4)}),
        "u": list({(some(), rng.choice(kinds), some()): None for _ in range(size // 4)}),
        "s": [(kinds[6], kinds[7]), (kinds[7], kinds[8])],
    }


def borrows(size: int) -> Relations:
    """A control flow graph with loans, origins and variables, one for each ten points."""
    rng = random.Random(15)
    flow = control_flow(size)["edge"]
    count = max(size // 10, 4)

    def point() -> str:
        return node(rng.randrange(size))

    def one_of(letter: str) -> str:
        return f"{letter}{rng.randrange(count)}"

    return {
        "cfg_edge": flow,
        "subset_base": [(one_of("o"), one_of("o"), point()) for _ in range(size)],
        "loan_issued_at": [(f"l{i}", one_of("o"), point()) for i in range(count)],
        "loan_killed_at": [(one_of("l"), point()) for _ in range(count)],
        "loan_invalidated_at": [(one_of("l"), point()) for _ in range(size)],
        "var_used_at": [(one_of("v"), point()) for _ in range(size)],
        "var_defined_at": [(one_of("v"), point()) for _ in range(size)],
        "use_of_var_derefs_origin": [(one_of("v"), one_of("o")) for _ in range(2 * count)],
    }


def objects(size: int) -> Relations:
    """Variables with allocations, assignments, and loads and stores of ten fields."""
    rng = random.Random(16)

    def some() -> str:
        return node(rng.randrange(size))

    return {
        "assign_alloc": [(some(), f"h{rng.randrange(size)}") for _ in range(size // 2)],
        "primitive_assign": graphs.scattered(size, size, 17),
        "load": [(some(), some(), f"f{rng.randrange(10)}") for _ in range(size // 4)],
        "store": [(some(), some(), f"f{rng.randrange(10)}") for _ in range(size // 4)],
    }


def classes(size: int) -> Relations:
    """Methods of ten variables and two calls each; five signatures, and a type for each ten
    methods.

    A type has a method of its own for half of the signatures and one of an earlier type for the
    others.
    """
    rng = random.Random(18)
    methods = max(size // 10, 5)
    types = max(methods // 10, 3)

    def variable(method: int) -> str:
        return f"v{method * 10 + rng.randrange(10)}"

    dispatch: dict[tuple[int, int], int] = {}
    for kind in range(types):
        for signature in range(5):
            inherits = kind > 0 and rng.random() < 0.5
            dispatch[kind, signature] = (
                dispatch[rng.randrange(kind), signature] if inherits else rng.randrange(methods)
            )
    relations: dict[str, list[tuple[str, ...]]] = {
        "entry": [(f"m{m}",) for m in range(0, methods, 20)],
        "dispatch": [(f"t{t}", f"s{s}", f"m{m}") for (t, s), m in dispatch.items()],
        "heap_type": [(f"h{i}", f"t{rng.randrange(types)}") for i in range(2 * methods)],
        "this_of": [(f"m{m}", f"v{m * 10}") for m in range(methods)],
        "formal": [
            (f"m{m}", f"a{n}", f"v{m * 10 + 1 + n}") for m in range(methods) for n in (0, 1)
        ],
        "returned": [(f"m{m}", f"v{m * 10 + 9}") for m in range(methods)],
    }
    for name in ("allocated", "moved", "stored", "loaded", "virtual_call", "actual", "result"):
        relations[name] = []
    for m in range(methods):
        for i in (2 * m, 2 * m + 1):
            call, signature, receiver = f"i{i}", f"s{rng.randrange(5)}", variable(m)
            relations["allocated"].append((receiver, f"h{i}", f"m{m}"))
            relations["virtual_call"].append((call, receiver, signature, f"m{m}"))
            relations["actual"] += [(call, "a0", variable(m)), (call, "a1", variable(m))]
            relations["result"].append((call, variable(m)))
        relations["moved"] += [(variable(m), variable(m)) for _ in range(6)]
        relations["stored"].append((variable(m), f"f{rng.randrange(10)}", variable(m)))
        relations["loaded"].append((variable(m), variable(m), f"f{rng.randrange(10)}"))
    return {name: list(dict.fromkeys(rows)) for name, rows in relations.items()}


def instructions(size: int) -> Relations:
    """Addresses in a row: one in 50 cannot be decoded, one in 5 jumps near by; eight registers.

    An address before one that cannot be decoded is mostly a jump or a return, which has no next
    instruction.
    """
    rng = random.Random(19)
    undecoded = {i for i in range(1, size) if rng.random() < 0.02}
    relations: dict[str, list[tuple[str, ...]]] = {
        "undecoded": [(node(i),) for i in sorted(undecoded)],
        "decoded": [(node(i),) for i in range(size) if i not in undecoded],
        "entry": [(node(i),) for i in range(0, size, 200)],
        "falls_through": [],
        "jumps": [],
        "defines": [],
        "uses": [],
    }
    for i in range(size - 1):
        at = node(i)
        ends = rng.random() < (0.9 if i + 1 in undecoded else 0.02)
        if not ends:
            relations["falls_through"].append((at, node(i + 1)))
        if rng.random() < 0.2:
            target = min(max(i + rng.randint(-100, 100), 0), size - 1)
            if target not in undecoded or rng.random() < 0.01:
                relations["jumps"].append((at, node(target)))
        if rng.random() < 0.5:
            relations["defines"].append((at, f"r{rng.randrange(8)}"))
        relations["uses"].append((at, f"r{rng.randrange(8)}"))
    return relations


TIMES = {
    ("tc", 5000): "FlowLog 1.6 s, Soufflé 7 s",
    ("tc", 10_000): "FlowLog 8.9 s, Soufflé 24.1 s",
    ("sg", 5000): "FlowLog 2.9 s, Soufflé 8.9 s",
    ("sg", 10_000): "FlowLog 20.4 s, Soufflé 68.5 s",
    ("reach", 0): "livejournal: FlowLog 1.6 s, Soufflé 18 s",
    ("bipartite", 0): "netflix: FlowLog 2.8 s, Soufflé 102.5 s",
    ("cc", 0): "livejournal: FlowLog 8.4 s",
    ("sssp", 0): "livejournal: FlowLog 2 s",
    ("csda", 0): "httpd: FlowLog 0.8 s, Soufflé 9.6 s",
    ("cspa", 0): "httpd: FlowLog 12.6 s, Soufflé 57 s",
    ("andersen", 0): "medium: FlowLog 0.8 s, Soufflé 37.7 s",
    ("dyck", 0): "kernel: FlowLog 0.7 s, Soufflé 8.8 s",
    ("galen", 0): "galen: FlowLog 5.6 s, Soufflé 35 s",
    ("polonius", 0): "scallop: FlowLog 7.1 s, Soufflé 37.5 s",
}
"""Published times by program and size; size 0: on other data than ours."""

PROGRAMS = (
    Published("tc", TC, "tc(?x, ?y)", random_graph, (5000, 10_000), 100),
    Published("sg", SG, "sg(?x, ?y)", random_graph, (5000, 10_000), 100),
    Published("reach", REACH, "reach(?x)", sparse_graph, (100_000,), 50),
    Published("bipartite", BIPARTITE, "violation(?x)", sparse_graph, (100_000,), 50),
    Published("cc", CC, "cc(?x, ?y)", undirected, (4000,), 100, CC_ASP),
    Published("sssp", SSSP, "sssp(?x, ?y)", weighted, (5000,), 40, SSSP_ASP),
    Published("csda", CSDA, "null_node(?x, ?y)", control_flow, (50_000,), 200),
    Published("cspa", CSPA, "value_flow(?x, ?y)", pointers, (500, 1000, 4000), 70),
    Published("andersen", ANDERSEN, "points_to(?x, ?y)", statements, (2000,), 100),
    Published("dyck", DYCK, "dyck(?x, ?y)", brackets, (2000,), 100),
    Published("galen", GALEN, "out_p(?x, ?y)", ontology, (500,), 40),
    Published("polonius", POLONIUS, "holds_loan(?x, ?y, ?z)", borrows, (5000,), 60),
    Published("doop-like", DOOP_LIKE, "points_to(?x, ?y)", classes, (3000,), 200),
    Published("ddisasm-like", DDISASM_LIKE, "used(?x, ?y, ?z)", instructions, (20_000,), 100),
    Published("points-to", POINTS_TO, "assigned(?x, ?y)", objects, (1500,), 60),
)


def published(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Time of each program on one core, counted; at a small size its answers are compared with
    those of clingo.
    """
    for each in PROGRAMS:
        wrong = compared(each, effort, peers)
        for size in [each.small] if effort.small else each.sizes:
            program = each.program(size)
            facts = sum(map(len, program.relations.values()))
            with open_without_tables(program.relations, program.rules) as kb:
                prepared = Prepared(kb, each.goal)
                prepared.count()
                ours = median_of(prepared.count, effort)
            row = Row(each.name, f"{size:,}/{facts:,}", ours.answers, ours, section="published")
            row.published = TIMES.get((each.name, size)) or TIMES.get((each.name, 0), "")
            row.wrong = wrong
            asked = ASKED_MS.get((each.name, size))
            if asked is not None and ours.seconds is not None:
                row.floor, row.met = f"{asked} ms", ours.seconds * 1000 <= asked
            print(f"  {row.workload} {row.size}: {ours}", file=sys.stderr, flush=True)
            yield row


def compared(each: Published, effort: Effort, peers: Mapping[str, Peer]) -> str:
    """What is wrong at the small size, or nothing."""
    if "clingo" not in peers:
        return ""
    program = each.program(each.small)
    with open_without_tables(program.relations, program.rules) as kb:
        count = Prepared(kb, each.goal).count()
    try:
        (sample,) = peers["clingo"](program, replace(effort, repeats=1, limit=30.0))
    except Skipped:
        return ""
    if sample == Sample(sample.seconds, count):
        return ""
    return f"{each.name} {each.small}: {count} answers, but clingo has {sample.answers} ({sample})"
