"""Rule instances as rows: a relation of variable values for each clause.

Only parts of clauses read these relations, so they are filled once, after the fixpoint, and a
finished run holds the ground program of its answers: proofs, and the confidence and validity of
conclusions, are computed from it.

Before:

    uncle(?x, ?z) :- parent(?x, ?y), brother(?y, ?z).
    ?- uncle(ann, ?z).

After:

    uncle/2[bf](?x, ?z) :- demand uncle/2[bf](?x), parent/2(?x, ?y), brother/2(?y, ?z).  % rule 1
    uncle/2[bf](?a0, ?a1) :- demand uncle/2[bf](?a0), uncle/2(?a0, ?a1).
    instance 0/2(?a0, ?a1) :- demand uncle/2[bf](?a0), uncle/2(?a0, ?a1).
    instance 1/2(?x, ?z) :- demand uncle/2[bf](?x), parent/2(?x, ?y), brother/2(?y, ?z).  % rule 1

Only the clauses that the goal's own conclusions can depend on get instances: atoms that are merely
absent have none. Nor have clauses that aggregate: their groups depend on all their bindings.
Instances without a relevant difference are one row: there are columns for variables of conclusions
alone, as for `?x` and `?z` here, and independent choices are parts with instances of their own
(`parts.py`). Instances whose conclusion is not the best value of its group are left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import count

from kbplanner.errors import BudgetExceeded
from kbplanner.ir.limits import MAX_COLUMNS
from kbplanner.ir.program import (
    REWRITES_PER_YIELD,
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    Program,
)
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import Variable
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.passes.first import FirstInstances, keep_first, recursions
from kbplanner.passes.parts import SplitClause, Unseen, split, undivided


@dataclass(frozen=True, slots=True)
class InstanceRelation:
    """The relation of a clause's instances, or of those of a part of it: a column for each of
    `variables`.

    `whole` is the clause with the anonymous variables of conclusions named; `clause` has atoms for
    its parts in place of their items. The premises are the atoms of its body whose rows are
    conclusions themselves, or those of `parts`, without guards. `unseen` are items that hold for
    some values of variables without a column.
    """

    schema: RelationSchema
    clause: Clause
    whole: Clause
    variables: tuple[Variable, ...]
    premises: tuple[ClauseAtom, ...]
    parts: tuple[ClauseAtom, ...]
    unseen: tuple[Unseen, ...]

    @property
    def is_part(self) -> bool:
        """True if these are instances of a part of a clause."""
        return self.clause.head.schema.role is Role.PART


@dataclass(frozen=True, slots=True)
class GroupRelation:
    """The groups of a rule with aggregates, and the bindings they are taken over; `width` columns
    of both are the group.
    """

    schema: RelationSchema
    bindings: RelationSchema
    width: int


@dataclass(frozen=True, slots=True)
class GroundProgram:
    """A program together with the relations of its clauses' instances.

    `seed_relation` is the relation whose seeds count as conclusions: the reached bindings of a
    rewritten goal.
    """

    program: Program
    instances: tuple[InstanceRelation, ...]
    seed_relation: RelationSchema | None
    groups: tuple[GroupRelation, ...] = ()


def instances(
    program: Program,
    confidence_sources: Collection[RelationSchema] | None = None,
    yield_now: YieldNow = go_on,
    *,
    first: bool = False,
) -> GroundProgram:
    """Add instance relations to a program that all other passes have rewritten.

    They distinguish instances with other premises, and, if `confidence_sources` names stored
    relations, with other facts of these. With `first`, recursions with several recursive premises
    have for each conclusion the instance that comes first, and asserted facts. `yield_now` is
    called about once a millisecond. Raises BudgetExceeded for a clause whose instances have too
    many columns.
    """
    turned = program.answer is not None and program.answer.role is Role.ANSWER
    seed_relation = program.seed if turned else None

    def distinguishes(atom: ClauseAtom) -> bool:
        if confidence_sources is None:  # unseen items are searched for among stored facts only
            return atom.schema.role is not Role.STORED
        return not atom.absent and (
            _concluded(atom.schema, seed_relation) or atom.schema in confidence_sources
        )

    names = map(str, count())
    relations: list[InstanceRelation] = []
    groups: list[GroupRelation] = []
    clauses: list[Clause] = []
    firsts: list[FirstInstances] = []
    supporting = _supporting(program, seed_relation)
    recursive = (
        recursions(supporting, lambda atom: _concluded(atom.schema, seed_relation))
        if first
        else frozenset[RelationSchema]()
    )
    for clause in paced(supporting, yield_now, REWRITES_PER_YIELD):
        if clause.aggregates:
            (bindings,) = clause.atoms()
            folds = sum(1 for item in clause.body if isinstance(item, AggregateClause))
            groups.append(
                GroupRelation(clause.head.schema, bindings.schema, clause.head.schema.arity - folds)
            )
            continue
        whole = _named(_canonical(clause), seed_relation, confidence_sources)
        levels = split(whole, names, distinguishes)
        is_first = clause.head.schema in recursive
        if is_first and _is_copy(clause, seed_relation):  # an asserted fact is shown as asserted
            firsts.append(FirstInstances(clause, whole, (), None))
        elif is_first:
            levels = [undivided(whole, distinguishes)]
        for level in levels:
            if len(level.columns) + is_first > MAX_COLUMNS:
                raise BudgetExceeded(
                    f"a rule for {clause.head.schema.stored} has {len(level.columns)} variables that matter to its "
                    f"instances; these have at most {MAX_COLUMNS}",
                    "ruleVariables",
                    MAX_COLUMNS,
                    str(clause.rule),
                )
            own = level.clause
            relation = _instance_relation(len(relations), level, whole, seed_relation)
            schema = relation.schema
            relations.append(relation)
            if is_first and not _is_copy(clause, seed_relation):
                firsts.append(FirstInstances(clause, whole, level.columns, schema))
                continue
            clauses.extend(level.guards)
            instance = ClauseAtom(schema, level.columns)
            if own.head.schema.role is Role.PART:
                clauses.append(replace(own, body=(instance,)))
            body = own.body
            if own.head.schema.role in BEST:  # other instances conclude values that are not kept
                body = (*body, own.head)
            clauses.append(Clause(instance, body, own.rule))
    program = keep_first(program, firsts) if firsts else program
    extended = replace(program, clauses=(*program.clauses, *clauses))
    return GroundProgram(extended, tuple(relations), seed_relation, tuple(groups))


def _supporting(program: Program, seed_relation: RelationSchema | None) -> list[Clause]:
    """Return the clauses of the answer relation and of its dependencies, by rule; those of the
    compiler first.
    """
    heads = program.heads()
    todo = [schema for schema in (program.answer,) if schema is not None]
    reached = set(todo)
    while todo:
        for clause in heads.get(todo.pop(), ()):
            for atom in clause.atoms():
                if atom.schema not in reached and _concluded(atom.schema, seed_relation):
                    reached.add(atom.schema)
                    todo.append(atom.schema)
    return sorted(
        (c for c in program.clauses if c.head.schema in reached), key=lambda clause: clause.rule
    )


def _instance_relation(
    number: int, level: SplitClause, whole: Clause, seed_relation: RelationSchema | None
) -> InstanceRelation:
    """Return the relation of the instances of a clause or of a part of it."""
    atoms = tuple(level.clause.atoms())
    parts = tuple(atom for atom in atoms if atom.schema.role is Role.PART)
    premises = tuple(
        atom for atom in atoms if atom in parts or _concluded(atom.schema, seed_relation)
    )
    schema = RelationSchema(str(number), len(level.columns), role=Role.INSTANCE)
    return InstanceRelation(
        schema, level.clause, whole, level.columns, premises, parts, level.unseen
    )


def _canonical(clause: Clause) -> Clause:
    """Return a clause whose head has the value that is kept, if it is a best value.

    The engine keeps numbers in canonical text, in which computed values are already. It is what the
    function `min` gives for one argument.
    """
    if clause.head.schema.role not in BEST:
        return clause
    *group, value = clause.head.args
    computed = (item for item in clause.body if isinstance(item, Computation))
    if any(item.target == value and item.function != "=" for item in computed):
        return clause
    head = replace(clause.head, args=(*group, _KEPT))
    return replace(clause, head=head, body=(*clause.body, Computation(_KEPT, "min", (value,))))


_KEPT = Variable("kept#")


def _is_copy(clause: Clause, seed_relation: RelationSchema | None) -> bool:
    """Return True if a clause of the compiler copies stored facts."""
    return not clause.rule and not any(
        _concluded(atom.schema, seed_relation) for atom in clause.atoms()
    )


def _concluded(schema: RelationSchema, seed_relation: RelationSchema | None) -> bool:
    return schema.role in _CONCLUSIONS or schema == seed_relation


_CONCLUSIONS = (Role.DERIVED, Role.STEP, *BEST, Role.ANSWER, Role.REACH, Role.BINDINGS, Role.GROUPS)


def _named(
    clause: Clause,
    seed_relation: RelationSchema | None,
    confidence_sources: Collection[RelationSchema] | None,
) -> Clause:
    """Return the clause with names for the anonymous variables that distinguish premises."""
    named_count = 0
    body: list[ClauseItem] = []
    for item in clause.body:
        if not isinstance(item, ClauseAtom) or item.absent:
            body.append(item)
        elif _concluded(item.schema, seed_relation) or (
            confidence_sources is not None and item.schema in confidence_sources
        ):
            args = []
            for arg in item.args:
                anonymous = isinstance(arg, Variable) and arg.anonymous
                args.append(Variable(f"any#{named_count}") if anonymous else arg)
                named_count += anonymous
            body.append(replace(item, args=tuple(args)))
        else:
            body.append(item)
    return replace(clause, body=tuple(body))
