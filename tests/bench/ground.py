"""What needs instances of rules: inherited values, proofs, and windows with goals, beside the goal alone.

Transitive relations, whose instances grow with the cube of the names, and a recursion with sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """The same with confidences or ends of validity, by the place of a pair."""

    notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open it, outside the clock."""
        with super().opened():
            for place, notes in self.notes.items():
                self.kb.tell("alias", self.relations["alias"][place], **notes)
            yield


def ground(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Chains of names, chains of edges, and Pascal's triangle."""
    for names in (effort.pick(100, 10), effort.pick(150, 12), effort.pick(1000, 20)):
        yield from _equivalence(effort, names)
    for nodes in (effort.pick(265, 10), effort.pick(674, 20)):
        fresh = Fresh({"edge": _chain(nodes + 1)}, CLOSURE)
        size = f"{nodes * (nodes + 1) // 2:,} pairs"
        yield from _beside(effort, fresh, "tc :- tc, tc", size, _goal(f"tc(n0, n{nodes})"))
    n = effort.pick(60, 6)
    fresh = Fresh({"row": [(str(number),) for number in range(n + 1)]}, PASCAL.format(n))
    goal = _goal(f"pascal({n}, {n // 2}, ?v)")
    yield from _beside(effort, fresh, "Pascal's triangle", f"{n} rows", goal)


def _equivalence(effort: Effort, names: int) -> Iterator[Row]:
    pairs, size = _chain(names), f"{names:,} names"
    plain = Fresh({"alias": pairs}, SAME)
    yield from _beside(effort, plain, "a chain of names", size, _goal(f"same(n0, n{names - 1})"))
    goals = {"of a pair": _goal(f"same(n0, n{names - 1})")}
    if names <= 150:
        goals["of all pairs"] = _goal("same(?x, ?y)")
    different = {place: {"confidence": (place + 1) / names} for place in range(len(pairs))}
    for way, goal in goals.items():
        alone = median_of(partial(plain.answers, goal), effort, plain.opened)
        for label, notes in (
            ("one confidence", {3: {"confidence": 0.5}}),
            ("one end", {3: {"valid_until": "2100-01-01T00:00:00Z"}}),
            ("every confidence different", different),
        ):
            noted = Noted({"alias": pairs}, SAME, notes)
            ours = median_of(partial(noted.answers, goal), effort, noted.opened)
            yield _compared(Row(f"{label}, {way}", size, ours.answers, ours), ours, alone)


def _beside(effort: Effort, fresh: Fresh, label: str, size: str, goal: Literal) -> Iterator[Row]:
    """A row for the proof of the answers of a goal, and one for a window with it."""
    alone = median_of(partial(fresh.answers, goal), effort, fresh.opened)
    for way, call in (("proof", fresh.proofs), ("window", fresh.window)):
        try:
            ours = median_of(partial(call, goal), effort, fresh.opened)
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
