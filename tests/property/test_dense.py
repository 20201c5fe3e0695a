"""Random recursion over dense relations, which the engine evaluates by rows of bits, against a
naive evaluation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbcore import open_kb

SIZE = 130
NAMES = [f"n{i:03}" for i in range(SIZE)]
START_ROWS = 4300
"""Enough for an evaluation by rows of bits, which begins with 4,096."""

VARIABLES = "xyzw"
BASE = ("many", "edge")
DERIVED = ("p", "q")
RING = ("p", "q", *(f"p{number}" for number in range(2, 10)))
"""Relations of a component with more rectangles than most."""

PAIR_GUARDS = ("not edge(?{0}, ?{1})", "?{0} != ?{1}")
"""Tests of both variables of the head."""

GUARDS = ("marked(?{0})", "not marked(?{0})", "?{0} != n003")


@dataclass(frozen=True)
class Clause:
    """A rule `head(a, b) :- body`, with the test of some of its variables."""

    head: tuple[str, str, str]
    body: tuple[tuple[str, str, str], ...]
    guards: tuple[tuple[int, str], ...]
    pair_guard: str
    both: tuple[str, bool] | None = None
    """A relation that must have the pair of the head too, or the pair with its columns
    exchanged.
    """

    @property
    def text(self) -> str:
        atoms = [f"{name}(?{left}, ?{right})" for name, left, right in self.body]
        tests = [GUARDS[kind].format(variable) for kind, variable in self.guards]
        name, left, right = self.head
        if self.pair_guard:
            tests.append(self.pair_guard.format(left, right))
        if self.both:
            other, is_exchanged = self.both
            ends = (right, left) if is_exchanged else (left, right)
            atoms.append(f"{other}(?{ends[0]}, ?{ends[1]})")
        return f"{name}(?{left}, ?{right}) :- {', '.join(atoms + tests)}."


@st.composite
def clauses(draw, derived=DERIVED):
    """A copy, or a join of two or three relations, each with its columns in any order."""
    relations = st.sampled_from(BASE + derived)
    count = draw(st.sampled_from([1, 2, 2, 2, 3, 3]))
    links = list(pairwise(VARIABLES))[:count]
    body = [(draw(relations), *draw(st.permutations(link))) for link in links]
    ends = [VARIABLES[0], VARIABLES[count]]
    variables = sorted({variable for _, *args in body for variable in args})
    guard = st.tuples(st.integers(0, len(GUARDS) - 1), st.sampled_from(variables))
    guards = draw(st.lists(guard, max_size=1 if draw(st.booleans()) else 2, unique=True))
    head = (draw(st.sampled_from(derived)), *draw(st.permutations(ends)))
    pair_guard = draw(st.sampled_from(["", "", *PAIR_GUARDS]))
    both = draw(st.none() | st.tuples(relations, st.booleans()))
    return Clause(head, tuple(body), tuple(guards), pair_guard, both)


@dataclass(frozen=True)
class WideClause:
    """A rule that reads or concludes rows of three columns; `a` and `b` are relations of pairs."""

    form: int
    head: str
    a: str
    b: str

    @property
    def text(self) -> str:
        return WIDE[self.form].format(head=self.head, a=self.a, b=self.b)


WIDE = (
    "t(?x, ?f, ?z) :- {a}(?x, ?y), t(?y, ?f, ?z).",
    "t(?x, ?f, ?z) :- t(?x, ?f, ?y), {a}(?y, ?z), {b}(?x, ?z).",
    "{head}(?x, ?z) :- t(?x, f1, ?y), {a}(?y, ?z).",
    "{head}(?x, ?z) :- triple(?y, ?w, ?z), {a}(?x, ?w), {b}(?x, ?y).",
    "{head}(?x, ?y) :- t(?x, ?f, ?y), t(?y, ?f, ?x).",
    "{head}(?x, ?y) :- {a}(?x, ?w), {b}(?w, ?y), {a}(?y, ?x), triple(?x, ?y, ?w).",
)
"""Rules of forms that are not evaluated by rows of bits."""

LABELS = ("f0", "f1", "f2")


def wide_clauses():
    """A rule of one of the forms of `WIDE`."""
    names = st.sampled_from(BASE + DERIVED)
    return st.builds(
        WideClause, st.integers(0, len(WIDE) - 1), st.sampled_from(DERIVED), names, names
    )


def exchanged(rows):
    """Return a relation, a list of rows of bits, with its columns exchanged."""
    columns = [0] * SIZE
    for i, row in enumerate(rows):
        while row:
            low = row & -row
            columns[low.bit_length() - 1] |= 1 << i
            row ^= low
    return columns


def joined(left, right):
    """Return the pairs (x, z) with (x, y) in one relation and (y, z) in the other."""
    result = []
    for row in left:
        reached = 0
        while row:
            low = row & -row
            reached |= right[low.bit_length() - 1]
            row ^= low
        result.append(reached)
    return result


def conclusions(clause, relations, marked):
    """Return the pairs that a clause derives."""
    allowed = dict.fromkeys(VARIABLES, (1 << SIZE) - 1)
    for kind, variable in clause.guards:
        allowed[variable] &= (marked, ~marked, ~(1 << 3))[kind]

    def rows(atom, left, right):
        name, first, _ = atom
        rows_of_one = relations[name] if first == left else exchanged(relations[name])
        return [
            row & allowed[right] if allowed[left] >> i & 1 else 0
            for i, row in enumerate(rows_of_one)
        ]

    links = pairwise(VARIABLES)
    result = reduce(
        joined, [rows(atom, *link) for atom, link in zip(clause.body, links, strict=False)]
    )
    last = VARIABLES[len(clause.body)]
    result = result if clause.head[1:] == (VARIABLES[0], last) else exchanged(result)
    if clause.pair_guard:
        edges = relations["edge"]
        is_negation = clause.pair_guard == PAIR_GUARDS[0]
        result = [row & ~(edges[i] if is_negation else 1 << i) for i, row in enumerate(result)]
    if clause.both:
        other, is_exchanged = clause.both
        result = met(result, exchanged(relations[other]) if is_exchanged else relations[other])
    return result


def met(rows, others):
    """Return the pairs of two relations that both have."""
    return [row & other for row, other in zip(rows, others, strict=True)]


def wide_conclusions(clause, relations, triples):
    """Return, by relation, the pairs that a clause derives."""
    a, b = relations[clause.a], relations[clause.b]
    labelled = {label: relations[label] for label in LABELS}
    if clause.form == 0:
        return {label: joined(a, rows) for label, rows in labelled.items()}
    if clause.form == 1:
        return {label: met(joined(rows, a), b) for label, rows in labelled.items()}
    if clause.form == 2:
        return {clause.head: joined(labelled["f1"], a)}
    columns = [0] * SIZE
    if clause.form == 3:
        a, b = exchanged(a), exchanged(b)
        for y, w, z in triples:
            columns[z] |= a[w] & b[y]
        return {clause.head: exchanged(columns)}
    if clause.form == 4:
        for rows in labelled.values():
            both = met(rows, exchanged(rows))
            columns = [x | y for x, y in zip(columns, both, strict=True)]
        return {clause.head: columns}
    for x, y, w in triples:
        columns[x] |= (a[x] >> w & b[w] >> y & a[y] >> x & 1) << y
    return {clause.head: columns}


def least_model(program, base, marked, triples, derived=DERIVED):
    """Return the relations of pairs by name, and those of `t` by label."""
    relations = {**base, **{name: [0] * SIZE for name in (*derived, *LABELS)}}
    relations["p"] = list(base["many"])
    for x, y, z in triples:
        relations[LABELS[y % len(LABELS)]][x] |= 1 << z
    changed = True
    while changed:
        changed = False
        for clause in program:
            if isinstance(clause, WideClause):
                heads = wide_conclusions(clause, relations, triples)
            else:
                heads = {clause.head[0]: conclusions(clause, relations, marked)}
            for name, rows in heads.items():
                target = relations[name]
                for i, row in enumerate(rows):
                    changed |= bool(row & ~target[i])
                    target[i] |= row
    return relations


def to_rows(pairs):
    rows = [0] * SIZE
    for i, j in pairs:
        rows[i] |= 1 << j
    return rows


def pairs_of(rows):
    """Return the pairs of names that rows of bits stand for."""
    return {(NAMES[i], NAMES[j]) for i, row in enumerate(rows) for j in range(SIZE) if row >> j & 1}


class World:
    """A knowledge base with the facts that the least model is computed from."""

    def __init__(self, kb, draw, triples):
        self.kb = kb
        self.draw = draw
        self.every = [(i, j) for i in range(SIZE) for j in range(SIZE)]
        self.facts = {
            "many": set(draw.sample(self.every, START_ROWS)),
            "edge": set(draw.sample(self.every, 150)),
        }
        self.triples = triples
        marked = [i for i in range(SIZE) if draw.random() < 0.8]
        self.marked = sum(1 << i for i in marked)
        for name, pairs in self.facts.items():
            kb.tell_many(name, [(NAMES[i], NAMES[j]) for i, j in sorted(pairs)])
        kb.tell_many("marked", [(NAMES[i],) for i in marked])
        for x, y, z in triples:
            kb.tell("triple", [NAMES[x], NAMES[y], NAMES[z]])
            kb.tell("labelled", [NAMES[x], LABELS[y % len(LABELS)], NAMES[z]])

    def add(self, count):
        """Tell some new edges."""
        new = set(self.draw.sample(self.every, count)) - self.facts["edge"]
        self.kb.tell_many("edge", [(NAMES[i], NAMES[j]) for i, j in sorted(new)])
        self.facts["edge"] |= new

    def retract(self, name, count):
        """Retract some facts."""
        for i, j in self.draw.sample(sorted(self.facts[name]), count):
            self.kb.retract(name, [NAMES[i], NAMES[j]])
            self.facts[name].remove((i, j))

    def check(self, program):
        """Compare the answers of open and of bound goals with the least model."""
        base = {name: to_rows(pairs) for name, pairs in self.facts.items()}
        model = least_model(program, base, self.marked, self.triples)
        for name in DERIVED:
            pairs = pairs_of(model[name])
            assert set(self.kb.ask(f"{name}(?x, ?y)")) == pairs
            node = NAMES[self.draw.randrange(SIZE)]
            assert set(self.kb.ask(f"{name}({node}, ?y)")) == {
                pair for pair in pairs if pair[0] == node
            }
        if self.triples:
            assert set(self.kb.ask("t(?x, ?f, ?y)")) == {
                (x, label, y) for label in LABELS for x, y in pairs_of(model[label])
            }


def check_history(program, seed, triples):
    """Compare answers after each of several changes, with goal tables that are kept between
    them.
    """
    draw = random.Random(seed)
    with open_kb() as kb:
        world = World(kb, draw, [tuple(draw.choices(range(SIZE), k=3)) for _ in range(triples)])
        rules = ["p(?x, ?y) :- many(?x, ?y).", *(clause.text for clause in program)]
        if triples:
            rules.append("t(?x, ?f, ?y) :- labelled(?x, ?f, ?y).")
        kb.teach("\n".join(rules))
        world.check(program)
        world.add(3)
        world.check(program)
        world.add(400)
        world.check(program)
        world.retract("edge", 5)
        world.check(program)
        world.retract("many", 2)
        world.check(program)


def test_heads_of_other_rules_are_new_in_an_empty_rectangle():
    """Both rules of `p` find its rectangle without rows, and many of their heads are the same."""
    program = [
        Clause(("q", "x", "z"), (("many", "x", "y"), ("p", "y", "z")), (), "", ("q", False)),
        Clause(("p", "x", "y"), (("many", "x", "y"),), (), ""),
        Clause(("p", "y", "x"), (("p", "x", "y"),), (), ""),
        Clause(("q", "x", "w"), (("q", "x", "y"), ("many", "y", "z"), ("p", "w", "z")), (), ""),
    ]
    check_history(program, 0, 0)


@examples(40)
@given(st.lists(clauses(), min_size=1, max_size=4), st.integers(0, 1 << 32))
def test_dense_recursion_has_its_least_model(program, seed):
    check_history(program, seed, 0)


@examples(30)
@given(
    st.lists(clauses(), min_size=1, max_size=3),
    st.lists(wide_clauses(), min_size=1, max_size=3),
    st.integers(0, 1 << 32),
)
def test_rules_of_any_form_beside_rows_of_bits_have_their_least_model(pairwise, wide, seed):
    check_history([*pairwise, *wide], seed, 60)


@examples(20)
@given(st.lists(clauses(RING), min_size=1, max_size=3), st.integers(0, 1 << 32))
def test_many_relations_of_one_component_have_their_least_model(program, seed):
    ring = [
        Clause((head, "x", "y"), ((name, "x", "y"),), ((1, "x"),) if head == "p5" else (), "")
        for name, head in zip(RING, (*RING[1:], RING[0]), strict=True)
    ]
    program = [*ring, *program]
    with open_kb() as kb:
        world = World(kb, random.Random(seed), [])
        rules = ["p(?x, ?y) :- many(?x, ?y).", *(clause.text for clause in program)]
        kb.teach("\n".join(rules))
        base = {name: to_rows(pairs) for name, pairs in world.facts.items()}
        model = least_model(program, base, world.marked, [], RING)
        for name in RING:
            assert set(kb.ask(f"{name}(?x, ?y)")) == pairs_of(model[name])
