"""Strata: nothing is used under absence or aggregated before it is complete."""

from __future__ import annotations

from collections.abc import Sequence

from kbplanner.errors import RecursiveAggregate, UnstratifiedNegation
from kbplanner.program import Clause, ClauseAtom, Component, Program, aggregate_cycle, components, negative_cycle
from kbplanner.schema import RelationSchema, Role


def check_stratified(clauses: Sequence[Clause]) -> None:
    """Raise UnstratifiedNegation or RecursiveAggregate, naming the predicates, if clauses recurse through such."""
    cycle = aggregate_cycle(clauses)
    if cycle is not None:
        names = [str(schema.stored) for schema in cycle if schema.role is Role.DERIVED]
        message = f"recursion through an aggregate: the rules of {' and '.join(names)} would count what they conclude"
        raise RecursiveAggregate(message, names)
    cycle = negative_cycle(clauses)
    if cycle is not None:
        names = [str(schema.stored) for schema in cycle if schema.role is Role.DERIVED] or [str(cycle[0].stored)]
        raise UnstratifiedNegation(
            f"recursion through negation: the rules of {' and '.join(names)} wait for what they have not concluded",
            names,
        )


def widen(program: Program, source: Program) -> frozenset[RelationSchema] | None:
    """Relations to ask in full: demand for them would be recursive through absence or aggregates. None if there are none.

    `program` is what the magic pass made of `source`, whose relations are not adorned yet. What a full relation depends
    on is full too, so that nothing below it waits for demand.
    """
    found: set[RelationSchema] = set()
    for part in components(program.clauses):
        if not part.recursive:
            continue
        for clause in program.clauses:
            if clause.head.schema in part.relations:
                found.update(
                    item.schema.bare
                    for item in clause.body
                    if isinstance(item, ClauseAtom)
                    and (item.absent or clause.aggregates)
                    and item.schema in part.relations
                )
    if not found:
        return None
    heads = source.heads()
    todo = list(found)
    while todo:
        for clause in heads.get(todo.pop(), ()):
            for item in clause.body:
                if isinstance(item, ClauseAtom) and item.schema in heads and item.schema not in found:
                    found.add(item.schema)
                    todo.append(item.schema)
    return source.full | found


def strata(program: Program) -> list[Component]:
    """The components of a program in the order in which they can be evaluated."""
    return components(program.clauses)
