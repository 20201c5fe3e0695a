"""Invariants of a program after every pass: a pass that breaks one has a bug."""

from __future__ import annotations

from kbplanner.errors import EngineFault
from kbplanner.ir.program import CLAUSES_PER_YIELD, Clause, ClauseAtom, Program
from kbplanner.ir.schema import Role
from kbplanner.ir.terms import Variable
from kbplanner.pacing import YieldNow, go_on, paced


def verify(program: Program, after: str, yield_now: YieldNow = go_on) -> None:
    """Raise EngineFault if a clause uses a relation with the wrong arity or a variable that nothing
    binds.
    """
    for clause in paced(program.clauses, yield_now, CLAUSES_PER_YIELD):
        _clause(clause, after)


def _clause(clause: Clause, after: str) -> None:
    for atom in (clause.head, *(item for item in clause.body if isinstance(item, ClauseAtom))):
        if len(atom.args) != atom.schema.arity:
            raise EngineFault(f"after {after}: {atom.schema} has arity {len(atom.args)}")
    bound = clause.bound()
    if clause.head.schema.role is Role.STORED:
        raise EngineFault(
            f"after {after}: a clause concludes the stored relation {clause.head.schema}"
        )
    for arg in clause.head.args:
        if isinstance(arg, Variable) and arg not in bound:
            raise EngineFault(
                f"after {after}: nothing binds {arg} of the head {clause.head.schema}"
            )
    for item in clause.body:
        for variable in item.variables():
            if not variable.anonymous and variable not in bound:
                raise EngineFault(
                    f"after {after}: nothing binds {variable} in the body of {clause.head.schema}"
                )
