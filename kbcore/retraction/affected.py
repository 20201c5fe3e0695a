"""The programs about a removal: which conclusions it may change, and what held before it.

**Affected** conclusions: for each rule and each non-empty choice of its affected body atoms there is a clause that reads
those from what is affected and the others from what holds, or does not hold, now. Whoever changed has such an instance:
take the one that gave it, before or now; each of its premises is either the same on both sides or changed itself. `ALL`
depends on every affected relation, so that one goal evaluates them all. What depends on an affected predicate through an
aggregate is not followed: the program says that it is incomplete.

Where conclusions can be undefined, the rules have clauses for what is possible beside those for what is true. What is
possible matters to a true conclusion only where it is read under absence. If nothing affected is, the clauses for what is
possible are left out; otherwise an undefined conclusion, which was no answer before, would be taken for a fallen one.

**First**: conclusions of rule instances that have a removed fact among their premises and others that hold now. Where
nothing is read under absence and none of them fell, nothing did: of the conclusions that fell the one with the least
derivation had premises of which each still holds or was removed.

**Before**: the same rules over the stored facts and the removed ones together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from kbplanner.ir.program import Clause, ClauseAtom, ClauseItem
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import ANONYMOUS, Term, Variable
from kbplanner.passes.wellfounded import POSSIBLE

MAX_VARIANTS = 64
"""A rule with more choices than this is left out, and the program says it is incomplete."""

# No predicate of a user can hold a NUL character.
_REMOVED = "\0removed\0"
_AFFECTED = "\0affected\0"
_BEFORE = "\0before\0"
_FIRST = "\0first\0"

ALL = RelationSchema("\0all", 0, role=Role.DERIVED)


_COUNTED = (Role.BINDINGS, Role.GROUPS)


def removed_schema(schema: RelationSchema) -> RelationSchema:
    """The stored relation that holds the removed facts of a stored schema."""
    return RelationSchema(_REMOVED + schema.predicate, schema.arity, schema.positive)


def affected_of(schema: RelationSchema) -> RelationSchema | None:
    """The stored schema whose affected, or first, rows a relation of the program holds; None for any other relation."""
    if schema.role is Role.DERIVED:
        for mark in (_AFFECTED, _FIRST):
            if schema.predicate.startswith(mark):
                return RelationSchema(schema.predicate[len(mark) :], schema.arity, schema.positive)
    return None


class Affected:
    """Clauses that conclude what is affected, beside those of the rules.

    `signed`: an affected relation is read under absence, so that conclusions may also appear, and an affected one that
    does not hold need not have held.
    """

    def __init__(self, clauses: Sequence[Clause], removed: Iterable[RelationSchema]) -> None:
        self.incomplete = False
        gone = set(removed)
        affected = self._reached(clauses, set(gone))
        self.signed = any(
            isinstance(item, ClauseAtom) and item.absent and not affected.isdisjoint(_rests_on(item))
            for clause in clauses
            if _concludes(clause) and clause.head.schema.stored in affected
            for item in clause.body
        )
        made = list(clauses)
        for schema in sorted(gone, key=str):
            args = tuple(_variables(schema.arity))
            made.append(Clause(ClauseAtom(_affected(schema), args), (ClauseAtom(removed_schema(schema), args),)))
        for clause in clauses:
            if clause.head.schema.role in _COUNTED:
                self.incomplete = self.incomplete or any(
                    isinstance(item, ClauseAtom) and not affected.isdisjoint(_rests_on(item)) for item in clause.body
                )
            elif _concludes(clause, possible=self.signed) and clause.head.schema.stored in affected:
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
                if head in affected or clause.head.schema.role in _COUNTED:
                    continue
                if any(
                    isinstance(item, ClauseAtom) and not affected.isdisjoint(_rests_on(item)) for item in clause.body
                ):
                    affected.add(head)
                    grown = True
        return affected

    def _variants(self, clause: Clause, affected: set[RelationSchema]) -> Iterator[Clause]:
        choices: list[list[ClauseItem]] = []
        size = 1
        for item in clause.body:
            options = [item]
            if isinstance(item, ClauseAtom):
                changed = [schema for schema in _rests_on(item) if schema in affected]
                options += [ClauseAtom(_affected(schema), item.args) for schema in changed]
            choices.append(options)
            size *= len(options)
        if size > MAX_VARIANTS:
            self.incomplete = True
            return
        head = ClauseAtom(_affected(clause.head.schema.stored), clause.head.args)
        for body in product(*choices):
            if any(isinstance(item, ClauseAtom) and item.schema.predicate.startswith(_AFFECTED) for item in body):
                yield Clause(head, body)


def first(clauses: Sequence[Clause], removed: Iterable[RelationSchema]) -> list[Clause]:
    """The clauses that conclude what a removed fact is a premise of, beside those of the rules."""
    gone = set(removed)
    made, heads = list(clauses), set()
    for clause in clauses:
        if not _concludes(clause, possible=False):
            continue
        for place, item in enumerate(clause.body):
            if isinstance(item, ClauseAtom) and item.schema.stored in gone:
                # The others may have been removed as well, or hold.
                others = [
                    [other, ClauseAtom(removed_schema(other.schema.stored), other.args)]
                    if isinstance(other, ClauseAtom) and other.schema.stored in gone
                    else [other]
                    for other in (*clause.body[:place], *clause.body[place + 1 :])
                ]
                head = ClauseAtom(_first(clause.head.schema.stored), clause.head.args)
                heads.add(head.schema)
                out = ClauseAtom(removed_schema(item.schema.stored), item.args)
                made.extend(Clause(head, (out, *body)) for body in product(*others))
    for schema in sorted(heads, key=str):
        made.append(Clause(ClauseAtom(ALL, ()), (ClauseAtom(schema, (ANONYMOUS,) * schema.arity),)))
    return made


def before(clauses: Sequence[Clause], removed: Iterable[RelationSchema]) -> list[Clause]:
    """The clauses over the facts stored now and those removed, which together are the facts before."""
    gone = set(removed)

    def atom(item: ClauseItem) -> ClauseItem:
        if isinstance(item, ClauseAtom) and item.schema in gone:
            return ClauseAtom(_before(item.schema), item.args, item.absent)
        return item

    made = [Clause(clause.head, tuple(atom(item) for item in clause.body), clause.rule) for clause in clauses]
    for schema in sorted(gone, key=str):
        args = tuple(_variables(schema.arity))
        for part in (schema, removed_schema(schema)):
            made.append(Clause(ClauseAtom(_before(schema), args), (ClauseAtom(part, args),)))
    return made


def _concludes(clause: Clause, possible: bool = True) -> bool:
    """Return whether a clause is one of a rule and gives conclusions: possible ones too, or only true ones."""
    head = clause.head.schema
    return bool(clause.rule) and head.role not in _COUNTED and (possible or head.truth != POSSIBLE)


def _rests_on(item: ClauseAtom) -> list[RelationSchema]:
    """The stored schemas whose conclusions an atom reads: for what is not denied, the denials too."""
    stored = item.schema.stored
    return [stored, stored.opposite] if item.schema.role is Role.UNDENIED else [stored]


def _before(schema: RelationSchema) -> RelationSchema:
    return RelationSchema(_BEFORE + schema.predicate, schema.arity, schema.positive, Role.DERIVED)


def _first(schema: RelationSchema) -> RelationSchema:
    return RelationSchema(_FIRST + schema.predicate, schema.arity, schema.positive, Role.DERIVED)


def _affected(schema: RelationSchema) -> RelationSchema:
    return RelationSchema(_AFFECTED + schema.predicate, schema.arity, schema.positive, Role.DERIVED)


def _variables(arity: int) -> Iterator[Term]:
    return (Variable(f"a{i}") for i in range(arity))
