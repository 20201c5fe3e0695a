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
from kbplanner.pacing import YieldNow, go_on, paced


def slice_program(program: Program, yield_now: YieldNow = go_on) -> Program:
    """Keep only those clauses on which the goal's relation depends, in their order.

    `yield_now` is called about once a millisecond.
    """
    reached = dependencies(program.clauses, (program.goal,), yield_now)
    used = (clause for clause in paced(program.clauses, yield_now) if clause.head.schema in reached)
    return replace(program, clauses=tuple(used))
