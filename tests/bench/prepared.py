"""A goal below the Python API: its plan made once, run for each binding, answers counted but not
named.

This is what a peer's `SELECT count(*)` does, so closures are compared at this level.
"""

from __future__ import annotations

from kbcore.embed import EmbeddedKB
from kbplanner.engine.backend import RunStats
from kbplanner.evaluate.evaluate import GoalRun, adornment_of, goal_pattern
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Term, Variable
from kbplanner.syntax.parser import parse_goal


class Prepared:
    """One goal of an open knowledge base, evaluated from nothing at every call: no goal table is
    kept.
    """

    def __init__(self, kb: EmbeddedKB, goal: str) -> None:
        inner = kb.kb
        tenant = inner._read_tenant()
        atom = parse_goal(goal).literal.atom
        partition = inner._partitions(tenant, None)[0]
        rules = tenant.rules.visible(partition.name)
        schema = RelationSchema(atom.predicate, atom.arity)
        args: list[Term] = [arg for arg in atom.args if isinstance(arg, (str, Variable))]
        pattern = goal_pattern(args, tenant.engine.intern)
        assert pattern is not None
        self._pattern = pattern
        self._inner = inner
        self._engine = tenant.engine
        self._bind = lambda wanted: partition.need(wanted).relation
        self._goal = tenant.plans.get(
            rules, schema, adornment_of(args), partition.denied(rules.deniable), partition
        )
        self.stats = RunStats()

    def count(self) -> int:
        """Evaluate and count; leaves what the run did in `stats`."""
        with self._inner._budget() as budget:
            run = GoalRun(self._engine, self._goal, self._bind, budget.limits)
            try:
                answers = run.count(self._pattern, budget.drive)
                self.stats = run.run.stats()
                return answers
            finally:
                run.close()
