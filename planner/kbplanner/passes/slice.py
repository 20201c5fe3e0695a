"""Keep the clauses a goal can reach."""

from __future__ import annotations

from dataclasses import replace

from kbplanner.ir.program import ClauseAtom, Program
from kbplanner.ir.schema import RelationSchema


def slice_program(program: Program) -> Program:
    """The program with only those clauses on which the goal's relation depends, in their order."""
    heads = program.heads()
    wanted: set[RelationSchema] = {program.goal}
    todo = [program.goal]
    while todo:
        for clause in heads.get(todo.pop(), ()):
            for item in clause.body:
                if isinstance(item, ClauseAtom) and item.schema not in wanted:
                    wanted.add(item.schema)
                    todo.append(item.schema)
    return replace(program, clauses=tuple(c for c in program.clauses if c.head.schema in wanted))
