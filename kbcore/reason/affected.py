"""The program that finds what a removal affects: clauses beside those of the rules.

For each rule and each non-empty choice of its affected body atoms there is a clause that reads those from what is affected
and the others from what holds. What depends on an affected predicate through an aggregate is not followed: the program says
that it is incomplete. `ALL` depends on every affected relation, so that one goal evaluates them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from kbplanner.program import Clause, ClauseAtom, ClauseItem
from kbplanner.schema import RelationSchema, Role
from kbplanner.terms import ANONYMOUS, Term, Variable

MAX_VARIANTS = 64
"""A rule with more choices than this is left out, and the program says it is incomplete."""

# No predicate of a user can hold a NUL character.
_REMOVED = "\0removed\0"
_AFFECTED = "\0affected\0"

ALL = RelationSchema("\0all", 0, role=Role.DERIVED)


_COUNTED = (Role.BINDINGS, Role.GROUPS)


def removed_schema(schema: RelationSchema) -> RelationSchema:
    """The stored relation that holds the removed facts of a stored schema."""
    return RelationSchema(_REMOVED + schema.predicate, schema.arity, schema.positive)


def affected_of(schema: RelationSchema) -> RelationSchema | None:
    """The stored schema whose affected rows a relation of the program holds; None for any other relation."""
    if schema.role is not Role.DERIVED or not schema.predicate.startswith(_AFFECTED):
        return None
    return RelationSchema(schema.predicate[len(_AFFECTED) :], schema.arity, schema.positive)


class Affected:
    """Clauses that conclude what is affected, beside those of the rules."""

    def __init__(self, clauses: Sequence[Clause], removed: Iterable[RelationSchema]) -> None:
        self.incomplete = False
        gone = set(removed)
        affected = self._reached(clauses, set(gone))
        made = list(clauses)
        for schema in sorted(gone, key=str):
            args = tuple(_variables(schema.arity))
            made.append(Clause(ClauseAtom(_affected(schema), args), (ClauseAtom(removed_schema(schema), args),)))
        for clause in clauses:
            if clause.head.schema.role in _COUNTED:
                self.incomplete = self.incomplete or any(atom.schema.stored in affected for atom in clause.atoms())
            elif clause.rule and clause.head.schema.stored in affected:
                made.extend(self._variants(clause, affected))
        for schema in sorted(affected, key=str):
            made.append(Clause(ClauseAtom(ALL, ()), (ClauseAtom(_affected(schema), (ANONYMOUS,) * schema.arity),)))
        self.clauses = made

    @staticmethod
    def _reached(clauses: Sequence[Clause], affected: set[RelationSchema]) -> set[RelationSchema]:
        grown = True
        while grown:
            grown = False
            for clause in clauses:
                head = clause.head.schema.stored
                if head not in affected and clause.head.schema.role not in _COUNTED and any(
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
