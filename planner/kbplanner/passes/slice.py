"""Removal of clauses that the goal does not depend on."""

from __future__ import annotations

from dataclasses import replace

from kbplanner.ir.program import ClauseAtom, Program
from kbplanner.ir.schema import RelationSchema


def slice_program(program: Program) -> Program:
    """Keep only those clauses on which the goal's relation depends, in their order."""
    heads = program.heads()
    reached: set[RelationSchema] = {program.goal}
    todo = [program.goal]
    while todo:
        for clause in heads.get(todo.pop(), ()):
            for item in clause.body:
                if isinstance(item, ClauseAtom) and item.schema not in reached:
                    reached.add(item.schema)
                    todo.append(item.schema)
    return replace(program, clauses=tuple(c for c in program.clauses if c.head.schema in reached))
