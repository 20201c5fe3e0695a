"""Programs about a removal: the conclusions that it may change, and the conclusions before it.

**Affected** conclusions: for each rule and each non-empty subset of its affected body atoms there
is a clause that reads this subset from the affected relations and the other atoms from the current
state. Every changed conclusion has such an instance: take the instance that derives it, before or
now; each of its premises is either the same on both sides or has changed itself. `ALL` depends on
every affected relation, so a single goal evaluates all of them. Conclusions that depend on an
affected predicate through an aggregate are not followed: the program is marked incomplete.

If conclusions can be undefined, the rules have clauses for possible conclusions in addition to
those for true ones. A possible conclusion matters to a true one only if it is read under negation.
If no affected atom is, the clauses for possible conclusions are left out; otherwise an undefined
conclusion, which was not an answer before, would be counted as fallen.

**First** conclusions: those of rule instances with at least one removed premise, whose other
premises hold now or were removed too. If no affected relation is read under negation and all first
conclusions still hold, no conclusion fell: the fallen conclusion with the smallest derivation would
have only premises that still hold or were removed.

**Before**: the same rules over the stored facts and the removed facts together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from kbplanner.ir.program import Clause, ClauseAtom, ClauseItem
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import ANONYMOUS, Term, Variable
from kbplanner.passes.wellfounded import POSSIBLE

MAX_VARIANTS = 64
"""A rule with more variants than this is left out, and the program is marked incomplete."""

# No predicate of a user can hold a NUL character.
_REMOVED = "\0removed\0"
_AFFECTED = "\0affected\0"
_BEFORE = "\0before\0"
_FIRST = "\0first\0"

ALL = RelationSchema("\0all", 0, role=Role.DERIVED)


_COUNTED = (Role.BINDINGS, Role.GROUPS)


def removed_schema(schema: RelationSchema) -> RelationSchema:
    """Return the stored relation that holds the removed facts of a stored schema."""
    return RelationSchema(_REMOVED + schema.predicate, schema.arity, schema.positive)


def affected_of(schema: RelationSchema) -> RelationSchema | None:
    """Return the stored schema whose affected or first rows a program relation holds.

    None for others.
    """
    if schema.role is Role.DERIVED:
        for mark in (_AFFECTED, _FIRST):
            if schema.predicate.startswith(mark):
                return RelationSchema(schema.predicate[len(mark) :], schema.arity, schema.positive)
    return None


class Affected:
    """The clauses of the rules plus those that derive affected conclusions.

    `signed` is True if an affected relation is read under negation: then new conclusions may
    appear, and an affected conclusion that does not hold now may not have held before either.
    """

    def __init__(self, clauses: Sequence[Clause], removed: Iterable[RelationSchema]) -> None:
        self.incomplete = False
        removed = set(removed)
        affected = self._reached(clauses, set(removed))
        self.signed = any(
            isinstance(item, ClauseAtom)
            and item.absent
            and not affected.isdisjoint(_depends_on(item))
            for clause in clauses
            if _concludes(clause) and clause.head.schema.stored in affected
            for item in clause.body
        )
        result = list(clauses)
        for schema in sorted(removed, key=str):
            args = tuple(_variables(schema.arity))
            result.append(
                Clause(
                    ClauseAtom(_affected(schema), args), (ClauseAtom(removed_schema(schema), args),)
                )
            )
        for clause in clauses:
            if clause.head.schema.role in _COUNTED:
                self.incomplete = self.incomplete or any(
                    isinstance(item, ClauseAtom) and not affected.isdisjoint(_depends_on(item))
                    for item in clause.body
                )
            elif _concludes(clause, possible=self.signed) and clause.head.schema.stored in affected:
                result.extend(self._variants(clause, affected))
        for schema in sorted(affected, key=str):
            result.append(
                Clause(
                    ClauseAtom(ALL, ()),
                    (ClauseAtom(_affected(schema), (ANONYMOUS,) * schema.arity),),
                )
            )
        self.clauses = result

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
                    isinstance(item, ClauseAtom) and not affected.isdisjoint(_depends_on(item))
                    for item in clause.body
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
                changed = [schema for schema in _depends_on(item) if schema in affected]
                options += [ClauseAtom(_affected(schema), item.args) for schema in changed]
            choices.append(options)
            size *= len(options)
        if size > MAX_VARIANTS:
            self.incomplete = True
            return
        head = ClauseAtom(_affected(clause.head.schema.stored), clause.head.args)
        for body in product(*choices):
            if any(
                isinstance(item, ClauseAtom) and item.schema.predicate.startswith(_AFFECTED)
                for item in body
            ):
                yield Clause(head, body)


def first(clauses: Sequence[Clause], removed: Iterable[RelationSchema]) -> list[Clause]:
    """Return the clauses of the rules plus those that derive conclusions with a removed premise."""
    removed = set(removed)
    result, heads = list(clauses), set()
    for clause in clauses:
        if not _concludes(clause, possible=False):
            continue
        for index, item in enumerate(clause.body):
            if isinstance(item, ClauseAtom) and item.schema.stored in removed:
                # Each other premise either holds now or was removed too.
                others = [
                    [other, ClauseAtom(removed_schema(other.schema.stored), other.args)]
                    if isinstance(other, ClauseAtom) and other.schema.stored in removed
                    else [other]
                    for other in (*clause.body[:index], *clause.body[index + 1 :])
                ]
                head = ClauseAtom(_first(clause.head.schema.stored), clause.head.args)
                heads.add(head.schema)
                out = ClauseAtom(removed_schema(item.schema.stored), item.args)
                result.extend(Clause(head, (out, *body)) for body in product(*others))
    for schema in sorted(heads, key=str):
        result.append(
            Clause(ClauseAtom(ALL, ()), (ClauseAtom(schema, (ANONYMOUS,) * schema.arity),))
        )
    return result


def before(clauses: Sequence[Clause], removed: Iterable[RelationSchema]) -> list[Clause]:
    """Return the clauses over stored and removed facts together, which are the facts before the
    removal.
    """
    removed = set(removed)

    def atom(item: ClauseItem) -> ClauseItem:
        if isinstance(item, ClauseAtom) and item.schema in removed:
            return ClauseAtom(_before(item.schema), item.args, item.absent)
        return item

    result = [
        Clause(clause.head, tuple(atom(item) for item in clause.body), clause.rule)
        for clause in clauses
    ]
    for schema in sorted(removed, key=str):
        args = tuple(_variables(schema.arity))
        for part in (schema, removed_schema(schema)):
            result.append(Clause(ClauseAtom(_before(schema), args), (ClauseAtom(part, args),)))
    return result


def _concludes(clause: Clause, possible: bool = True) -> bool:
    """Return whether a clause of a rule derives conclusions; without `possible` only true ones."""
    head = clause.head.schema
    return bool(clause.rule) and head.role not in _COUNTED and (possible or head.truth != POSSIBLE)


def _depends_on(item: ClauseAtom) -> list[RelationSchema]:
    """Return the stored schemas that an atom depends on; for an undenied atom also its negative."""
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
