"""The conclusions of one scope, kept in the engine and changed by the changes of its facts.

A count of those that a retraction ends then costs what changes. The relations are kept whose rows
fit the memory for them, with all that they depend on; the rules of the others are evaluated over
these (`RulesOver`).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from kbcore.errors import BudgetExceeded
from kbcore.reason.budget import Budget
from kbcore.reason.tables import SIZE_OF_KEPT, GoalTables
from kbcore.retraction.affected import kept_rows
from kbcore.state.partition import Partition, RowJournal, RowKey
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet, RulesOver
from kbplanner.engine.backend import Relation, Run, RunLimits
from kbplanner.evaluate.deltas import DeltaPrograms
from kbplanner.evaluate.follow import Unmaintained, follow
from kbplanner.evaluate.loaded import LoadedPlan, load
from kbplanner.evaluate.maintained import Changed, FlatRows, MaintainedProgram
from kbplanner.evaluate.settle import Sizes, View
from kbplanner.ir.program import Clause, ClauseAtom, Computation, dependents
from kbplanner.ir.schema import BEST, RelationSchema
from kbplanner.ir.terms import numbered_variables
from kbplanner.pacing import current_yield
from kbplanner.passes import OPTIONAL, rewrite

MAX_STEPS = 10_000_000
"""Steps of the evaluation whose rows are kept."""

MAX_COST, MIN_STEPS = 2, 20_000
"""A change may take one of this many of its steps, and always this number."""

MAX_TRIALS = 8
"""Evaluations until one fits, each without the relations that were in work when the one before did
not.
"""

MAX_SHARE = 2
"""One of this many parts of the memory of standing goals is for all kept conclusions of a
tenant.
"""

GOAL_SCHEMA = RelationSchema("\0together", 0).derived
"""The goal of the evaluation: it depends on every kept relation."""


@dataclass(frozen=True, slots=True, eq=False)
class ScopeState:
    """The facts and rules of one scope; `denied` are the explicit negatives that rules are compiled
    for.
    """

    tenant: Tenant
    partition: Partition
    rules: RuleSet
    denied: frozenset[RelationSchema]


class KeptConclusions:
    """The rows of some relations of the rules of a scope, as they follow from its facts.

    It takes over those of a finished run, which the caller closes. After an error it can only be
    closed. The caller holds the read lock, and is the only one that uses it.
    """

    def __init__(
        self,
        facts: ScopeState,
        run: Run,
        plan: LoadedPlan,
        changes: DeltaPrograms,
        tables: GoalTables,
    ) -> None:
        self._facts = facts
        self._tables = tables
        self.sizes = (0, 0)
        """The memory of the rows with their indexes, and of the rows alone, as last measured."""
        self._steps = max(run.stats().steps // MAX_COST, MIN_STEPS)
        self._program = MaintainedProgram(facts.tenant.engine, changes, run, plan.plan.slots)
        rows, partition, rules = self._program.rows, facts.partition, facts.rules
        for schema in [each for each in rows if each.bare == GOAL_SCHEMA]:
            rows.pop(schema).drop()
        self._journals: dict[RelationSchema, RowJournal] = {
            schema: partition.need(schema).journal(needs_all=False) for schema in plan.base
        }
        relations = {schema.bare: relation for schema, relation in rows.items()}
        names = {schema: kept_rows(schema) for schema in relations}
        self.stored = {rules.conclusions(schema): schema for schema in rules.derived}
        """The stored schemas of the conclusions by their relation."""
        self.rest: View | None = None
        """The other rules, over the kept rows; None if all is kept."""
        over = RulesOver(rules, names)
        clauses = over.clauses(facts.denied)
        self.read = frozenset(atom.schema for clause in clauses for atom in clause.all_atoms())
        """The relations that they read."""
        if clauses:
            named = {names[schema]: relation for schema, relation in relations.items()}

            def bind(schema: RelationSchema) -> Relation:
                return named[schema] if schema in named else partition.bind(schema)

            self.rest = View(over, facts.denied, bind, Sizes(named, partition))
        self._measure()

    def serves(self, facts: ScopeState) -> bool:
        """Return True if these are the rows for the rules as they are now."""
        own = self._facts
        return (
            own.partition is facts.partition
            and own.rules is facts.rules
            and own.denied >= facts.denied
        )

    @property
    def is_behind(self) -> bool:
        """True if facts have changed."""
        return any(journal.count or journal.is_lost for journal in self._journals.values())

    def catch_up(self, budget: Budget) -> None:
        """Follow all changes of facts.

        Raises Unmaintained and BudgetExceeded.
        """
        self._follow(self._taken(), budget)

    def removal(
        self, removed: Mapping[RelationSchema, set[RowKey]], budget: Budget
    ) -> dict[RelationSchema, Changed] | None:
        """Follow the removal of facts; return the changes of all kept relations.

        None if other facts have changed as well: they are followed too. Raises Unmaintained and
        BudgetExceeded.
        """
        changes = self._taken()
        changed = self._follow(changes, budget)
        for schema in self._journals:
            added, gone = changes.get(schema, ((), ()))
            if added or set(gone) != removed.get(schema, set()):
                return None
        return {schema.bare: each for schema, each in changed.items()}

    def close(self) -> None:
        """Free the rows."""
        self._tables.count_kept(-self.sizes[0])
        self.sizes = (0, 0)
        self._journals.clear()
        self._program.close()

    def _taken(self) -> dict[RelationSchema, tuple[list[RowKey], list[RowKey]]]:
        """Return the facts that have come and gone since the last call."""
        changes = {}
        for schema, journal in self._journals.items():
            if journal.is_lost:
                raise Unmaintained
            if journal.count:
                changes[schema] = journal.take()
        return changes

    def _follow(
        self,
        changes: Mapping[RelationSchema, tuple[list[RowKey], list[RowKey]]],
        budget: Budget,
    ) -> dict[RelationSchema, Changed]:
        changed = {
            schema: Changed(_flat(came), _flat(gone))
            for schema, (came, gone) in changes.items()
            if came or gone
        }
        if not changed:
            return changed
        limits = budget.limits
        steps = min(self._steps, limits.steps or self._steps)
        within = replace(budget, limits=replace(limits, steps=steps))
        partition = self._facts.partition
        try:
            result = follow(self._program, changed, partition.bind, partition, within)
        except BudgetExceeded as error:
            budget.check_time()
            raise Unmaintained from error
        if not self._measure():
            raise Unmaintained
        return result

    def _measure(self) -> bool:
        """Count the memory that the rows take now; return False if that is too much."""
        before, self.sizes = self.sizes[0], (self._program.bytes, self._program.row_bytes)
        return self._tables.count_kept(self.sizes[0] - before)


def _flat(keys: list[RowKey]) -> FlatRows:
    return FlatRows(array("I", chain.from_iterable(keys)), len(keys))


def kept_conclusions(
    facts: ScopeState, tables: GoalTables, budget: Budget
) -> KeptConclusions | None:
    """Return kept conclusions of a scope; None if there are none that can be kept.

    Raises BudgetExceeded if no time is left.
    """
    rules, denied = facts.rules, facts.denied
    if rules.negative_components(denied):
        return None
    clauses = rules.clauses(denied)
    left = {clause.head.schema for clause in clauses if _is_left(rules, clause)}
    for _ in range(MAX_TRIALS):
        left = dependents(clauses, left, current_yield())
        own = [clause for clause in clauses if clause.head.schema not in left]
        if not own:
            return None
        plan, changes = _loaded(facts, own)
        if changes.components is None:
            return None
        run = plan.open_run(
            facts.tenant.engine, facts.partition.bind, _limits(budget, tables), None
        )
        try:
            budget.work(run)
            stats = run.stats()
            if stats.warnings or not tables.has_room_to_keep(stats.bytes):
                return None
            return KeptConclusions(facts, run, plan, changes, tables)
        except BudgetExceeded:
            budget.check_time()
            rule = run.stats().rule
            left |= {clause.head.schema for clause in own if clause.rule == rule or not rule}
        finally:
            run.close()
    return None


def _is_left(rules: RuleSet, clause: Clause) -> bool:
    """Return True if what a clause concludes is not kept: it changes with the time, or may have no
    end.
    """
    if any(isinstance(item, Computation) and item.function == "now" for item in clause.body):
        return True
    is_endless = clause.rule > 0 and rules.rules[clause.rule - 1] in rules.computed_recursion
    return is_endless and clause.head.schema.role not in BEST


def _loaded(facts: ScopeState, clauses: list[Clause]) -> tuple[LoadedPlan, DeltaPrograms]:
    """Return the plan that derives all rows of the heads of clauses, and the programs for their
    changes.
    """
    heads = dict.fromkeys(clause.head.schema for clause in clauses)
    asked = [
        Clause(ClauseAtom(GOAL_SCHEMA, ()), (ClauseAtom(each, numbered_variables(each.arity)),))
        for each in heads
    ]
    statistics, yield_now = facts.partition, current_yield()
    program = rewrite(
        (*clauses, *asked),
        GOAL_SCHEMA,
        "",
        statistics,
        skip=OPTIONAL,
        full=True,
        yield_now=yield_now,
    )
    plan = load(facts.tenant.engine, program, statistics, yield_now)
    own = tuple(clause for clause in program.clauses if clause.head.schema.bare != GOAL_SCHEMA)
    return plan, DeltaPrograms(replace(program, clauses=own))


def _limits(budget: Budget, tables: GoalTables) -> RunLimits:
    """Return the limits of the evaluation whose rows are kept."""
    now = budget.limits
    room = max(tables.max_bytes // MAX_SHARE // SIZE_OF_KEPT, 1)
    return RunLimits(
        now.rows,
        min(room, now.bytes or room),
        min(MAX_STEPS, now.steps or MAX_STEPS),
    )
