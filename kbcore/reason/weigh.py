"""What conclusions inherit from the facts they rest on: confidence, a window of validity, whether an absence is among them.

A proof has the least confidence of its facts and rules, and a conclusion the greatest of its proofs. A proof holds where
all its facts do; of a conclusion's proofs the window of the one that ends last is reported, of several the one that starts
first. All of these are best values over proofs (`kbplanner.ground.widest`), found on the ground program of the goal, which
need not keep the shape of the rules: linear recursion is turned as for any goal.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition, StoredRelation
from kbplanner.backend import FOREVER, Attribute
from kbplanner.ground import Ground, touched
from kbplanner.grounding import GroundRun
from kbplanner.monotone import tests_absence
from kbplanner.rules import RuleSet
from kbplanner.solved import widest

Solve: TypeAlias = "Callable[[array[int]], array[int]]"
"""The best rank of each node, given that of each instance."""

ALWAYS = 0
"""Start of a window that has none: a fact told without one holds since it was told, which limits nothing."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What one conclusion inherits: confidence (None: nothing below carried one), window in epoch milliseconds.

    `start` is ALWAYS and `end` FOREVER where nothing limits it; `monotone` says whether some proof has this window and
    rests on no absence.
    """

    confidence: float | None
    start: int
    end: int
    monotone: bool


def weigh(
    run: GroundRun, rules: RuleSet, partition: Partition, rows: array[int], count: int, budget: Budget
) -> list[Weight]:
    """The weights of answers of a goal, whole rows; the run has its seeds, and was planned to weigh."""
    ground = run.read(budget.drive)
    values = _Values(run, ground, rules, partition, budget)
    nodes = run.answers(rows, count)

    def solve(ranks: array[int]) -> array[int]:
        return widest(run.engine, ground, ranks, budget.via)

    confidences = _confidences(ground, solve, values, nodes)
    ends = _ends(solve, values, nodes)
    starts = _starts(solve, values, nodes, ends)
    monotone = _monotone(ground, solve, values, nodes, list(zip(starts, ends, strict=True)))
    return [Weight(*all_four) for all_four in zip(confidences, starts, ends, monotone, strict=True)]


class _Values:
    """What each instance of a ground program brings by itself: its stored facts and its rule."""

    def __init__(self, run: GroundRun, ground: Ground, rules: RuleSet, partition: Partition, budget: Budget) -> None:
        size = len(ground)
        self.confidence = [1.0] * size
        self.carried = bytearray(size)
        self.start = [ALWAYS] * size
        self.end = [FOREVER] * size
        self.absent = bytearray(size)
        self.limited = False
        for block in run.blocks:
            budget.check_time()
            clause, start = block.source.clause, block.start
            if tests_absence(clause):
                self.absent[start : start + block.count] = b"\1" * block.count
            factor = rules.rules[clause.rule - 1].confidence if clause.rule else None
            if factor is not None:
                self._lessen(start, [factor] * block.count)
            for atom in clause.atoms():
                stored = partition.get(atom.schema)
                confident = stored is not None and stored.relation.uses(Attribute.CONFIDENCE)
                if stored is None or not (confident or stored.limited):
                    continue
                rows, arity = run.column(block, atom), len(atom.args)
                for part in budget.slices(block.count):
                    ids = stored.relation.locate(rows[part.start * arity : part.stop * arity], len(part))
                    if confident:
                        self._lessen(start + part.start, stored.relation.attributes(Attribute.CONFIDENCE, ids))
                    if stored.limited:
                        self._narrow(start + part.start, stored, ids)

    def _lessen(self, first: int, values: Sequence[float]) -> None:
        for place, value in enumerate(values, first):
            if value == value:  # not a number: unknown
                self.carried[place] = 1
                self.confidence[place] = min(self.confidence[place], value)

    def _narrow(self, first: int, stored: StoredRelation, ids: array[int]) -> None:
        self.limited = True
        starts = stored.relation.attributes(Attribute.VALID_FROM, ids)
        for place, (start, (_, end)) in enumerate(zip(starts, stored.windows(ids), strict=True), first):
            self.start[place] = max(self.start[place], int(start))
            self.end[place] = min(self.end[place], end)


def _confidences(ground: Ground, solve: Solve, values: _Values, nodes: array[int]) -> list[float | None]:
    if not any(values.carried):
        return [None] * len(nodes)
    distinct = sorted(set(values.confidence))
    rank = {value: place for place, value in enumerate(distinct, 1)}
    best = solve(array("I", [rank[value] for value in values.confidence]))
    carried = touched(ground, values.carried)
    return [distinct[best[node] - 1] if carried[node] else None for node in nodes]


def _ends(solve: Solve, values: _Values, nodes: array[int]) -> list[int]:
    if not values.limited:
        return [FOREVER] * len(nodes)
    distinct = sorted(set(values.end))
    rank = {value: place for place, value in enumerate(distinct, 1)}
    best = solve(array("I", [rank[value] for value in values.end]))
    return [distinct[best[node] - 1] for node in nodes]


def _starts(solve: Solve, values: _Values, nodes: array[int], ends: Sequence[int]) -> list[int]:
    """Of the proofs of each node that end as late as `ends` says, the earliest start."""
    if not values.limited:
        return [ALWAYS] * len(nodes)
    distinct = sorted(set(values.start), reverse=True)
    rank = {value: place for place, value in enumerate(distinct, 1)}
    ranks = [rank[value] for value in values.start]
    found = [ALWAYS] * len(nodes)
    for last in set(ends):
        allowed = array("I", [place if end >= last else 0 for place, end in zip(ranks, values.end, strict=True)])
        best = solve(allowed)
        for i, node in enumerate(nodes):
            if ends[i] == last:
                found[i] = distinct[best[node] - 1]
    return found


def _monotone(
    ground: Ground, solve: Solve, values: _Values, nodes: array[int], windows: Sequence[tuple[int, int]]
) -> list[bool]:
    """Whether some proof of each node has its window and rests on no absence."""
    if not any(values.absent):
        return [True] * len(nodes)
    found = [True] * len(nodes)
    for window in set(windows):
        first, last = window
        allowed = array("I", bytes(4 * len(ground)))
        for place, (start, end) in enumerate(zip(values.start, values.end, strict=True)):
            allowed[place] = start <= first and end >= last and not values.absent[place]
        held = solve(allowed)
        for i, node in enumerate(nodes):
            if windows[i] == window:
                found[i] = bool(held[node])
    return found
