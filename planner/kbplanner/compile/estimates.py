"""Estimated numbers of rows of the steps of a plan, from the estimates that order joins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbplanner.compile.plan import (
    ColumnKind,
    ColumnOperand,
    Generate,
    GroupStep,
    Intersect,
    JoinPlan,
    Plan,
    Probe,
    ProjectStep,
    Scan,
)
from kbplanner.ir.conditions import generated_values
from kbplanner.ir.operators import GENERATOR_LIST
from kbplanner.ir.terms import Variable
from kbplanner.passes.order import Statistics, rows_per_lookup


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate for one step: rows per lookup (None: it only tests or computes), and rows in all.

    `assumed`: it depends on the size of a relation that the run derives, which the planner does not
    know.
    """

    per_lookup: float | None
    rows: float
    assumed: bool


def estimates(plan: Plan, join: JoinPlan, statistics: Statistics) -> Iterator[Estimate]:
    """Yield the estimate of each step of a join plan, including the last one.

    Tests are assumed to let every row pass, so that after tests the number of rows is an upper
    bound.
    """
    rows, assumed = 1.0, False
    for step in join.steps:
        expected = None
        reads: Sequence[Scan | Probe | GroupStep] = ()
        if isinstance(step, Intersect):
            reads = step.probe, step.other
        elif isinstance(step, (Scan, Probe, GroupStep)):
            reads = (step,)
        if isinstance(step, Generate):
            expected = _generated(plan, step)
            rows *= expected
        elif reads:
            expected = min(_expected(plan, read.slot, read.columns, statistics) for read in reads)
            rows *= expected
            assumed = assumed or any(_is_assumed(plan, read.slot) for read in reads)
        yield Estimate(expected, rows, assumed)


def _generated(plan: Plan, step: Generate) -> float:
    """Estimate the values of a generator; its constants are parameters."""
    texts = [plan.parameters[arg] if arg < len(plan.parameters) else None for arg in step.args]
    args = tuple(Variable(str(i)) if text is None else text for i, text in enumerate(texts))
    return generated_values(GENERATOR_LIST[step.function].name, args)


def _seeded_by_goals(plan: Plan) -> bool:
    """Return True if goals alone fill the seed: one row for each goal."""
    heads = (join.steps[-1] for stratum in plan.strata for join in stratum.plans)
    return not any(isinstance(head, ProjectStep) and head.slot == plan.seed for head in heads)


def _is_assumed(plan: Plan, slot: int) -> bool:
    if not plan.derived[slot] or plan.slots[slot].arity == 0:  # which has one row at most
        return False
    return slot != plan.seed or not _seeded_by_goals(plan)


def _expected(
    plan: Plan, slot: int, columns: Sequence[ColumnOperand], statistics: Statistics
) -> float:
    keys = [index for index, column in enumerate(columns) if column.kind is ColumnKind.KEY]
    free = sum(1 for column in columns if column.kind in (ColumnKind.LOAD, ColumnKind.SAME))
    schema = plan.slots[slot]
    if not _is_assumed(plan, slot):
        if plan.derived[slot] or not columns:
            return 1.0
        rows = statistics.rows(schema)
        distinct = statistics.distinct(schema, keys) if keys else 1
        if distinct or not rows:
            return rows / max(distinct, 1)
    return rows_per_lookup(schema, keys, free, statistics) if columns else 1.0
