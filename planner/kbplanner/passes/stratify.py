"""Strata: nothing is used under absence before it is complete."""

from __future__ import annotations

from kbplanner.program import ClauseAtom, Component, Program, components
from kbplanner.schema import RelationSchema


def widen(program: Program, source: Program) -> frozenset[RelationSchema] | None:
    """Relations to ask in full, because demand for them would be recursive through absence; None if there are none.

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
                    if isinstance(item, ClauseAtom) and item.absent and item.schema in part.relations
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
