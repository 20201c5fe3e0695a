"""Values that conclusions inherit from their facts: confidence, validity, use of absence.

The confidence of a proof is the minimum over its facts and rules; that of a conclusion is the
maximum over its proofs. A proof is valid while all its facts are; for a conclusion the window of
the proof that ends last is reported, and among those the one that starts first. All of these are
best values over proofs (`kbplanner.engine.ground.widest`), computed on the ground program of the
goal. The ground program need not keep the shape of the rules: linear recursion is rewritten as for
any goal.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from kbcore.errors import BudgetExceeded
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition, StoredRelation
from kbplanner.compile.rules import tests_absence
from kbplanner.engine.backend import EPOCH, FOREVER, Attribute, beginning
from kbplanner.engine.ground import Ground, touched
from kbplanner.engine.ground_solver import widest
from kbplanner.evaluate.evaluate import naming_rule
from kbplanner.evaluate.grounding import GroundRun

Solve: TypeAlias = "Callable[[array[int]], array[int]]"
"""Function from the rank of each instance to the best rank of each node."""

V = TypeVar("V", float, int, "tuple[int, int]")

ALWAYS = EPOCH
"""Start of a window without a start: a fact asserted without one limits no conclusion."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """The values one conclusion inherits: confidence, and a validity window in epoch milliseconds.

    `confidence` is None if no fact or rule of a proof has one. `start` is ALWAYS and `end` FOREVER
    where nothing limits them. `monotone` is True if a proof with this window depends on no absence.
    """

    confidence: float | None
    start: int
    end: int
    monotone: bool


def inherited_values(
    run: GroundRun,
    partition: Partition,
    rows: array[int],
    count: int,
    budget: Budget,
) -> list[Inherited]:
    """Return the inherited values of `count` answer rows.

    The run is seeded and was planned for them.
    """
    try:
        ground = run.read(budget.drive, budget.yield_now)
    except BudgetExceeded as error:
        raise naming_rule(error, run.goal.rules) from error
    instances = _InheritedValues(run, ground, partition, budget)
    nodes = run.answers(rows, count)

    def solve(ranks: array[int]) -> array[int]:
        return widest(run.engine, ground, ranks, budget.offload)

    confidences = _confidences(ground, solve, instances, nodes, budget)
    ends = _ends(solve, instances, nodes, budget)
    starts = _starts(solve, instances, nodes, ends, budget)
    monotone = _monotone(
        ground, solve, instances, nodes, list(zip(starts, ends, strict=True)), budget
    )
    combined = zip(confidences, starts, ends, monotone, strict=True)
    return [Inherited(*values) for values in budget.paced(combined)]


class _InheritedValues:
    """The values of each ground instance itself, from its stored facts and its rule."""

    def __init__(
        self, run: GroundRun, ground: Ground, partition: Partition, budget: Budget
    ) -> None:
        size = len(ground)
        self.confidence = [1.0] * size
        self.has_confidence = bytearray(size)
        self.start = [ALWAYS] * size
        self.end = [FOREVER] * size
        self.absent = bytearray(size)
        self.limited = False
        for block in run.blocks:
            budget.check_time()
            clause, start = block.source.clause, block.start
            if tests_absence(clause):
                self.absent[start : start + block.count] = b"\1" * block.count
            factor = run.goal.rules[clause.rule - 1].confidence if clause.rule else None
            if factor is not None:
                self._lessen(start, [factor] * block.count)
            for atom in clause.atoms():
                stored = partition.get(atom.schema)
                confident = stored is not None and stored.relation.uses(Attribute.CONFIDENCE)
                if stored is None or not (confident or stored.limited):
                    continue
                rows, arity = run.column(block, atom), len(atom.args)
                for part in budget.slices(block.count):
                    ids = stored.relation.locate(
                        rows[part.start * arity : part.stop * arity], len(part)
                    )
                    if confident:
                        self._lessen(
                            start + part.start,
                            stored.relation.attributes(Attribute.CONFIDENCE, ids),
                        )
                    if stored.limited:
                        self._narrow(start + part.start, stored, ids)

    def _lessen(self, first: int, values: Sequence[float]) -> None:
        for index, value in enumerate(values, first):
            if value == value:  # NaN means no confidence
                self.has_confidence[index] = 1
                self.confidence[index] = min(self.confidence[index], value)

    def _narrow(self, first: int, stored: StoredRelation, ids: array[int]) -> None:
        self.limited = True
        starts = stored.relation.attributes(Attribute.VALID_FROM, ids)
        for index, (start, (_, end)) in enumerate(
            zip(starts, stored.windows(ids), strict=True), first
        ):
            self.start[index] = max(self.start[index], beginning(int(start), ALWAYS))
            self.end[index] = min(self.end[index], end)


def _ranked(
    solve: Solve, own: Sequence[V], nodes: array[int], budget: Budget, reverse: bool = False
) -> tuple[list[V], array[int]]:
    """Return the distinct values in order, and for each node the 1-based index of the best one."""
    distinct = sorted(set(budget.paced(own)), reverse=reverse)
    best = solve(_ranks(own, distinct, budget))
    return distinct, array("I", [best[node] for node in budget.paced(nodes)])


def _ranks(own: Sequence[V], distinct: Sequence[V], budget: Budget) -> array[int]:
    rank = {value: index for index, value in enumerate(distinct, 1)}
    return array("I", (rank[value] for value in budget.paced(own)))


def _confidences(
    ground: Ground, solve: Solve, values: _InheritedValues, nodes: array[int], budget: Budget
) -> list[float | None]:
    if not any(values.has_confidence):
        return [None] * len(nodes)
    distinct, best = _ranked(solve, values.confidence, nodes, budget)
    confident = touched(ground, values.has_confidence, budget.yield_now)
    pairs = budget.paced(zip(nodes, best, strict=True))
    return [distinct[index - 1] if confident[node] else None for node, index in pairs]


def _ends(solve: Solve, values: _InheritedValues, nodes: array[int], budget: Budget) -> list[int]:
    if not values.limited:
        return [FOREVER] * len(nodes)
    distinct, best = _ranked(solve, values.end, nodes, budget)
    return [distinct[index - 1] for index in best]


def _starts(
    solve: Solve, values: _InheritedValues, nodes: array[int], ends: Sequence[int], budget: Budget
) -> list[int]:
    """Return for each node the earliest start among its proofs that end at `ends`."""
    if not values.limited:
        return [ALWAYS] * len(nodes)
    distinct = sorted(set(budget.paced(values.start)), reverse=True)
    ranks = _ranks(values.start, distinct, budget)
    starts = [ALWAYS] * len(nodes)
    for last, places in _grouped(ends, budget):
        pairs = budget.paced(zip(ranks, values.end, strict=True))
        best = solve(array("I", (index if end >= last else 0 for index, end in pairs)))
        for i in places:
            starts[i] = distinct[best[nodes[i]] - 1]
    return starts


def _monotone(
    ground: Ground,
    solve: Solve,
    values: _InheritedValues,
    nodes: array[int],
    windows: Sequence[tuple[int, int]],
    budget: Budget,
) -> list[bool]:
    """Return for each node whether a proof with its window depends on no absence."""
    if not any(values.absent):
        return [True] * len(nodes)
    flags = [True] * len(nodes)
    for (first, last), places in _grouped(windows, budget):
        instances = budget.paced(zip(values.start, values.end, values.absent, strict=True))
        held = solve(
            array(
                "I",
                (start <= first and end >= last and not absent for start, end, absent in instances),
            )
        )
        for i in places:
            flags[i] = bool(held[nodes[i]])
    return flags


def _grouped(values: Iterable[V], budget: Budget) -> Iterable[tuple[V, list[int]]]:
    """Return each distinct value with the indexes where it occurs."""
    groups: dict[V, list[int]] = {}
    for index, value in budget.paced(enumerate(values)):
        groups.setdefault(value, []).append(index)
    return groups.items()
