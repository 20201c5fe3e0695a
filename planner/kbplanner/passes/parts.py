"""Splitting of a clause into parts, whose instances add up instead of multiplying.

The clause of the example has as many instances as `a` has rows times those of `b`, but a proof
needs one row of each, chosen independently.

Before:

    r(?x) :- i(?x), a(?u), b(?v).
    ?- r(?x).

After:

    r/1(?x) :- i/1(?x), part 0/0(), part 1/0().  % rule 1
    guard 0/0() :- r/1(?x).  % rule 1
    guard 1/0() :- r/1(?x).  % rule 1
    part 1/0() :- guard 1/0(), b/1(?v).  % rule 1
    part 0/0() :- guard 0/0(), a/1(?u).  % rule 1

A part is a group of body items that are connected by variables that occur nowhere else. Its head
has the variables it shares with the other items, and its guard the useful values of these: those
that pass the tests which the head and the root decide. Where
all items are connected, the variables of one atom, the root, count as shared, so that a body shaped
like a tree is split into parts of one atom each (Yannakakis, "Algorithms for acyclic database
schemes", 1981).

Only atoms for which the caller's predicate is true distinguish instances. Items that are connected
with none of them need no columns, because it only matters that they hold for some values. They are
the `Unseen`, whose values `evaluate/witness.py` searches for later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from kbplanner.ir.program import Clause, ClauseAtom, ClauseItem
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Variable

Distinguishes = Callable[[ClauseAtom], bool]
"""Predicate: the rows of an atom must be distinguished."""


@dataclass(frozen=True, slots=True, eq=False)
class Unseen:
    """Items of a body that hold for some values of the variables `outputs`, for values of
    `inputs`.
    """

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    items: tuple[ClauseItem, ...]


@dataclass(frozen=True, slots=True)
class SplitClause:
    """A clause, or a part of one, with the `columns` that distinguish its instances, and the
    clauses of its parts' guards.
    """

    clause: Clause
    columns: tuple[Variable, ...]
    unseen: tuple[Unseen, ...]
    guards: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Items connected by variables that are not shared, and all their variables."""

    items: tuple[ClauseItem, ...]
    variables: tuple[Variable, ...]

    def shared(self, others: Collection[Variable]) -> tuple[Variable, ...]:
        return tuple(variable for variable in self.variables if variable in others)


def split(clause: Clause, names: Iterator[str], distinguishes: Distinguishes) -> list[SplitClause]:
    """Return the levels of a clause, the clause itself first; `names` yields names for parts."""
    levels: list[SplitClause] = []
    todo: list[tuple[ClauseAtom, ClauseAtom | None, tuple[ClauseItem, ...]]] = [
        (clause.head, None, clause.body)
    ]
    while todo:
        head, guard, body = todo.pop()
        columns = dict.fromkeys(_named(head))
        spine = _spine(body, columns, distinguishes)
        useful = (guard or head, *spine, *_tests(body, (head, *spine)))
        parts: list[ClauseAtom] = []
        guards: list[Clause] = []
        unseen: list[Unseen] = []
        moved: set[int] = set()
        for group in _groups(body, columns):
            shared = group.shared(columns)
            if not _is_distinguished(group, columns, distinguishes):
                unshared = tuple(
                    variable for variable in group.variables if variable not in columns
                )
                unseen.append(Unseen(shared, unshared, group.items))
                continue
            name = next(names)
            part = ClauseAtom(RelationSchema(name, len(shared), role=Role.PART), shared)
            asked = ClauseAtom(RelationSchema(name, len(shared), role=Role.GUARD), shared)
            parts.append(part)
            guards.append(Clause(asked, useful, clause.rule))
            moved.update(map(id, group.items))
            todo.append((part, asked, group.items))
        remaining = (item for item in body if id(item) not in moved)
        own = Clause(head, (*([guard] if guard else []), *remaining, *parts), clause.rule)
        levels.append(SplitClause(own, tuple(columns), tuple(unseen), tuple(guards)))
    return levels


def undivided(clause: Clause, distinguishes: Distinguishes) -> SplitClause:
    """Return a clause as one level, with a column for each variable of its head and of the atoms
    that distinguish instances.
    """
    atoms = (atom for atom in clause.all_atoms() if distinguishes(atom))
    columns = dict.fromkeys(v for atom in (clause.head, *atoms) for v in _named(atom))
    unseen = (
        Unseen(
            group.shared(columns),
            tuple(v for v in group.variables if v not in columns),
            group.items,
        )
        for group in _groups(clause.body, columns)
    )
    return SplitClause(clause, tuple(columns), tuple(unseen), ())


def _spine(
    body: Sequence[ClauseItem], columns: dict[Variable, None], distinguishes: Distinguishes
) -> list[ClauseItem]:
    """Return the roots of a body and add their variables to the columns, until that splits off a
    part.
    """
    spine: list[ClauseItem] = []
    while True:
        distinguished = [
            group
            for group in _groups(body, columns)
            if _is_distinguished(group, columns, distinguishes)
        ]
        if len(distinguished) != 1 or len(distinguished[0].shared(columns)) < len(columns):
            return spine
        group = distinguished[0]
        atoms = [item for item in group.items if isinstance(item, ClauseAtom) and not item.absent]
        if not atoms:
            spine.extend(group.items)
            columns.update(dict.fromkeys(group.variables))
            continue
        root = max(atoms, key=lambda atom: len(columns.keys() & set(_named(atom))))
        others = {variable for item in group.items if item is not root for variable in _named(item)}
        spine.append(root)
        columns.update(
            dict.fromkeys(
                variable for variable in _named(root) if distinguishes(root) or variable in others
            )
        )


def _tests(body: Sequence[ClauseItem], bound_by: Sequence[ClauseItem]) -> list[ClauseItem]:
    """Return the comparisons and computations that the values of other items decide."""
    bound = {variable for item in bound_by for variable in _named(item)}
    return [
        item
        for item in body
        if not isinstance(item, ClauseAtom)
        and item not in bound_by
        and bound.issuperset(_named(item))
    ]


def _groups(body: Sequence[ClauseItem], shared: Collection[Variable]) -> list[_Group]:
    """Return the items with variables that are not shared, grouped by such variables in common."""
    groups: list[tuple[set[Variable], list[int]]] = []
    for index, item in enumerate(body):
        own = {variable for variable in _named(item) if variable not in shared}
        if not own:
            continue
        indexes = [index]
        disjoint = []
        for other in groups:
            if own.isdisjoint(other[0]):
                disjoint.append(other)
            else:
                own |= other[0]
                indexes += other[1]
        groups = [*disjoint, (own, indexes)]
    ordered = sorted(sorted(indexes) for _, indexes in groups)
    return [_group([body[index] for index in indexes]) for indexes in ordered]


def _group(items: Sequence[ClauseItem]) -> _Group:
    return _Group(
        tuple(items), tuple(dict.fromkeys(variable for item in items for variable in _named(item)))
    )


def _is_distinguished(
    group: _Group, columns: Collection[Variable], distinguishes: Distinguishes
) -> bool:
    atoms = (item for item in group.items if isinstance(item, ClauseAtom) and distinguishes(item))
    return any(variable not in columns for atom in atoms for variable in _named(atom))


def _named(item: ClauseItem) -> Iterator[Variable]:
    return (variable for variable in item.variables() if not variable.anonymous)
