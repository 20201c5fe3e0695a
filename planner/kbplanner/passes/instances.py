"""Rule instances as rows: beside each clause a relation that takes the values of its variables wherever its body holds.

    anc[bb](?x, ?z) :- demand anc[bb](?x, ?z), par(?x, ?y), anc[bb](?y, ?z).

gets `instance 0(?x, ?z, ?y) :-` with the same body. No clause reads these relations, so they are filled once, after the
fixpoint, and a finished run holds the ground program that led to its answers: what proofs, and what the confidence and the
validity of conclusions, are worked out from. Only the clauses that the goal's own conclusions can rest on are treated so:
what is merely found absent has no instances. Nor have clauses that count and sum: their groups rest on all their bindings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from kbplanner.errors import BudgetExceeded
from kbplanner.program import Aggregation, Clause, ClauseAtom, ClauseItem, Program
from kbplanner.schema import RelationSchema, Role
from kbplanner.terms import Variable

MAX_COLUMNS = 64
"""Columns a relation has at most; a rule with more variables has no instances as rows."""


@dataclass(frozen=True, slots=True)
class InstanceRelation:
    """The relation of a clause's instances: a column for each of `variables`.

    `clause` is the clause with the anonymous variables of `premises` named. The premises are the atoms of its body whose
    rows are conclusions themselves; guards that only ask are not among them.
    """

    schema: RelationSchema
    clause: Clause
    variables: tuple[Variable, ...]
    premises: tuple[ClauseAtom, ...]


@dataclass(frozen=True, slots=True)
class GroupRelation:
    """The groups of a rule with aggregates, and the bindings they are taken over; `width` columns of both are the group."""

    schema: RelationSchema
    bindings: RelationSchema
    width: int


@dataclass(frozen=True, slots=True)
class GroundProgram:
    """A program together with the relations of its clauses' instances.

    `given` is the relation whose seeds count as conclusions: the reached bindings of a turned goal, which start from them.
    """

    program: Program
    instances: tuple[InstanceRelation, ...]
    given: RelationSchema | None
    groups: tuple[GroupRelation, ...] = ()


def instances(program: Program, weighed: Collection[RelationSchema] | None = None) -> GroundProgram:
    """Add instance relations to a program that all other passes have rewritten.

    They have a column for every variable of their clause; or, if `weighed` names stored relations, only for those that
    its head, its premises and atoms of these relations use. Raises BudgetExceeded for a clause with too many.
    """
    turned = program.answer is not None and program.answer.role is Role.ANSWER
    given = program.seed if turned else None
    found: list[InstanceRelation] = []
    groups: list[GroupRelation] = []
    for clause in _supporting(program, given):
        if clause.aggregates:
            (bindings,) = clause.atoms()
            folds = sum(1 for item in clause.body if isinstance(item, Aggregation))
            groups.append(GroupRelation(clause.head.schema, bindings.schema, clause.head.schema.arity - folds))
            continue
        named = _named(clause, given, weighed)
        premises = tuple(atom for atom in named.atoms() if _concluded(atom.schema, given))
        items = (named.head, *named.body)
        if weighed is not None:
            items = (named.head, *(atom for atom in named.atoms() if atom in premises or atom.schema in weighed))
        wanted = dict.fromkeys(v for item in items if not _absent(item) for v in item.variables() if not v.anonymous)
        if len(wanted) > MAX_COLUMNS:
            raise BudgetExceeded(
                f"a rule for {clause.head.schema.stored} has {len(wanted)} variables; instances have at most {MAX_COLUMNS}",
                "ruleVariables",
                MAX_COLUMNS,
                str(clause.rule),
            )
        schema = RelationSchema(str(len(found)), len(wanted), role=Role.INSTANCE)
        found.append(InstanceRelation(schema, named, tuple(wanted), premises))
    made = (Clause(ClauseAtom(i.schema, i.variables), i.clause.body, i.clause.rule) for i in found)
    return GroundProgram(replace(program, clauses=(*program.clauses, *made)), tuple(found), given, tuple(groups))


def _supporting(program: Program, given: RelationSchema | None) -> Iterator[Clause]:
    """The clauses of the answer relation and of what it rests on, by rule; those the compiler made come first."""
    heads = program.heads()
    todo = [schema for schema in (program.answer,) if schema is not None]
    reached = set(todo)
    while todo:
        for clause in heads.get(todo.pop(), ()):
            for atom in clause.atoms():
                if atom.schema not in reached and _concluded(atom.schema, given):
                    reached.add(atom.schema)
                    todo.append(atom.schema)
    return iter(sorted((c for c in program.clauses if c.head.schema in reached), key=lambda clause: clause.rule))


def _concluded(schema: RelationSchema, given: RelationSchema | None) -> bool:
    return schema.role in _CONCLUSIONS or schema == given


_CONCLUSIONS = (Role.DERIVED, Role.ANSWER, Role.REACH, Role.BINDINGS, Role.GROUPS)


def _absent(item: ClauseItem) -> bool:
    return isinstance(item, ClauseAtom) and item.absent


def _named(clause: Clause, given: RelationSchema | None, weighed: Collection[RelationSchema] | None) -> Clause:
    """The clause with names for the anonymous variables that tell one premise from another."""
    count = 0
    body: list[ClauseItem] = []
    for item in clause.body:
        if not isinstance(item, ClauseAtom) or item.absent:
            body.append(item)
        elif _concluded(item.schema, given) or (weighed is not None and item.schema in weighed):
            args = []
            for arg in item.args:
                anonymous = isinstance(arg, Variable) and arg.anonymous
                args.append(Variable(f"any#{count}") if anonymous else arg)
                count += anonymous
            body.append(replace(item, args=tuple(args)))
        else:
            body.append(item)
    return replace(clause, body=tuple(body))
