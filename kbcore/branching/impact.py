"""Impact of a change: the answers of goals that it adds and takes away, and its counts for each
predicate.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kbcore.branching.preview import DEFAULT_LISTED, Staged, TruthPreview
from kbcore.errors import BudgetExceeded
from kbcore.reason.ask import Reasoner, body_variables
from kbcore.reason.budget import Budget
from kbcore.reason.options import GoalOptions
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Engine
from kbplanner.ir.terms import BodyItem
from kbtypes.rule_sets import GoalImpact, Impact

ALL_ANSWERS = GoalOptions(returns_all=True, counts_accesses=False)
"""Options of the goals of an impact."""

Rows = set[tuple[int, ...]]
"""Answers of a goal, as symbols."""


@dataclass(frozen=True, slots=True)
class ImpactGoal:
    """A goal of one or more literals, with the text that was asked for."""

    text: str
    body: tuple[BodyItem, ...]


@dataclass(slots=True)
class ImpactOutcome:
    """Goals and predicates compared so far: all, unless the budget has ended."""

    goals: list[GoalImpact] = field(default_factory=list)
    truth: TruthPreview = field(default_factory=TruthPreview)

    def written(self) -> Impact:
        """Return the outcome as a record."""
        truth = self.truth
        return Impact(self.goals, truth.by_predicate, truth.counts, truth.truncated)


def impact_of(
    stage: Staged,
    scope: str | None,
    goals: Sequence[ImpactGoal],
    reasoner: Callable[[Tenant], Reasoner],
    budget: Budget,
) -> Impact:
    """Return the impact of a staged proposal; goals are asked in one scope.

    The caller holds the tenant's read lock.
    """
    outcome = ImpactOutcome()
    try:
        for goal in goals:
            before, after = (
                _rows(reasoner(tenant), scope, goal, budget)
                for tenant in (stage.tenant, stage.overlay)
            )
            engine = stage.tenant.engine
            true, false = after - before, before - after
            outcome.goals.append(
                GoalImpact(
                    goal.text,
                    _shown(engine, goal, true, budget),
                    _shown(engine, goal, false, budget),
                    len(true),
                    len(false),
                )
            )
        stage.compare(0, budget, outcome.truth)
    except BudgetExceeded:
        outcome.truth.truncated = True
    return outcome.written()


def _rows(reasoner: Reasoner, scope: str | None, goal: ImpactGoal, budget: Budget) -> Rows:
    """Return the answers of a goal in a state."""
    tenant = reasoner.tenant
    partition = tenant.partition(scope) or tenant.new_partition(scope)
    variables = body_variables(goal.body)
    symbols, count = reasoner.solve_body(partition, goal.body, variables, budget, ALL_ANSWERS)
    budget.check_answers(count)
    return set(budget.keys(symbols, count, len(variables)))


def _shown(engine: Engine, goal: ImpactGoal, rows: Rows, budget: Budget) -> list[dict[str, str]]:
    """Return the first answers by name of variable, in answer order."""
    names = [variable.name for variable in body_variables(goal.body)]
    if not names:
        return [{} for _ in rows]
    symbols = array("I")
    for row in budget.paced(rows):
        symbols.extend(row)
    ordered = engine.sort(symbols, len(names), budget.offload, in_place=True)
    texts = engine.texts(ordered[: DEFAULT_LISTED * len(names)])
    return [
        dict(zip(names, texts[start : start + len(names)], strict=True))
        for start in range(0, len(texts), len(names))
    ]
