"""Rule instances as rows: beside each clause a relation that takes the values of its variables wherever its body holds.

    anc[bb](?x, ?z) :- demand anc[bb](?x, ?z), par(?x, ?y), anc[bb](?y, ?z).

gets `instance 0(?x, ?z, ?y) :-` with the same body. No clause reads these relations, so they are filled once, after the
fixpoint, and a finished run holds the ground program that led to its answers: what proofs, and what the confidence and the
validity of conclusions, are worked out from. Only the clauses that the goal's own conclusions can rest on are treated so:
what is merely found absent has no instances. Nor have clauses that count and sum: their groups rest on all their bindings.

Instances that differ in nothing that matters are one row: there are columns for variables of conclusions alone, and what can
be chosen by itself is a part with instances of its own (`parts.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import count

from kbplanner.errors import BudgetExceeded
from kbplanner.ir.program import Aggregation, Clause, ClauseAtom, ClauseItem, Program
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Variable
from kbplanner.passes.parts import Unseen, split

MAX_COLUMNS = 64
"""Columns a relation has at most; a rule with more variables has no instances as rows."""


@dataclass(frozen=True, slots=True)
class InstanceRelation:
    """The relation of a clause's instances, or of those of a part of it: a column for each of `variables`.

    `whole` is the clause with the anonymous variables of conclusions named; `clause` has atoms for its parts in place of
    their items. The premises are the atoms of its body whose rows are conclusions themselves, or those of `parts`; guards
    that only ask are not among them. `unseen` are items that hold for some values of variables without a column.
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

    They tell apart instances with other premises, and, if `weighed` names stored relations, those with other facts of these.
    Raises BudgetExceeded for a clause with too many variables that matter.
    """
    turned = program.answer is not None and program.answer.role is Role.ANSWER
    given = program.seed if turned else None

    def tells(atom: ClauseAtom) -> bool:
        if weighed is None:  # what is unseen is looked for among stored facts alone
            return atom.schema.role is not Role.STORED
        return not atom.absent and (_concluded(atom.schema, given) or atom.schema in weighed)

    names = map(str, count())
    found: list[InstanceRelation] = []
    groups: list[GroupRelation] = []
    made: list[Clause] = []
    for clause in _supporting(program, given):
        if clause.aggregates:
            (bindings,) = clause.atoms()
            folds = sum(1 for item in clause.body if isinstance(item, Aggregation))
            groups.append(GroupRelation(clause.head.schema, bindings.schema, clause.head.schema.arity - folds))
            continue
        whole = _named(clause, given, weighed)
        for level in split(whole, names, tells):
            if len(level.columns) > MAX_COLUMNS:
                raise BudgetExceeded(
                    f"a rule for {clause.head.schema.stored} has {len(level.columns)} variables that matter to its "
                    f"instances; these have at most {MAX_COLUMNS}",
                    "ruleVariables",
                    MAX_COLUMNS,
                    str(clause.rule),
                )
            own = level.clause
            parts = tuple(atom for atom in own.atoms() if atom.schema.role is Role.PART)
            premises = tuple(atom for atom in own.atoms() if atom in parts or _concluded(atom.schema, given))
            schema = RelationSchema(str(len(found)), len(level.columns), role=Role.INSTANCE)
            found.append(InstanceRelation(schema, own, whole, level.columns, premises, parts, level.unseen))
            made.extend(level.guards)
            if own.head.schema.role is Role.PART:
                made.append(own)
            made.append(Clause(ClauseAtom(schema, level.columns), own.body, own.rule))
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


def _named(clause: Clause, given: RelationSchema | None, weighed: Collection[RelationSchema] | None) -> Clause:
    """The clause with names for the anonymous variables that tell one premise from another."""
    named = 0
    body: list[ClauseItem] = []
    for item in clause.body:
        if not isinstance(item, ClauseAtom) or item.absent:
            body.append(item)
        elif _concluded(item.schema, given) or (weighed is not None and item.schema in weighed):
            args = []
            for arg in item.args:
                anonymous = isinstance(arg, Variable) and arg.anonymous
                args.append(Variable(f"any#{named}") if anonymous else arg)
                named += anonymous
            body.append(replace(item, args=tuple(args)))
        else:
            body.append(item)
    return replace(clause, body=tuple(body))
