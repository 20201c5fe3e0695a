"""Strata: nothing is used under absence or aggregated before it is complete."""

from __future__ import annotations

from collections.abc import Sequence

from kbplanner.errors import RecursiveAggregate
from kbplanner.ir.program import (
    Clause,
    ClauseAtom,
    Component,
    Computation,
    Program,
    aggregate_cycle,
    components,
)
from kbplanner.ir.schema import RelationSchema, Role


def check_stratified(clauses: Sequence[Clause]) -> None:
    """Raise RecursiveAggregate, naming the predicates, if clauses recurse through an aggregate."""
    cycle = aggregate_cycle(clauses)
    if cycle is not None:
        names = [str(schema.stored) for schema in cycle if schema.role is Role.DERIVED]
        message = f"recursion through an aggregate: the rules of {' and '.join(names)} would count what they conclude"
        raise RecursiveAggregate(message, names)


def computed_recursion(clauses: Sequence[Clause]) -> set[int]:
    """The numbers of the rules that belong to a recursion in which a head takes a value that its body computes."""
    found: set[int] = set()
    for part in components(clauses):
        own = [c for c in clauses if part.recursive and c.head.schema in part.relations and _recurs(c, part)]
        if any(_computes_head(clause) for clause in own):
            found.update(clause.rule for clause in own if clause.rule)
    return found


def _recurs(clause: Clause, part: Component) -> bool:
    return any(atom.schema in part.relations for atom in clause.atoms())


def _computes_head(clause: Clause) -> bool:
    targets = {item.target for item in clause.body if isinstance(item, Computation)}
    return not targets.isdisjoint(clause.head.args)


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
