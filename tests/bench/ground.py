"""What needs instances of rules: inherited values, proofs, and windows with goals, beside the goal
alone.

Recursions with several recursive premises in a rule, whose instances can grow with the cube of the
names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from measure import Effort, Sample, median_of
from programs import Peer, Rows, open_without_tables
from table import Row

from kbcore.context.request import WindowRequest
from kbcore.embed import EmbeddedKB
from kbcore.errors import BudgetExceeded
from kbplanner.ir.terms import Literal
from kbplanner.syntax.parser import parse_goal

MAX_RATIO = 20
"""Times the goal alone, both from nothing, that an answer with its proof may take."""

SAME = "@equivalence same/2. same(?x, ?y) :- alias(?x, ?y)."
CLOSURE = "tc(?x, ?y) :- edge(?x, ?y). tc(?x, ?z) :- tc(?x, ?y), tc(?y, ?z)."
GRAMMAR = """
phrase(?nt, ?a, ?b) :- word(?a, ?w, ?b), lexical(?nt, ?w).
phrase(?nt, ?a, ?c) :- binary(?nt, ?l, ?r), phrase(?l, ?a, ?b), phrase(?r, ?b, ?c).
"""
SAME_GENERATION = """
sg(?x, ?y) :- sibling(?x, ?y).
sg(?x, ?y) :- parent(?x, ?a), sg(?a, ?b), sg(?b, ?c), parent(?y, ?c).
"""
PARITY = """
odd(?x, ?y) :- edge(?x, ?y).
odd(?x, ?z) :- even(?x, ?y), odd(?y, ?z).
even(?x, ?z) :- odd(?x, ?y), odd(?y, ?z).
even(?x, ?z) :- even(?x, ?y), even(?y, ?z).
"""
POINTS_TO = """
pt(?y, ?x) :- addressof(?y, ?x).
pt(?y, ?x) :- assign(?y, ?z), pt(?z, ?x).
pt(?y, ?w) :- load(?y, ?x), pt(?x, ?z), pt(?z, ?w).
pt(?z, ?w) :- store(?y, ?x), pt(?y, ?z), pt(?x, ?w).
"""
"""Andersen's analysis ("Program analysis and specialization for the C programming language",
1994).
"""
PASCAL = """
pascal(?n, 0, 1) :- row(?n).
pascal(?n, ?n, 1) :- row(?n).
pascal(?n, ?k, ?v) :- pascal(?m, ?j, ?a), pascal(?m, ?k, ?b), ?n = ?m + 1, ?k = ?j + 1, ?v = ?a + ?b, ?m < {}.
"""
"""The greatest row is a constant of the rule, without which the recursion has no end."""


@dataclass
class Fresh:
    """A new knowledge base for each evaluation, so that plans and windows are made again too."""

    relations: Mapping[str, Rows]
    rules: str
    kb: EmbeddedKB = field(init=False)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open it, outside the clock."""
        with open_without_tables(self.relations, self.rules) as self.kb:
            yield

    def answers(self, goal: Literal) -> int:
        """The goal alone."""
        return len(self.kb.kb.infer(goal))

    def proofs(self, goal: Literal) -> int:
        """The goal with its proofs."""
        return len(self.kb.kb.prove(goal))

    def window(self, goal: Literal) -> int:
        """A window with the goal."""
        return len(self.kb.kb.context(WindowRequest(20, goals=(goal,))).entries)


@dataclass
class Noted(Fresh):
    """The same with confidences or ends of validity of the facts of one relation, by their
    place.
    """

    notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    noted: str = "alias"

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open it, outside the clock."""
        with super().opened():
            for place, notes in self.notes.items():
                self.kb.tell(self.noted, self.relations[self.noted][place], **notes)
            yield


def ground(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Chains of names, chains of edges, Pascal's triangle, and other recursions."""
    for names in (effort.pick(100, 10), effort.pick(150, 12), effort.pick(1000, 20)):
        yield from _equivalence(effort, names)
    for nodes in (effort.pick(265, 10), effort.pick(674, 20)):
        fresh = Fresh({"edge": _chain(nodes + 1)}, CLOSURE)
        size = f"{nodes * (nodes + 1) // 2:,} pairs"
        goal = _goal(f"tc(n0, n{nodes})")
        yield from _beside(effort, fresh, "tc :- tc, tc", size, goal)
        yield from _with_confidence(effort, fresh, size, goal)
    for n, k in ((effort.pick(40, 4), 20), (effort.pick(60, 6), 30), (effort.pick(80, 8), 10)):
        fresh = Fresh({"row": [(str(number),) for number in range(n + 1)]}, PASCAL.format(n))
        goal = _goal(f"pascal({n}, {min(k, n // 2)}, ?v)")
        yield from _beside(effort, fresh, "Pascal's triangle", f"{n} rows", goal)
    yield from _branching(effort)


def _branching(effort: Effort) -> Iterator[Row]:
    """Recursions that are no closure."""
    for numbers in (effort.pick(60, 5), effort.pick(120, 8)):
        last = 2 * numbers - 1
        goal = _goal(f"phrase(sum, n0, n{last})")
        yield from _beside(effort, _sums(numbers), "a grammar of sums", f"{last} words", goal)
    for levels in (effort.pick(6, 2), effort.pick(7, 3)):
        leaf = "0" * levels
        goal = _goal(f"sg(r0{leaf}, r1{leaf})")
        fresh = _family(levels)
        yield from _beside(effort, fresh, "same generation", f"{levels} generations", goal)
    for nodes in (effort.pick(100, 6), effort.pick(200, 8)):
        fresh = Fresh({"edge": _chain(nodes + 1)}, PARITY)
        goal = _goal(f"even(n0, n{nodes})")
        yield from _beside(effort, fresh, "even and odd paths", f"{nodes} edges", goal)
    for variables in (effort.pick(100, 10), effort.pick(300, 12)):
        fresh = _pointers(variables)
        with fresh.opened():
            target = fresh.kb.kb.infer(_goal("pt(v1, ?x)"))[0]["args"][1]
        goal = _goal(f"pt(v1, {target})")
        yield from _beside(effort, fresh, "points-to analysis", f"{variables} variables", goal)


def _sums(numbers: int) -> Fresh:
    """A sum of numbers, which the grammar can read in as many ways as there are binary trees."""
    words = ["plus" if place % 2 else "number" for place in range(2 * numbers - 1)]
    relations = {
        "word": [(f"n{place}", word, f"n{place + 1}") for place, word in enumerate(words)],
        "lexical": [("sum", "number"), ("sign", "plus")],
        "binary": [("sum", "sum", "rest"), ("rest", "sign", "sum")],
    }
    return Fresh(relations, GRAMMAR)


def _family(levels: int) -> Fresh:
    """Three siblings, and two children of each person of `levels` generations."""
    people, parents = ["r0", "r1", "r2"], []
    for _ in range(levels):
        children = [(f"{person}{child}", person) for person in people for child in "01"]
        parents += children
        people = [child for child, _ in children]
    siblings = [("r0", "r1"), ("r1", "r2"), ("r1", "r0"), ("r0", "r0")]
    return Fresh({"parent": parents, "sibling": siblings}, SAME_GENERATION)


def _pointers(variables: int) -> Fresh:
    """Random statements over variables; v1 is assigned an address."""
    draw = random.Random(1)
    relations = {"addressof": [("v1", "v0")]}
    for name, count in (
        ("addressof", variables),
        ("assign", variables),
        ("load", variables // 2),
        ("store", variables // 2),
    ):
        pairs = [
            (f"v{draw.randrange(variables)}", f"v{draw.randrange(variables)}") for _ in range(count)
        ]
        relations[name] = list(dict.fromkeys([*relations.get(name, []), *pairs]))
    return Fresh(relations, POINTS_TO)


def _with_confidence(effort: Effort, fresh: Fresh, size: str, goal: Literal) -> Iterator[Row]:
    """Rows for the answers of a goal over edges with confidence, and for their proofs."""
    alone = _measured(effort, fresh, fresh.answers, goal)
    edges = fresh.relations["edge"]
    different = {place: {"confidence": (place + 1) / len(edges)} for place in range(len(edges))}
    for label, notes in (("one", {3: {"confidence": 0.5}}), ("different", different)):
        noted = Noted(fresh.relations, fresh.rules, notes, "edge")
        for way, call in (("answer", noted.answers), ("proof", noted.proofs)):
            ours = _measured(effort, noted, call, goal)
            row = Row(f"tc :- tc, tc, {label} confidence, {way}", size, ours.answers, ours)
            yield _compared(row, ours, alone)


def _measured(
    effort: Effort, fresh: Fresh, call: Callable[[Literal], int], goal: Literal
) -> Sample:
    return median_of(partial(call, goal), effort, fresh.opened, from_nothing=True)


def _equivalence(effort: Effort, names: int) -> Iterator[Row]:
    pairs, size = _chain(names), f"{names:,} names"
    plain = Fresh({"alias": pairs}, SAME)
    yield from _beside(effort, plain, "a chain of names", size, _goal(f"same(n0, n{names - 1})"))
    goals = {"of a pair": _goal(f"same(n0, n{names - 1})")}
    if names <= 150:
        goals["of all pairs"] = _goal("same(?x, ?y)")
    different = {place: {"confidence": (place + 1) / names} for place in range(len(pairs))}
    for way, goal in goals.items():
        alone = _measured(effort, plain, plain.answers, goal)
        for label, notes in (
            ("one confidence", {3: {"confidence": 0.5}}),
            ("one end", {3: {"valid_until": "2100-01-01T00:00:00Z"}}),
            ("every confidence different", different),
        ):
            noted = Noted({"alias": pairs}, SAME, notes)
            ours = _measured(effort, noted, noted.answers, goal)
            yield _compared(Row(f"{label}, {way}", size, ours.answers, ours), ours, alone)


def _beside(effort: Effort, fresh: Fresh, label: str, size: str, goal: Literal) -> Iterator[Row]:
    """A row for the proof of the answers of a goal, and one for a window with it."""
    alone = _measured(effort, fresh, fresh.answers, goal)
    for way, call in (("proof", fresh.proofs), ("window", fresh.window)):
        try:
            ours = _measured(effort, fresh, call, goal)
        except BudgetExceeded as error:
            row = Row(f"{label}, {way}", size, None, f"refused: {error.code}")
            row.floor, row.met = "answered", False
            yield row
            continue
        yield _compared(Row(f"{label}, {way}", size, ours.answers, ours), ours, alone)


def _compared(row: Row, ours: Sample, alone: Sample) -> Row:
    ratio = (ours.seconds or 0) / (alone.seconds or 1)
    row.ratio = f"{ratio:.3g} × the plain goal ({alone})"
    row.floor, row.met = f"≤ {MAX_RATIO} × plain", ratio <= MAX_RATIO
    return row


def _goal(text: str) -> Literal:
    (goal,) = parse_goal(text).body
    assert isinstance(goal, Literal)
    return goal


def _chain(names: int) -> list[tuple[str, str]]:
    return [(f"n{number}", f"n{number + 1}") for number in range(names - 1)]
