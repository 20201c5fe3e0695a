"""How a goal is evaluated, as text for people: its plan with what the planner reckons with and what a run then meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kbcore.errors import EngineFault
from kbcore.reason.ask import GOAL, Reasoner
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition
from kbplanner.evaluate import Bind, CompiledGoal, GoalRun, goal_shape
from kbplanner.explain import explain
from kbplanner.plan import Column, ColumnKind
from kbplanner.printer import print_item, print_rule
from kbplanner.schema import RelationSchema
from kbplanner.terms import Atom, BodyItem, Rule


def plan_text(reasoner: Reasoner, partition: Partition, body: Sequence[BodyItem], budget: Budget) -> str:
    """The plan of a goal, run once beside the goal tables; raises BudgetExceeded.

    Behind each read stand the mask (`b` a column looked up by, `f` one read), the rows a look-up was expected to give, and
    the rows there are.
    """
    return "\n".join(_lines(reasoner, partition, body, budget))


def _lines(reasoner: Reasoner, partition: Partition, body: Sequence[BodyItem], budget: Budget) -> Iterator[str]:
    yield f"goal {', '.join(print_item(item) for item in body)}"
    with reasoner.planned(partition, body, budget) as (goal, atom, bind):
        yield from _plan_lines(reasoner, partition, body, goal, atom, bind, budget)


def _plan_lines(
    reasoner: Reasoner,
    partition: Partition,
    body: Sequence[BodyItem],
    goal: CompiledGoal | None,
    atom: Atom,
    bind: Bind,
    budget: Budget,
) -> Iterator[str]:
    engine = reasoner.tenant.engine
    if goal is None:
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        yield f"look up {schema}: {partition.rows(schema)} rows; no rule concludes it"
        return
    texts = [print_rule(rule, bare=True) for rule in reasoner.tenant.rules.visible(partition.name).rules]
    if atom.predicate == GOAL:
        texts.append(print_rule(Rule(replace(atom, predicate="goal"), tuple(body)), bare=True))
    asked = goal_shape(atom.args, engine.find)
    if asked is None:
        yield "not run: nothing has the constants of this goal"
        yield explain(goal.plan, texts)
        return
    run = GoalRun(engine, goal, bind, budget.limits)
    try:
        found = run.ask(asked[0], budget)
        if found is None:
            raise EngineFault("a relation changed under the read lock")
        stats, counts = run.run.stats(), reasoner.tables.counts
        yield (
            f"{found[1]} answers; rows made {stats.rows_made}, rows read {stats.rows_read}, probes {stats.probes}, "
            f"rounds {stats.rounds}"
        )
        yield (
            f"goal tables of this tenant: {counts.current} goals found one current, {counts.continued} went on with one, "
            f"{counts.stale} found it stale, {counts.missed} found none"
        )
        yield explain(goal.plan, texts, lambda slot, columns: _note(goal, run, slot, columns))
    finally:
        run.close()


def _note(goal: CompiledGoal, run: GoalRun, slot: int, columns: Sequence[Column]) -> str:
    relation = run.run.relation(slot)
    rows = relation.counts().visible
    keys = [place for place, column in enumerate(columns) if column.kind is ColumnKind.KEY]
    mask = "".join("b" if place in keys else "f" for place in range(len(columns)))
    distinct = relation.distinct(keys) if keys and len(keys) < len(columns) else 0
    parts = [f"mask {mask}"] if mask else []
    parts += [f"about {rows / distinct:.1f} a look-up"] if distinct else []
    planned = goal.sizes.get(goal.plan.slots[slot])
    parts += [f"{rows} rows" if planned in (None, rows) else f"{rows} rows, {planned} when planned"]
    return f"  [{', '.join(parts)}]"
