"""Propagation of equalities and comparisons of a caller into the rules it calls.

`pair(?x, ?x)` needs the diagonal of `pair` only, and `pair(?x, ?y), ?x < 2` a part of it. Where a
body calls a relation with a repeated variable, the relation gets a restricted version, in whose
clauses the arguments are unified. Comparisons of an argument with a constant go into the version
too if all calls of this version have them, so that no two versions do the same work. Restrictions
go from callers to callees through all relations that are not recursive.

Before:

    query(?x) :- pair(?x, ?x), ?x < 2.
    pair(?x, ?y) :- nat(?x), nat(?y).
    ?- query(?x).

After:

    query/1(?x) :- pair/2{1 == 2, 1 < _}(?x, ?x), ?x < 2.  % rule 1
    query/1(?a0) :- query/1(?a0).
    pair/2{1 == 2, 1 < _}(?x, ?x) :- nat/1(?x), ?x < 2.  % rule 2
    pair/2{1 == 2, 1 < _}(?a0, ?a0) :- pair/2(?a0, ?a0), ?a0 < 2.

`{1 == 2, 1 < _}` marks the version whose arguments are equal and whose first one is below a
constant. Constant arguments need no version: `adorn` binds them. Rules used under absence,
aggregates, best values, recursive relations and relations of plugins keep their general form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kbplanner.ir.program import (
    REWRITES_PER_YIELD,
    Clause,
    ClauseAtom,
    ClauseItem,
    Component,
    Computation,
    Program,
    components,
)
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import Comparison, Term, Variable
from kbplanner.pacing import YieldNow, go_on, paced

Version = tuple[RelationSchema, tuple[Comparison, ...]]
"""A relation and the equalities of its columns; a column is a variable named by its number, from
1.
"""


MAX_VERSIONS = 16
"""Versions of one relation; a relation that is called in more ways keeps its general form. Each
version of a caller can call versions of its own, so that their number could double with each
relation of a chain.
"""


def restrict(program: Program, yield_now: YieldNow = go_on) -> Program:
    """Replace relations by restricted versions of them where calls allow it; the goal's own
    equalities count as a call. `yield_now` is called about once a millisecond.
    """
    parts = components(program.clauses, yield_now)
    heads = program.heads()
    general = _general(program, parts)
    order = {schema: number for number, schema in enumerate(heads)}
    goal = replace(program.goal, restrictions=())
    goal_version = goal, () if goal in general else program.goal.restrictions
    common = _Versions()
    common[goal_version] = []
    restricted_clauses: list[tuple[Version, Clause, list[Version | None]]] = []
    # Callers before callees: every call of a version is known before its clauses are made.
    for part in paced(reversed(parts), yield_now, 1):
        relations = sorted(part.relations, key=order.__getitem__)
        common.widen(relations)
        called = [
            (version, clause)
            for schema in relations
            for version in common.of_schema[schema]
            for clause in heads[schema]
        ]
        for version, clause in paced(called, yield_now, REWRITES_PER_YIELD):
            restricted = _restricted(clause, (*version[1], *common[version]))
            if restricted is not None:
                restricted_clauses.append(
                    (version, restricted, _calls(restricted, heads, general, common))
                )
    if not any(version[1] or common[version] for version in common):
        return replace(program, goal=goal)
    names = common.names()
    restricted_clauses.sort(key=lambda entry: order[entry[0][0]])
    clauses = [
        _renamed(clause, names[version], versions, names)
        for version, clause, versions in paced(restricted_clauses, yield_now, REWRITES_PER_YIELD)
    ]
    return replace(program, clauses=tuple(dict.fromkeys(clauses)), goal=names[goal_version])


def _general(program: Program, parts: Iterable[Component]) -> set[RelationSchema]:
    """Return the relations that keep their general form."""
    general = {schema for part in parts if part.recursive for schema in part.relations}
    general.update(
        clause.head.schema
        for clause in program.clauses
        if clause.aggregates or clause.head.schema.role in BEST
    )
    general.update(program.external)
    return general


class _Versions(dict[Version, list[Comparison]]):
    """The versions that are called, with the comparisons that all calls have in common; also by
    relation, in the order of their first call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.of_schema: defaultdict[RelationSchema, list[Version]] = defaultdict(list)
        self._widened: set[RelationSchema] = set()

    def __setitem__(self, version: Version, comparisons: list[Comparison]) -> None:
        if version not in self:
            self.of_schema[version[0]].append(version)
        super().__setitem__(version, comparisons)

    def widen(self, relations: Sequence[RelationSchema]) -> None:
        """Give all relations of a component their general version if one of them has it, and no
        other version to a relation with too many.
        """
        if len(relations) > 1 and any((schema, ()) in self for schema in relations):
            for schema in relations:
                self[schema, ()] = []
        for schema in relations:
            if len(self.of_schema[schema]) > MAX_VERSIONS:
                self._widened.add(schema)
                self[schema, ()] = []
                self.of_schema[schema] = [(schema, ())]

    def names(self) -> dict[Version, RelationSchema]:
        """Return the restricted relation of each version."""
        names = {}
        for version, comparisons in self.items():
            schema, equalities = version
            is_general = schema in self._widened
            restrictions = () if is_general else (*equalities, *comparisons)
            names[version] = replace(schema, restrictions=restrictions)
        return names


def _calls(
    clause: Clause,
    heads: Mapping[RelationSchema, list[Clause]],
    general: set[RelationSchema],
    common: dict[Version, list[Comparison]],
) -> list[Version | None]:
    """Return the version that each item of the body calls (None for other items); notes the
    comparisons of each call.
    """
    versions: list[Version | None] = []
    for item in clause.body:
        if not isinstance(item, ClauseAtom) or item.schema not in heads:
            versions.append(None)
            continue
        equalities: tuple[Comparison, ...] = ()
        comparisons: list[Comparison] = []
        if item.schema.role is Role.DERIVED and not item.absent and item.schema not in general:
            equalities = _equalities(item)
            comparisons = _comparisons(item, clause)
        version = item.schema, equalities
        before = common.get(version)
        common[version] = (
            comparisons if before is None else [item for item in before if item in comparisons]
        )
        versions.append(version)
    return versions


def _equalities(atom: ClauseAtom) -> tuple[Comparison, ...]:
    """Return an equality for each argument that repeats the variable of an earlier one."""
    first: dict[Variable, int] = {}
    equalities = []
    for index, arg in enumerate(atom.args, 1):
        if (
            isinstance(arg, Variable)
            and not arg.anonymous
            and first.setdefault(arg, index) != index
        ):
            equalities.append(Comparison("==", Variable(str(first[arg])), Variable(str(index))))
    return tuple(equalities)


def _comparisons(atom: ClauseAtom, clause: Clause) -> list[Comparison]:
    """Return the comparisons of an atom's arguments with constants in a body, by columns."""
    columns: dict[Variable, Variable] = {}
    for index, arg in enumerate(atom.args, 1):
        if isinstance(arg, Variable) and not arg.anonymous:
            columns.setdefault(arg, Variable(str(index)))
    comparisons = []
    for item in clause.body:
        if isinstance(item, Comparison):
            sides = item.left, item.right
            if any(isinstance(side, str) for side in sides) and any(
                side in columns for side in sides
            ):
                comparisons.append(_replaced_in_comparison(item, columns))
    return list(dict.fromkeys(comparisons))


def _restricted(clause: Clause, restrictions: tuple[Comparison, ...]) -> Clause | None:
    """Return the clause for rows that meet the restrictions of its head; None if there can be
    none.
    """
    for restriction in restrictions:
        args = {Variable(str(index)): arg for index, arg in enumerate(clause.head.args, 1)}
        test = _replaced_in_comparison(restriction, args)
        if (
            restriction.op != "=="
            or restriction.negated
            or not isinstance(restriction.right, Variable)
        ):
            clause = replace(clause, body=(*clause.body, test))
            continue
        left, right = test.left, test.right
        if left == right:
            continue
        if isinstance(left, str) and isinstance(right, str):
            return None
        computed = {item.target for item in clause.body if isinstance(item, Computation)}
        if left in computed or right in computed:
            clause = replace(clause, body=(*clause.body, test))
        elif isinstance(right, Variable) and isinstance(left, (str, Variable)):
            clause = _substituted(clause, {right: left})
        elif isinstance(left, Variable) and isinstance(right, str):
            clause = _substituted(clause, {left: right})
    return clause


def _substituted(clause: Clause, values: Mapping[Variable, Term]) -> Clause:
    head = replace(clause.head, args=_replaced(clause.head.args, values))
    body: list[ClauseItem] = []
    for item in clause.body:
        if isinstance(item, ClauseAtom):
            item = replace(item, args=_replaced(item.args, values))
        elif isinstance(item, Comparison):
            item = _replaced_in_comparison(item, values)
        elif isinstance(item, Computation):
            item = replace(item, args=_replaced(item.args, values))
        body.append(item)
    return replace(clause, head=head, body=tuple(dict.fromkeys(body)))


def _replaced(args: tuple[Term, ...], values: Mapping[Variable, Term]) -> tuple[Term, ...]:
    return tuple(values.get(arg, arg) if isinstance(arg, Variable) else arg for arg in args)


def _replaced_in_comparison(item: Comparison, values: Mapping[Variable, Term]) -> Comparison:
    left = values.get(item.left, item.left) if isinstance(item.left, Variable) else item.left
    right = values.get(item.right, item.right) if isinstance(item.right, Variable) else item.right
    return replace(item, left=left, right=right)


def _renamed(
    clause: Clause,
    head: RelationSchema,
    versions: list[Version | None],
    names: Mapping[Version, RelationSchema],
) -> Clause:
    body = [
        replace(item, schema=names[version])
        if version is not None and isinstance(item, ClauseAtom)
        else item
        for item, version in zip(clause.body, versions, strict=True)
    ]
    return replace(clause, head=replace(clause.head, schema=head), body=tuple(body))
