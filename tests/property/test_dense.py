"""Random recursion over dense relations, which the engine evaluates by rows of bits, against a naive evaluation."""

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

    @property
    def text(self) -> str:
        atoms = [f"{name}(?{left}, ?{right})" for name, left, right in self.body]
        tests = [GUARDS[kind].format(variable) for kind, variable in self.guards]
        name, left, right = self.head
        if self.pair_guard:
            tests.append(self.pair_guard.format(left, right))
        return f"{name}(?{left}, ?{right}) :- {', '.join(atoms + tests)}."


@st.composite
def clauses(draw):
    """A copy, or a join of two or three relations, each with its columns in any order."""
    relations = st.sampled_from(BASE + DERIVED)
    count = draw(st.sampled_from([1, 2, 2, 2, 3, 3]))
    links = list(pairwise(VARIABLES))[:count]
    body = [(draw(relations), *draw(st.permutations(link))) for link in links]
    ends = [VARIABLES[0], VARIABLES[count]]
    variables = sorted({variable for _, *args in body for variable in args})
    guard = st.tuples(st.integers(0, len(GUARDS) - 1), st.sampled_from(variables))
    guards = draw(st.lists(guard, max_size=1 if draw(st.booleans()) else 2, unique=True))
    head = (draw(st.sampled_from(DERIVED)), *draw(st.permutations(ends)))
    pair_guard = draw(st.sampled_from(["", "", *PAIR_GUARDS]))
    return Clause(head, tuple(body), tuple(guards), pair_guard)


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
    return result


def least_model(program, base, marked):
    relations = {**base, **{name: [0] * SIZE for name in DERIVED}}
    relations["p"] = list(base["many"])
    changed = True
    while changed:
        changed = False
        for clause in program:
            target = relations[clause.head[0]]
            for i, row in enumerate(conclusions(clause, relations, marked)):
                if row & ~target[i]:
                    target[i] |= row
                    changed = True
    return relations


def to_rows(pairs):
    rows = [0] * SIZE
    for i, j in pairs:
        rows[i] |= 1 << j
    return rows


@examples(40)
@given(st.lists(clauses(), min_size=1, max_size=4), st.integers(0, 1 << 32))
def test_dense_recursion_has_its_least_model(program, seed):
    draw = random.Random(seed)
    every = [(i, j) for i in range(SIZE) for j in range(SIZE)]
    facts = {"many": set(draw.sample(every, START_ROWS)), "edge": set(draw.sample(every, 150))}
    marked = {i for i in range(SIZE) if draw.random() < 0.8}
    with open_kb() as kb:
        for name, pairs in facts.items():
            kb.tell_many(name, [(NAMES[i], NAMES[j]) for i, j in sorted(pairs)])
        kb.tell_many("marked", [(NAMES[i],) for i in sorted(marked)])
        kb.teach("\n".join(["p(?x, ?y) :- many(?x, ?y).", *(clause.text for clause in program)]))
        for change in ("none", "few edges", "many edges", "retraction"):
            if change == "few edges":
                new = set(draw.sample(every, 3)) - facts["edge"]
            elif change == "many edges":
                new = set(draw.sample(every, 400)) - facts["edge"]
            else:
                new = set()
            if new:
                kb.tell_many("edge", [(NAMES[i], NAMES[j]) for i, j in sorted(new)])
            facts["edge"] |= new
            if change == "retraction":
                for i, j in draw.sample(sorted(facts["edge"]), 5):
                    kb.retract("edge", [NAMES[i], NAMES[j]])
                    facts["edge"].remove((i, j))
            base = {name: to_rows(pairs) for name, pairs in facts.items()}
            model = least_model(program, base, sum(1 << i for i in marked))
            for name in DERIVED:
                expected = {
                    (NAMES[i], NAMES[j])
                    for i, row in enumerate(model[name])
                    for j in range(SIZE)
                    if row >> j & 1
                }
                assert set(kb.ask(f"{name}(?x, ?y)")) == expected
