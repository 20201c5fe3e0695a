"""Programs about changed facts: the conclusions of one component that they may change.

A *component* is a set of relations that depend on each other. Components are evaluated in an order
in which each comes after those it depends on, so the changes of everything below a component are
known exactly when its own are searched: the rows that no longer hold, and the rows that hold only
now. Both together are the *changed* rows of a relation.

**Candidates** of a component: for each clause and each non-empty subset of the body atoms whose
relations have changed rows there is a clause that reads this subset from the changed rows and the
other atoms from the current state. Every changed conclusion has such an instance: take the instance
with the smallest derivation that derives it, before or now; each of its premises is either the same
on both sides or has changed itself.

The changed rows of the component's own relations are read as well. They are empty at first, and
grow with the candidates that turn out to have changed. With `closed` the candidates themselves are
read instead, so that a single run derives everything that may follow from the changed rows.

**Before**: the same clauses over the facts as they were before the change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from kbplanner.ir.program import Clause, ClauseAtom, ClauseItem, by_head, components
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import ANONYMOUS
from kbplanner.ir.terms import numbered_variables as variables

MAX_VARIANTS = 64
"""A clause with more variants than this is not followed: all conclusions are compared instead."""

# No predicate of a user can hold a NUL character.
_CHANGED = "\0changed\0"
_CANDIDATE = "\0candidate\0"
_BEFORE = "\0before\0"
_KEPT = "\0kept\0"

ALL = RelationSchema("\0all", 0, role=Role.DERIVED)
"""The goal of a program of candidates: it depends on every relation of candidates."""

_COUNTED = (Role.BINDINGS, Role.GROUPS, *BEST)


@dataclass(frozen=True, slots=True, eq=False)
class RulesComponent:
    """A component of the dependency graph, its clauses, and the relations that they read.

    `aggregates` is True if a changed row below it can change a group, or its best value, in ways
    that instances of clauses do not show.
    """

    relations: frozenset[RelationSchema]
    is_recursive: bool
    clauses: tuple[Clause, ...]
    reads: frozenset[RelationSchema]
    aggregates: bool


def components_of(clauses: Sequence[Clause]) -> list[RulesComponent]:
    """Return the components of clauses, each after those it depends on."""
    heads = by_head(clauses)
    result = []
    for part in components(clauses):
        own = tuple(clause for schema in part.relations for clause in heads[schema])
        reads = frozenset(atom.schema for clause in own for atom in clause.all_atoms())
        aggregates = any(schema.role in _COUNTED for schema in part.relations)
        result.append(RulesComponent(part.relations, part.recursive, own, reads, aggregates))
    return result


def changed_rows(schema: RelationSchema) -> RelationSchema:
    """Return the stored relation that holds the changed rows of a relation."""
    return RelationSchema(_CHANGED + _name(schema), schema.arity, schema.positive)


def candidate_rows(schema: RelationSchema) -> RelationSchema:
    """Return the relation of a program that holds the candidates of a relation."""
    return RelationSchema(_CANDIDATE + _name(schema), schema.arity, schema.positive, Role.DERIVED)


def kept_rows(schema: RelationSchema) -> RelationSchema:
    """Return the relation that holds the kept rows of a relation, as rules over them read it."""
    return RelationSchema(_KEPT + _name(schema), schema.arity, schema.positive)


def candidates(
    clauses: Iterable[Clause],
    component: RulesComponent,
    changed: Collection[RelationSchema],
    *,
    closed: bool = False,
) -> list[Clause] | None:
    """Return `clauses` plus those that derive the candidates of a component and `ALL`.

    `changed` are the relations below the component that have changed rows. None if a clause has
    more than MAX_VARIANTS variants.
    """
    result = list(clauses)
    heads: set[RelationSchema] = set()
    for clause in component.clauses:
        bodies = _bodies(clause, component, changed, closed)
        if bodies is None:
            return None
        head = ClauseAtom(candidate_rows(clause.head.schema), clause.head.args)
        for body in bodies:
            heads.add(clause.head.schema)
            result.append(Clause(head, body))
    for schema in sorted(component.relations, key=str):
        if closed:
            args = variables(schema.arity)
            heads.add(schema)
            source = ClauseAtom(changed_rows(schema), args)
            result.append(Clause(ClauseAtom(candidate_rows(schema), args), (source,)))
        if schema in heads:
            body = (ClauseAtom(candidate_rows(schema), (ANONYMOUS,) * schema.arity),)
            result.append(Clause(ClauseAtom(ALL, ()), body))
    return result


def _bodies(
    clause: Clause,
    component: RulesComponent,
    changed: Collection[RelationSchema],
    closed: bool,
) -> Iterator[tuple[ClauseItem, ...]] | None:
    choices: list[list[ClauseItem]] = []
    size = 1
    for item in clause.body:
        options = [item]
        if isinstance(item, ClauseAtom):
            if item.schema in component.relations:
                own = candidate_rows if closed else changed_rows
                options.append(ClauseAtom(own(item.schema), item.args))
            elif item.schema in changed:
                options.append(ClauseAtom(changed_rows(item.schema), item.args))
        choices.append(options)
        size *= len(options)
    if size > MAX_VARIANTS:
        return None
    own_rows = {candidate_rows(schema) for schema in component.relations} if closed else None
    return (body for body in product(*choices) if _reads_changes(clause.body, body, own_rows))


def _reads_changes(
    original: Sequence[ClauseItem],
    body: Sequence[ClauseItem],
    own_rows: Collection[RelationSchema] | None,
) -> bool:
    """Return True if a body reads changed rows; with `own_rows`, if it reads one of these."""
    return any(
        item is not source
        and isinstance(item, ClauseAtom)
        and (own_rows is None or item.schema in own_rows)
        for item, source in zip(body, original, strict=True)
    )


def before(
    clauses: Sequence[Clause],
    removed: Collection[RelationSchema],
    added: Collection[RelationSchema] = (),
) -> list[Clause]:
    """Return the clauses over the facts before the change.

    Of a relation that only lost rows these are the stored and the changed rows together. Of one
    that got rows they are the rows that are either stored or changed, but not both.
    """
    touched = {*removed, *added}

    def atom(item: ClauseItem) -> ClauseItem:
        if isinstance(item, ClauseAtom) and item.schema in touched:
            return ClauseAtom(_before(item.schema), item.args, item.absent)
        return item

    result = [
        Clause(clause.head, tuple(atom(item) for item in clause.body), clause.rule)
        for clause in clauses
    ]
    for schema in sorted(touched, key=str):
        args = variables(schema.arity)
        head = ClauseAtom(_before(schema), args)
        for source, other in (
            (schema, changed_rows(schema)),
            (changed_rows(schema), schema),
        ):
            body = [ClauseAtom(source, args)]
            if schema in added:
                body.append(ClauseAtom(other, args, absent=True))
            result.append(Clause(head, tuple(body)))
    return result


def _name(schema: RelationSchema) -> str:
    """Return a name that differs between relations of the same predicate and sign."""
    return "\0".join((schema.role.value, schema.truth, schema.predicate))


def _before(schema: RelationSchema) -> RelationSchema:
    return RelationSchema(_BEFORE + schema.predicate, schema.arity, schema.positive, Role.DERIVED)
