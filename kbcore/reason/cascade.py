"""What a retraction takes with it: the conclusions that held before and do not hold after.

Forward, then backward, in the manner of Backward/Forward maintenance (Motik et al. 2015). Forward: a conclusion is
*affected* if some instance of a rule gives it from premises that hold now or are affected, at least one of them affected;
the removed facts are affected to begin with. Every conclusion that fell is affected. Backward: each affected conclusion is
asked as a goal on the state after the retraction; those that do not hold have fallen.

Where an affected predicate is used under `not`, or the work meets its budget, the count is not complete and says so.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from kbcore.errors import BudgetExceeded
from kbcore.reason.ask import derived_row
from kbcore.reason.budget import Budget
from kbcore.state.changes import Removed
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.backend import Limits, Relation
from kbplanner.build import build
from kbplanner.bytecode import encode
from kbplanner.evaluate import CompiledGoal, GoalRun
from kbplanner.passes import rewrite
from kbplanner.program import Clause, ClauseAtom, ClauseItem
from kbplanner.rules import RuleSet
from kbplanner.schema import RelationSchema, Role
from kbplanner.terms import ANONYMOUS, Atom, Term, Variable

MAX_ROWS = 100_000
MAX_STEPS = 1_000_000
MAX_SHOWN = 1000
MAX_VARIANTS = 64

# No predicate of a user can hold a NUL character.
_REMOVED = "\0removed\0"
_AFFECTED = "\0affected\0"
_ALL = RelationSchema("\0all", 0, role=Role.DERIVED)


@dataclass(slots=True)
class Fallen:
    """Conclusions that fell: how many, the first of them as rows; `truncated` if there may be more."""

    count: int = 0
    rows: list[Row] = field(default_factory=list)
    truncated: bool = False


def fallen(tenant: Tenant, removed: Iterable[Removed], budget: Budget) -> Fallen:
    """What fell with removed facts; the caller holds the read lock of the state after the retraction."""
    found = Fallen()
    by_scope: dict[str | None, list[Removed]] = {}
    for one in removed:
        by_scope.setdefault(one.scope, []).append(one)
    for scope, group in by_scope.items():
        partition = tenant.partition(scope)
        rules = tenant.rules.visible(scope)
        if partition is None or not _touched(rules, {one.schema for one in group}):
            continue
        try:
            _settle(tenant, partition, rules, group, budget, found)
        except BudgetExceeded:
            found.truncated = True
    return found


def _touched(rules: RuleSet, removed: set[RelationSchema]) -> bool:
    return any(
        isinstance(item, ClauseAtom) and item.schema.stored in removed
        for clause in rules.clauses(frozenset())
        if clause.rule
        for item in clause.body
    )


def _settle(
    tenant: Tenant, partition: Partition, rules: RuleSet, group: Sequence[Removed], budget: Budget, found: Fallen
) -> None:
    engine = tenant.engine
    denied = partition.denied(rules.deniable)
    forward = _Forward(rules.clauses(denied), [one.schema for one in group])
    found.truncated = found.truncated or forward.incomplete
    program = rewrite(forward.clauses, _ALL, "", partition)
    plan = build(program, partition)
    goal = CompiledGoal(plan, engine.load(encode(plan)), tuple(engine.intern(text) for text in plan.parameters), {})
    seeds = _seed_relations(tenant, group)
    limits = Limits(MAX_ROWS, budget.limits.bytes, MAX_STEPS)
    run = GoalRun(engine, goal, lambda schema: seeds.get(schema) or partition.need(schema).relation, limits)
    within = Budget(limits, budget.timeout_ms, budget.deadline, budget.max_answers, budget.clock, budget.via)
    try:
        run.ask([], within.drive)
        for slot, schema in sorted(enumerate(plan.slots), key=lambda pair: str(pair[1])):
            if schema.role is Role.DERIVED and schema.predicate.startswith(_AFFECTED):
                rows, ids = run.run.relation(slot).match([0] * schema.arity)
                rows = engine.sort(rows, schema.arity)
                original = RelationSchema(schema.predicate[len(_AFFECTED) :], schema.arity, schema.positive)
                gone = _without(
                    rows, len(ids), original.arity, {key for one in group if one.schema == original for key in one.keys}
                )
                _fell(tenant, partition, rules, original, gone, within, found)
    finally:
        run.close()
        for relation in seeds.values():
            relation.drop()


class _Forward:
    """Clauses that conclude what is affected, beside those of the rules."""

    def __init__(self, clauses: Sequence[Clause], removed: Sequence[RelationSchema]) -> None:
        self.incomplete = False
        affected = self._reached(clauses, set(removed))
        made = list(clauses)
        for schema in sorted(affected & set(removed), key=str):
            args = tuple(_variables(schema.arity))
            seed = RelationSchema(_REMOVED + schema.predicate, schema.arity, schema.positive)
            made.append(Clause(ClauseAtom(_affected(schema), args), (ClauseAtom(seed, args),)))
        for clause in clauses:
            if clause.rule and clause.head.schema.stored in affected:
                made.extend(self._variants(clause, affected))
        for schema in sorted(affected, key=str):
            made.append(Clause(ClauseAtom(_ALL, ()), (ClauseAtom(_affected(schema), (ANONYMOUS,) * schema.arity),)))
        self.clauses = made

    @staticmethod
    def _reached(clauses: Sequence[Clause], affected: set[RelationSchema]) -> set[RelationSchema]:
        grown = True
        while grown:
            grown = False
            for clause in clauses:
                head = clause.head.schema.stored
                if head not in affected and any(
                    isinstance(item, ClauseAtom) and item.schema.stored in affected for item in clause.body
                ):
                    affected.add(head)
                    grown = True
        return affected

    def _variants(self, clause: Clause, affected: set[RelationSchema]) -> Iterator[Clause]:
        choices: list[list[ClauseItem]] = []
        size = 1
        for item in clause.body:
            if not isinstance(item, ClauseAtom) or item.schema.stored not in affected:
                choices.append([item])
            elif item.absent:
                self.incomplete = True
                choices.append([item])
            else:
                choices.append([item, ClauseAtom(_affected(item.schema.stored), item.args)])
                size *= 2
        if size > MAX_VARIANTS:
            self.incomplete = True
            return
        head = ClauseAtom(_affected(clause.head.schema.stored), clause.head.args)
        for body in product(*choices):
            if any(isinstance(item, ClauseAtom) and item.schema.predicate.startswith(_AFFECTED) for item in body):
                yield Clause(head, body)


def _affected(schema: RelationSchema) -> RelationSchema:
    return RelationSchema(_AFFECTED + schema.predicate, schema.arity, schema.positive, Role.DERIVED)


def _variables(arity: int) -> Iterator[Term]:
    return (Variable(f"a{i}") for i in range(arity))


def _seed_relations(tenant: Tenant, group: Sequence[Removed]) -> dict[RelationSchema, Relation]:
    seeds: dict[RelationSchema, Relation] = {}
    for one in group:
        schema = RelationSchema(_REMOVED + one.schema.predicate, one.schema.arity, one.schema.positive)
        relation = seeds.setdefault(schema, tenant.engine.relation(schema.arity))
        relation.insert(array("I", [symbol for key in one.keys for symbol in key]), len(one.keys))
    return seeds


def _without(rows: array[int], count: int, arity: int, keys: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    whole = (tuple(rows[i * arity : (i + 1) * arity]) for i in range(count))
    return [row for row in whole if row not in keys]


def _fell(
    tenant: Tenant,
    partition: Partition,
    rules: RuleSet,
    schema: RelationSchema,
    candidates: Sequence[tuple[int, ...]],
    budget: Budget,
    found: Fallen,
) -> None:
    if not candidates:
        return
    goal = tenant.plans.get(rules, schema, "b" * schema.arity, partition.denied(rules.deniable), partition)
    for row in candidates:
        run = GoalRun(tenant.engine, goal, lambda s: partition.need(s).relation, budget.limits)
        try:
            _, holds = run.ask(list(row), budget.drive)
        finally:
            run.close()
        if not holds:
            found.count += 1
            if len(found.rows) < MAX_SHOWN:
                found.rows.append(_row(tenant, partition, schema, row))


def _row(tenant: Tenant, partition: Partition, schema: RelationSchema, row: tuple[int, ...]) -> Row:
    atom = Atom(schema.predicate, tuple(tenant.engine.texts(array("I", row))), schema.positive)
    return derived_row(atom, atom.args, partition.name)
