"""Removal of clauses that the goal does not depend on."""

from __future__ import annotations

from dataclasses import replace

from kbplanner.ir.program import Program, dependencies


def slice_program(program: Program) -> Program:
    """Keep only those clauses on which the goal's relation depends, in their order."""
    reached = dependencies(program.clauses, (program.goal,))
    return replace(program, clauses=tuple(c for c in program.clauses if c.head.schema in reached))
