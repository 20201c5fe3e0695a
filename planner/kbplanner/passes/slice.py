"""Removal of clauses that the goal does not depend on.

Before:

    grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).
    adult(?x) :- age(?x, ?n), ?n >= 18.
    ?- grandparent(ann, ?z).

After:

    grandparent/2(?x, ?z) :- parent/2(?x, ?y), parent/2(?y, ?z).  % rule 1
    grandparent/2(?a0, ?a1) :- grandparent/2(?a0, ?a1).
"""

from __future__ import annotations

from dataclasses import replace

from kbplanner.ir.program import Program, dependencies


def slice_program(program: Program) -> Program:
    """Keep only those clauses on which the goal's relation depends, in their order."""
    reached = dependencies(program.clauses, (program.goal,))
    return replace(program, clauses=tuple(c for c in program.clauses if c.head.schema in reached))
