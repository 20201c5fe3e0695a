"""Strata: a relation is complete before it is used under absence or aggregated.

Before:

    isolated(?x) :- node(?x), not linked(?x).
    linked(?x) :- edge(?x, ?y), open(?y).
    linked(?x) :- edge(?x, ?y), linked(?y).
    ?- isolated(?x).

After:

    stratum 1 (recursive): demand linked/1[b]
    stratum 2 (recursive): linked/1[b]
    stratum 3: isolated/1[f]
"""

from __future__ import annotations

from collections.abc import Sequence

from kbplanner.errors import RecursiveAggregate
from kbplanner.ir.extrema import first_problem
from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    Clause,
    ClauseAtom,
    Component,
    Computation,
    Program,
    aggregate_cycle,
    by_head,
    components,
    dependencies,
)
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.pacing import YieldNow, go_on, paced


def check_stratified(clauses: Sequence[Clause], yield_now: YieldNow = go_on) -> None:
    """Raise RecursiveAggregate, naming the predicates, if clauses recurse through an aggregate."""
    cycle = aggregate_cycle(clauses, yield_now)
    if cycle is not None:
        names = [str(schema.stored) for schema in cycle if schema.role is Role.DERIVED]
        message = f"recursion through an aggregate: the rules of {' and '.join(names)} would count what they conclude"
        raise RecursiveAggregate(message, names)


def rules_computing_recursively(clauses: Sequence[Clause], yield_now: YieldNow = go_on) -> set[int]:
    """Return the numbers of rules in a recursion in which a head takes a value that its body
    computes.
    """
    numbers: set[int] = set()
    heads = by_head(clauses)
    for part in paced(components(clauses, yield_now), yield_now, CLAUSES_PER_YIELD):
        own = [
            clause
            for schema in (part.relations if part.recursive else ())
            for clause in heads[schema]
            if _recurs(clause, part)
        ]
        if any(_computes_head(clause) for clause in own):
            numbers.update(clause.rule for clause in own if clause.rule)
    return numbers


def _recurs(clause: Clause, part: Component) -> bool:
    return any(atom.schema in part.relations for atom in clause.atoms())


def _computes_head(clause: Clause) -> bool:
    targets = {item.target for item in clause.body if isinstance(item, Computation)}
    return not targets.isdisjoint(clause.head.args)


def widen(
    program: Program, source: Program, yield_now: YieldNow = go_on
) -> frozenset[RelationSchema] | None:
    """Return the relations to compute in full, whose demand would be recursive through absence, or
    would use a best value that can still improve; None without any.

    `program` is the result of the magic pass on `source`, whose relations are not adorned yet. The
    dependencies of a full relation are full too, so that none of them waits for demand. `yield_now`
    is called about once a millisecond.
    """
    relations: set[RelationSchema] = set()
    heads = program.heads()
    recursive = (
        (part, clause)
        for part in components(program.clauses, yield_now)
        if part.recursive
        for schema in part.relations
        for clause in heads[schema]
    )
    improving: set[Component] = set()
    for part, clause in paced(recursive, yield_now, REWRITES_PER_YIELD):
        if first_problem(clause, part.relations) is not None:
            # Through demand, the clause is part of the recursion of best values.
            improving.add(part)
        relations.update(
            item.schema.bare
            for item in clause.body
            if isinstance(item, ClauseAtom)
            and (item.absent or clause.aggregates)
            and item.schema in part.relations
        )
    relations.update(s.bare for part in improving for s in part.relations if s.role in BEST)
    if not relations:
        return None
    concluded = {clause.head.schema for clause in source.clauses}
    return (
        source.full | relations | (dependencies(source.clauses, relations, yield_now) & concluded)
    )


def strata(program: Program, yield_now: YieldNow = go_on) -> list[Component]:
    """Return the components of a program in an order in which they can be evaluated.

    `yield_now` is called about once a millisecond.
    """
    return components(program.clauses, yield_now)
