"""Views for evaluating goals in a partition, now or as of a point in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from kbcore.errors import EngineFault
from kbcore.reason.as_of import AsOfView
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import Engine, Relation
from kbplanner.evaluate.evaluate import GoalRun
from kbplanner.evaluate.loaded import Bind, load
from kbplanner.evaluate.settle import View
from kbplanner.ir.program import Clause, ClauseAtom
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import numbered_variables
from kbplanner.passes import OPTIONAL, rewrite

COMBINED_GOAL = "?together"
"""Predicate that depends on several others; no rule text can use this name."""

MAX_TOGETHER = 2000
"""Predicates evaluated in one run, if they do not depend on each other: the engine verifies and
opens a plan of this size in a few milliseconds.
"""

CLAUSES_PER_YIELD = 500
"""Clauses looked at between two calls of `yield_now`: about a millisecond."""

RELATIONS_PER_YIELD = 50
"""Relations of a run looked up between two calls of `yield_now`: about a millisecond."""


@contextmanager
def viewed(
    tenant: Tenant,
    partition: Partition,
    rules: RuleSet,
    goals: Iterable[RelationSchema] | None,
    budget: Budget,
    as_of: int | None = None,
    denied: frozenset[RelationSchema] | None = None,
) -> Iterator[View]:
    """Provide a view of rules over a partition for goals on stored schemas (None: any); raises
    BudgetExceeded.

    Inside, `budget.now` is the point in time. `denied` is the set of explicit negatives with rows,
    if the caller knows it. External predicates have the rows that the request knows. The caller
    holds the tenant's read lock.
    """
    as_of_view = None if as_of is None else AsOfView(partition, as_of, budget)
    now = budget.now
    budget.now = now if as_of is None else as_of
    bind: Bind = as_of_view.bind if as_of_view else partition.bind
    version = -1 if as_of_view else tenant.version
    try:
        if denied is None:
            denied = frozenset(s for s in rules.deniable if bind(s).counts().visible)
        if budget.external is not None:
            bind = budget.external.bind(tenant, partition, bind)
        facts = View(rules, denied, bind, partition)
        with tenant.models.view(
            facts, goals, budget, scope=partition.name, version=version
        ) as view:
            yield view
    finally:
        budget.now = now
        if as_of_view:
            as_of_view.close()


def all_conclusions(
    tenant: Tenant, view: View, schema: RelationSchema, budget: Budget, open_runs: ExitStack
) -> Relation:
    """Return a relation with all conclusions of a predicate, including its facts.

    It lives until `open_runs` is closed.
    """
    goal = tenant.plans.get(view.rules, schema, "f" * schema.arity, view.denied, view.statistics)
    run = GoalRun(tenant.engine, goal, view.bind, budget.limits, budget.now)
    open_runs.callback(run.close)
    whole = run.whole(budget.drive)
    if whole is None:
        answers = run.ask([0] * schema.arity, budget)
        if answers is None:
            raise EngineFault("a relation changed under the read lock")
        whole = tenant.engine.relation(schema.arity)
        open_runs.callback(whole.drop)
        whole.insert(*answers)
    return whole


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Stored schemas of predicates, and all clauses that their conclusions depend on."""

    schemas: list[RelationSchema] = field(default_factory=list)
    clauses: list[Clause] = field(default_factory=list)


def independent_batches(
    view: View, schemas: Iterable[RelationSchema], budget: Budget
) -> list[RowBatch]:
    """Return predicates with rules in batches of about MAX_TOGETHER.

    No clause is in two batches: predicates that depend on a common one are in the same batch.
    Raises BudgetExceeded.
    """
    clauses = view.rules.clauses(view.denied)
    group: dict[RelationSchema, RelationSchema] = {}
    for clause in budget.paced(clauses):
        group[clause.head.schema] = clause.head.schema

    def group_of(schema: RelationSchema) -> RelationSchema:
        while (above := group[schema]) is not schema:
            group[schema] = group[above]
            schema = group[above]
        return schema

    for clause in budget.paced(clauses, CLAUSES_PER_YIELD):
        own = group_of(clause.head.schema)
        for atom in clause.all_atoms():
            if atom.schema in group:
                group[own] = group_of(atom.schema)
                own = group[own]
    batches = [RowBatch()]
    batch_of: dict[RelationSchema, RowBatch] = {}
    for schema in budget.paced(schemas, CLAUSES_PER_YIELD):
        root = group_of(view.rules.conclusions(schema))
        if root not in batch_of:
            if len(batches[-1].schemas) >= MAX_TOGETHER:
                batches.append(RowBatch())
            batch_of[root] = batches[-1]
        batch_of[root].schemas.append(schema)
    for clause in budget.paced(clauses, CLAUSES_PER_YIELD):
        batch = batch_of.get(group_of(clause.head.schema))
        if batch is not None:
            batch.clauses.append(clause)
    return batches


def conclusions_together(
    engine: Engine,
    view: View,
    batch: RowBatch,
    budget: Budget,
    open_runs: ExitStack,
) -> dict[RelationSchema, Relation]:
    """Return a relation with all conclusions of each predicate, evaluated in one run.

    A predicate is left out if the program has no relation with all of its rows. The relations live
    until `open_runs` is closed. Raises BudgetExceeded.
    """
    rules = view.rules
    sought = {
        rules.conclusions(schema): schema
        for schema in budget.paced(batch.schemas, CLAUSES_PER_YIELD)
    }
    goal = RelationSchema(COMBINED_GOAL, 0).derived
    asked = [
        Clause(ClauseAtom(goal, ()), (ClauseAtom(each, numbered_variables(each.arity)),))
        for each in budget.paced(sought, RELATIONS_PER_YIELD)
    ]
    program = rewrite(
        (*batch.clauses, *asked),
        goal,
        "",
        view.statistics,
        skip=OPTIONAL,
        full=True,
        yield_now=budget.yield_now,
    )
    loaded = load(engine, program, view.statistics, budget.yield_now)
    run = loaded.open_run(engine, view.bind, budget.limits, budget.now)
    open_runs.callback(budget.give_way)
    open_runs.callback(run.close)
    budget.drive(run)
    return {
        sought[slot_schema.bare]: run.relation(slot)
        for slot, slot_schema in budget.paced(enumerate(loaded.plan.slots), RELATIONS_PER_YIELD)
        if slot_schema.bare in sought
        and "b" not in slot_schema.adornment
        and slot_schema.arity == slot_schema.bare.arity
    }
