"""Early projection: a variable that only two atoms of a recursive rule share is removed by a join
of its own.

The rule of the example has a step for each pair of children of each pair of parents. With the join
of its first two atoms as a relation, it has a step for each child of a pair, and one more for each
pair of a child and the other parent: n·m steps instead of n·m². Each rule then joins two atoms,
which the engine evaluates by whole rows of bits where relations are dense.

Before:

    sg(?x, ?y) :- flat(?x, ?y).
    sg(?x, ?y) :- up(?x, ?a), sg(?a, ?b), down(?b, ?y).
    ?- sg(?x, ?y).

After:

    sg/2[ff](?x, ?y) :- demand sg/2[ff](), flat/2(?x, ?y).  % rule 1
    join sg#1/2(?x, ?b) :- demand sg/2[ff](), up/2(?x, ?a), sg/2[ff](?a, ?b).  % rule 2
    sg/2[ff](?x, ?y) :- join sg#1/2(?x, ?b), down/2(?b, ?y).  % rule 2
    sg/2[ff](?a0, ?a1) :- demand sg/2[ff](), sg/2(?a0, ?a1).

Atoms of both variables of the head are joined last: they intersect rows of bits. Rules of any other
form, such as those that read three columns, stay as they are beside those that are split.

A component is left as it is where that does not pay: where the relations have too few or too many
values to be evaluated by rows of bits, or where the lookups of the atoms return about one row each
and no rule joins relations of the component alone. Goals with bound arguments derive fewer pairs;
there the pass asks for more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count

from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    Clause,
    ClauseAtom,
    ClauseItem,
    Component,
    Program,
    components,
)
from kbplanner.ir.schema import REPLACING, RelationSchema, Role
from kbplanner.ir.terms import Comparison, Variable
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.passes.order import DERIVED_ROWS, Statistics, is_test, rows_per_lookup

MIN_VALUES = 64
"""With fewer values of a column, a relation has too few rows for rows of bits."""

MAX_VALUES = 16_384
"""With more values, the engine does not keep rows of bits (MAX_SIZE in csrc/dense/dense.c)."""

MAX_RELATIONS = 8
"""Relations of a component that the engine evaluates by rows of bits (MAX_RELATIONS in
csrc/dense/dense.c).
"""

MIN_FAN_OUT = 2.0
"""Rows that the lookups of the atoms of a rule return together, at least."""

MIN_SAVING = 2.0
"""Steps of a rule for each step of the two joins, at least, where only some pairs are demanded."""


def project(program: Program, statistics: Statistics, yield_now: YieldNow = go_on) -> Program:
    """Split the rules of recursive components into joins of two atoms where that pays.

    `yield_now` is called about once a millisecond.
    """
    names = count(1)
    parts = components(program.clauses, yield_now)
    replaced: dict[Clause, list[Clause]] = {}
    values = _Values(program, parts, statistics, yield_now)
    part_of = {
        schema: part
        for part in parts
        if part.recursive and not any(schema.role in REPLACING for schema in part.relations)
        for schema in part.relations
    }
    recursive: dict[Component, list[Clause]] = {}
    for clause in paced(program.clauses, yield_now, CLAUSES_PER_YIELD):
        part = part_of.get(clause.head.schema)
        if part is not None and _recurs(clause, part):
            recursive.setdefault(part, []).append(clause)
    for part in paced(parts, yield_now, 1):
        if part in recursive:
            replaced.update(_split_component(recursive[part], part, values, names, yield_now))
    if not replaced:
        return program
    clauses = (
        new
        for clause in paced(program.clauses, yield_now)
        for new in replaced.get(clause, [clause])
    )
    return replace(program, clauses=tuple(clauses))


def joins_pairs(program: Program, yield_now: YieldNow = go_on) -> bool:
    """Return True if the recursion that concludes the goal's relation consists of joins of two
    atoms with two variables each.

    `yield_now` is called about once a millisecond.
    """
    part = _recursion_of_goal(program, yield_now)
    return (
        part is not None
        and all(relation.arity == 2 for relation in part.relations)
        and all(
            not _is_long(clause) and _is_pairwise(clause, part.relations)
            for clause in _recursive_clauses(program, part, yield_now)
        )
    )


def joins_some_pairs(program: Program, yield_now: YieldNow = go_on) -> bool:
    """Return True if a rule of that recursion is such a join; the engine then evaluates this rule
    by rows of bits, and the others row by row.

    `yield_now` is called about once a millisecond.
    """
    part = _recursion_of_goal(program, yield_now)
    return part is not None and any(
        len(_chain(clause)) == 2 and not _is_long(clause) and _is_pairwise(clause, part.relations)
        for clause in _recursive_clauses(program, part, yield_now)
    )


def _recursion_of_goal(program: Program, yield_now: YieldNow) -> Component | None:
    """Return the component of the goal's relation if it is recursive."""
    parts = (
        part for part in components(program.clauses, yield_now) if program.goal in part.relations
    )
    part = next(parts, None)
    return part if part is not None and part.recursive else None


@dataclass(frozen=True, slots=True)
class _Join:
    """A join split off a clause: the fan-outs of the atom it adds to a recursive one, and of the
    next.
    """

    clauses: list[Clause]
    fan_outs: tuple[float, ...]
    is_demanded: bool

    @property
    def pays(self) -> bool:
        """True if two joins take fewer steps than one of all atoms."""
        product, total = 1.0, 0.0
        for fan_out in self.fan_outs:
            product *= fan_out
            total += fan_out
        return product >= (MIN_SAVING * (total + 2) if self.is_demanded else MIN_FAN_OUT)


def _split_component(
    clauses: Sequence[Clause],
    part: Component,
    values_of: _Values,
    names: Iterator[int],
    yield_now: YieldNow,
) -> dict[Clause, list[Clause]]:
    """Return those of the recursive clauses of a component that are split, and into what; none if
    that does not pay.
    """
    own = [
        clause
        for clause in paced(clauses, yield_now, REWRITES_PER_YIELD)
        if _is_pairwise(clause, part.relations)
    ]
    long = [clause for clause in own if _is_long(clause)]
    if not long:
        return {}
    values = values_of(part)
    if not MIN_VALUES <= values <= MAX_VALUES:
        return {}
    splits: dict[Clause, list[Clause]] = {}
    pays = any(_is_non_linear(clause, part.relations) for clause in own)
    for clause in paced(long, yield_now, 1):
        split = _split(clause, part.relations, values_of.statistics, values, names)
        if split is None:
            continue
        splits[clause] = split.clauses
        pays = pays or split.pays
    relations = sum(relation.arity == 2 for relation in part.relations)
    relations += sum(len(split) - 1 for split in splits.values())
    return splits if pays and relations <= MAX_RELATIONS else {}


def _is_non_linear(clause: Clause, growing: Collection[RelationSchema]) -> bool:
    """Return True if a clause joins relations of its component alone: their rows multiply."""
    binary = _binary(clause)
    return len(binary) > 1 and all(atom.schema in growing for atom in binary)


def _recursive_clauses(program: Program, part: Component, yield_now: YieldNow) -> Iterator[Clause]:
    """Yield the clauses that conclude a relation of a component from one of its relations."""
    for clause in paced(program.clauses, yield_now, CLAUSES_PER_YIELD):
        if clause.head.schema in part.relations and _recurs(clause, part):
            yield clause


def _recurs(clause: Clause, part: Component) -> bool:
    """Return True if a body reads a relation of a component."""
    return any(atom.schema in part.relations for atom in clause.all_atoms())


def _binary(clause: Clause) -> list[ClauseAtom]:
    """Return the atoms of a body that relate two variables."""
    return [atom for atom in clause.atoms() if len(set(atom.variables())) > 1]


def _chain(clause: Clause) -> list[ClauseAtom]:
    """Return the atoms that lead from one variable of the head to the other: those that do not
    relate both.
    """
    head = set(clause.head.variables())
    return [atom for atom in _binary(clause) if set(atom.variables()) != head]


def _is_long(clause: Clause) -> bool:
    """Return True if a clause joins more than two atoms, or two and tests their ends together."""
    count = len(_chain(clause))
    return count > 2 or (count == 2 and _tests_ends(clause))


def _tests_ends(clause: Clause) -> bool:
    """Return True if an item relates or tests both variables of the head."""
    return len(_chain(clause)) < len(_binary(clause)) or any(
        is_test(item) and len(set(item.variables())) > 1 for item in clause.body
    )


def _is_pairwise(clause: Clause, growing: Collection[RelationSchema]) -> bool:
    """Return True if a clause relates two variables by atoms of two, and tests single variables, or
    both of the head.
    """
    binary, chain = _binary(clause), _chain(clause)
    bound = {variable for atom in binary for variable in atom.variables()}
    head = set(clause.head.variables())
    return (
        len(head) == 2
        and head <= bound
        and all(atom.schema.arity == 2 for atom in binary)
        and all(
            _is_test(item, growing, head) and bound.issuperset(item.variables())
            for item in clause.body
            if not any(item is atom for atom in binary)
        )
        and len(chain) != 1
        and (len(chain) != 2 or _is_join(chain[0], chain[1], head))
    )


def _is_join(a: ClauseAtom, b: ClauseAtom, head: Collection[Variable]) -> bool:
    """Return True if two atoms share the one variable that the head does not have."""
    first, second = set(a.variables()), set(b.variables())
    return len(first & second) == 1 and (first ^ second) == set(head)


def _is_test(
    item: ClauseItem, growing: Collection[RelationSchema], head: Collection[Variable]
) -> bool:
    """Return True if an item tests one variable, or none, by relations that do not change, or tests
    both variables of the head for an absence or by a comparison.
    """
    variables = set(item.variables())
    if len(variables) > 1 and (not is_test(item) or variables != head):
        return False
    if isinstance(item, ClauseAtom):
        return (
            item.schema not in growing
            and item.schema.arity <= 2
            and not any(isinstance(arg, Variable) and arg.anonymous for arg in item.args)
        )
    return (
        isinstance(item, Comparison)
        and item.op in COMPARISONS
        and all(isinstance(side, (str, Variable)) for side in (item.left, item.right))
    )


class _Values:
    """Estimates of the numbers of values in the columns of the relations of components."""

    def __init__(
        self,
        program: Program,
        parts: Sequence[Component],
        statistics: Statistics,
        yield_now: YieldNow,
    ) -> None:
        self.statistics = statistics
        self._heads = program.heads()
        self._parts = parts
        self._yield_now = yield_now
        self._stored: dict[RelationSchema, int] = {}
        self._below: dict[RelationSchema, int] = {}

    def __call__(self, part: Component) -> float:
        """Estimate the values of a component: from the stored pairs that its rules read, or else
        from all stored relations it depends on.
        """
        read = {atom.schema for clause in self._clauses(part) for atom in clause.atoms()}
        pairs = [schema for schema in read if schema.role is Role.STORED and schema.arity == 2]
        most = max(map(self._of_stored, pairs), default=0)
        if not most:
            if not self._below:
                self._measure()
            most = max(self._below[schema] for schema in part.relations)
        return float(most) if most else math.sqrt(DERIVED_ROWS)

    def _clauses(self, part: Component) -> Iterator[Clause]:
        own = (clause for schema in part.relations for clause in self._heads[schema])
        return paced(own, self._yield_now, CLAUSES_PER_YIELD)

    def _of_stored(self, schema: RelationSchema) -> int:
        """Return the greatest number of values in a column of a stored relation."""
        if schema not in self._stored:
            columns = range(schema.arity)
            counts = (self.statistics.distinct(schema, [index]) for index in columns)
            self._stored[schema] = max(counts, default=0)
        return self._stored[schema]

    def _measure(self) -> None:
        """Find the greatest number of values below each relation; the components come after those
        they depend on.
        """
        for part in paced(self._parts, self._yield_now, REWRITES_PER_YIELD):
            most = 0
            for clause in self._clauses(part):
                for atom in clause.all_atoms():
                    if atom.schema.role is Role.STORED:
                        most = max(most, self._of_stored(atom.schema))
                    else:
                        most = max(most, self._below.get(atom.schema, 0))
            self._below.update(dict.fromkeys(part.relations, most))


def _split(
    clause: Clause,
    growing: Collection[RelationSchema],
    statistics: Statistics,
    values: float,
    names: Iterator[int],
) -> _Join | None:
    """Split joins off a clause until two atoms are left, or only atoms of both variables of the
    head where these are tested together; None if no two atoms can be joined.
    """
    known = set(growing)
    joins: list[Clause] = []
    fan_outs: list[float] = []
    is_demanded = any(atom.schema.role is Role.DEMAND and atom.args for atom in clause.atoms())
    left = 0 if _tests_ends(clause) else 2
    while len(chain := _chain(clause)) > left:
        if len(joins) > MAX_RELATIONS:  # the component stays as it is
            return _Join([*joins, clause], tuple(fan_outs), is_demanded)
        head = set(clause.head.variables())
        binary = _binary(clause)
        pairs = [
            (a, b)
            for a, b in combinations(chain, 2)
            if (a.schema in known or b.schema in known) and _leaves_two(a, b, binary, head)
        ]
        if not pairs:
            return None
        first, second = min(pairs, key=lambda pair: _added_fan_out(pair, known, statistics, values))
        fan_outs.append(_added_fan_out((first, second), known, statistics, values))
        join = RelationSchema(f"{clause.head.schema.predicate}#{next(names)}", 2, role=Role.JOIN)
        known.add(join)
        joined, clause = _split_off(clause, first, second, join)
        joins.append(joined)
    if left == 2:
        if len(_chain(clause)) != left:
            return None
        last, other = _chain(clause)
        if not _is_join(last, other, set(clause.head.variables())):
            return None
        fan_outs.append(_added_fan_out((last, other), known, statistics, values))
    return _Join([*joins, clause], tuple(fan_outs), is_demanded)


def _split_off(
    clause: Clause, first: ClauseAtom, second: ClauseAtom, join: RelationSchema
) -> tuple[Clause, Clause]:
    """Return a clause that joins two atoms into the relation `join`, and the rest of the clause."""
    inside = {*first.variables(), *second.variables()}
    ends = set(first.variables()) ^ set(second.variables())
    columns = tuple(v for v in (*first.variables(), *second.variables()) if v in ends)
    joined = ClauseAtom(join, columns)
    moved = [
        item
        for item in clause.body
        if item is first
        or item is second
        or (len(set(item.variables())) <= 1 and inside.issuperset(item.variables()))
    ]
    rest = [item for item in clause.body if not any(item is other for other in moved)]
    return (
        Clause(joined, tuple(moved), clause.rule),
        Clause(clause.head, (joined, *rest), clause.rule),
    )


def _leaves_two(
    a: ClauseAtom, b: ClauseAtom, binary: Sequence[ClauseAtom], head: Collection[Variable]
) -> bool:
    """Return True if the join of two atoms can drop the variable they share, and needs both
    others.
    """
    first, second = set(a.variables()), set(b.variables())
    needed = {v for atom in binary if atom is not a and atom is not b for v in atom.variables()}
    needed.update(head)
    shared = first & second
    return len(shared) == 1 and shared.isdisjoint(needed) and (first ^ second) <= needed


def _added_fan_out(
    pair: tuple[ClauseAtom, ClauseAtom],
    growing: Collection[RelationSchema],
    statistics: Statistics,
    values: float,
) -> float:
    """Estimate the rows of one lookup in the atom that a recursive atom is joined with."""
    first, second = pair
    shared = set(first.variables()) & set(second.variables())
    atom = second if first.schema in growing else first
    if atom.schema in growing:
        return values
    columns = [index for index, arg in enumerate(atom.args) if arg in shared]
    return rows_per_lookup(atom.schema, columns, 1, statistics)
