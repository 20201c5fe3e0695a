"""The evaluation of a goal as data: its plan, estimates of each step, and figures of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from kbcore.reason.ask import GOAL, Planned, Reasoner
from kbcore.reason.budget import Budget
from kbcore.reason.options import GoalOptions
from kbcore.state.partition import Partition
from kbplanner.compile.estimates import Estimate, estimates
from kbplanner.compile.explain import COMPILED, answer_name, atom_text, mask, step_text
from kbplanner.compile.plan import (
    AntiJoin,
    ColumnOperand,
    ExternalDemand,
    GroupStep,
    Intersect,
    JoinPlan,
    MemberStep,
    Plan,
    Probe,
    Scan,
    Step,
)
from kbplanner.engine.backend import RuleCounts, Run
from kbplanner.evaluate.evaluate import CompiledGoal, GoalRun
from kbplanner.evaluate.profiler import StratumProfiler, StratumTotals
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import BodyItem
from kbplanner.passes.order import NoStatistics
from kbplanner.syntax.printer import print_item, print_rule

MAX_ESTIMATED_ROWS = 1e18
"""Cap on reported estimates: estimates are products and grow without bound."""

MEASURED = ("rows", "rowsRead", "lookUps")
"""The measured figures of a rule: new rows, rows read, look-ups."""


def plan_data(
    reasoner: Reasoner,
    partition: Partition,
    body: Sequence[BodyItem],
    budget: Budget,
    *,
    analyze: bool,
    as_of: int | None = None,
) -> dict[str, Any]:
    """Return the plan of a goal; with `analyze` run it once without goal tables. Raises
    BudgetExceeded.

    Figures that only a run provides are None without `analyze`. The shape is that of `POST
    /explain` in the reference.
    """
    clock = budget.clock.monotonic
    with reasoner.planned(partition, body, budget, as_of) as planned:
        goal, pattern = planned.goal, planned.pattern
        state = "none"
        is_external = goal is not None and bool(goal.plan.external)
        if goal is not None and pattern is not None and as_of is None and not is_external:
            state = reasoner.tables.state(partition.key, goal, pattern)
        result: dict[str, Any] = {
            "goal": ", ".join(print_item(item) for item in body),
            "scope": partition.name,
            "analyzed": analyze,
            "constantsKnown": pattern is not None,
            "answers": None,
            "ms": None,
            "rowsMade": None,
            "rowsRead": None,
            "lookUps": None,
            "rounds": None,
            "table": {"state": state, "counts": asdict(reasoner.tables.counts)},
        }
        if goal is None:
            schema = RelationSchema(
                planned.atom.predicate, planned.atom.arity, planned.atom.positive
            )
            start = clock()
            if analyze:
                options = GoalOptions(as_of)
                result["answers"] = reasoner.solve(partition, planned.atom, budget, options)[1]
                result["ms"] = _ms(clock() - start)
            look_up = {"relation": str(schema), "relationRows": partition.rows(schema)}
            return {**result, "lookUp": look_up, "rules": [], "strata": [], "external": []}
        if not analyze or pattern is None:
            result["answers"] = 0 if analyze else None
            return {**result, **_Plan(planned, goal).data()}
        if is_external:  # the run that is measured has all rows, which others have to fetch
            reasoner.supplied_run(partition, goal, planned.bind, pattern, budget).close()
        run = GoalRun(reasoner.tenant.engine, goal, planned.bind, budget.limits, budget.now)
        try:
            watched = StratumProfiler(run.run, len(goal.plan.strata), clock)
            result["answers"] = run.measure(pattern, lambda _: budget.work(watched))
            result["ms"] = _ms(sum(stage.seconds for stage in watched.strata_totals))
            stats = run.run.stats()
            result["rowsMade"], result["rowsRead"] = stats.rows_made, stats.rows_read
            result["lookUps"], result["rounds"] = stats.probes, stats.rounds
            return {**result, **_Plan(planned, goal, run.run, watched.strata_totals).data()}
        finally:
            run.close()


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _rounded(rows: float) -> float:
    return round(min(rows, MAX_ESTIMATED_ROWS), 1)


class _Plan:
    """A plan with, if it was run, the run and the figures of its strata."""

    def __init__(
        self,
        planned: Planned,
        goal: CompiledGoal,
        run: Run | None = None,
        stages: Sequence[StratumTotals] = (),
    ) -> None:
        self._planned = planned
        self._goal = goal
        self._run = run
        self._stages = stages
        self._counts = iter(run.counts()) if run is not None else None

    def data(self) -> dict[str, Any]:
        plan = self._goal.plan
        strata = list(self._strata(plan))
        versions: dict[int, list[dict[str, Any]]] = {}
        for stratum in strata:
            for version in stratum["rules"]:
                versions.setdefault(version["id"], []).append(version)
        return {
            "answer": answer_name(plan),
            "seed": None if plan.seed is None else str(plan.slots[plan.seed]),
            "rules": [self._rule(number, versions[number]) for number in sorted(versions)],
            "strata": strata,
            "external": [self._call(call) for call in plan.external],
        }

    def _call(self, call: ExternalDemand) -> dict[str, Any]:
        """Return the calls of an external predicate in one mode."""
        inputs = None if self._run is None else self._run.relation(call.slot).counts().visible
        return {
            "predicate": str(call.relation),
            "mode": ["in" if mark == "b" else "out" for mark in call.mode],
            "relation": str(self._goal.plan.slots[call.slot]),
            "inputs": inputs,
            "rows": None if inputs is None else self._planned.bind(call.relation).counts().visible,
        }

    def _rule(self, number: int, versions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return a rule with the summed figures of its versions."""
        figures = {
            key: sum(version[key] for version in versions) if self._run is not None else None
            for key in MEASURED
        }
        return {"id": number, "text": self._text(number), **figures}

    def _text(self, number: int) -> str:
        if not number:
            return COMPILED
        rule = self._goal.rules[number - 1]
        if rule.head.predicate == GOAL:
            rule = replace(rule, head=replace(rule.head, predicate="goal"))
        return print_rule(rule, bare=True)

    def _strata(self, plan: Plan) -> Iterator[dict[str, Any]]:
        for index, stratum in enumerate(plan.strata):
            stage = self._stages[index] if self._stages else None
            yield {
                "relations": [str(plan.slots[slot]) for slot in stratum.relations],
                "recursive": stratum.recursive,
                "rounds": None if stage is None else stage.rounds,
                "ms": None if stage is None else _ms(stage.seconds),
                "rows": None if stage is None else stage.rows,
                "rules": [self._join(join) for join in stratum.plans],
            }

    def _join(self, join: JoinPlan) -> dict[str, Any]:
        counts = next(self._counts) if self._counts is not None else None
        expected = list(
            estimates(self._goal.plan, join, self._planned.statistics or NoStatistics())
        )
        return {
            "id": join.rule,
            "text": self._text(join.rule),
            "estimatedRows": _rounded(expected[-1].rows),
            "assumed": expected[-1].assumed,
            **dict(zip(MEASURED, _measured(counts), strict=True)),
            "steps": list(self._steps(join, expected, counts)),
        }

    def _steps(
        self, join: JoinPlan, expected: Sequence[Estimate], counts: RuleCounts | None
    ) -> Iterator[dict[str, Any]]:
        index = 0
        for step, estimate in zip(join.steps, expected, strict=True):
            index += isinstance(step, Intersect)  # the engine counts it as two steps
            text = step_text(step, join, self._goal.plan)
            row: dict[str, Any] = {"operator": text.split(" ", 1)[0], "text": text}
            reads = list(_reads(step))
            for number, (slot, columns) in enumerate(reads):
                read = self._read(join, slot, columns)
                row.update(read if number == 0 else {"with": read})
            if reads:
                per_look_up = estimate.per_lookup
                row["estimatedPerLookUp"] = None if per_look_up is None else _rounded(per_look_up)
            row["estimatedRows"] = _rounded(estimate.rows)
            row["assumed"] = estimate.assumed
            row["rows"] = None if counts is None else counts.steps[index]
            index += 1
            yield row

    def _read(self, join: JoinPlan, slot: int, columns: Sequence[ColumnOperand]) -> dict[str, Any]:
        plan = self._goal.plan
        schema = plan.slots[slot]
        rows = None
        if self._run is not None:
            rows = self._run.relation(slot).counts().visible
        elif not plan.derived[slot]:
            rows = self._planned.bind(schema).counts().visible
        return {
            "atom": atom_text(plan, join, slot, columns),
            "relation": str(schema),
            "adornment": schema.adornment or mask(columns),
            "mask": mask(columns),
            "relationRows": rows,
            "relationRowsWhenPlanned": self._goal.loaded.sizes.get(schema),
        }


def _measured(counts: RuleCounts | None) -> tuple[int | None, int | None, int | None]:
    return (
        (None, None, None)
        if counts is None
        else (counts.rows_made, counts.rows_read, counts.probes)
    )


def _reads(step: Step) -> Iterator[tuple[int, Sequence[ColumnOperand]]]:
    """Yield the slots a step reads, each with its use of the columns."""
    if isinstance(step, Intersect):
        yield step.probe.slot, step.probe.columns
        yield step.other.slot, step.other.columns
    elif isinstance(step, (Scan, Probe, MemberStep, GroupStep, AntiJoin)):
        yield step.slot, step.columns
