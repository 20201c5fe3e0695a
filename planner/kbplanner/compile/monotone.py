"""The part of a set of rules that later facts cannot take back."""

from __future__ import annotations

from kbplanner.compile.rules import RuleSet
from kbplanner.ir.program import Clause, ClauseAtom
from kbplanner.ir.schema import RelationSchema, Role


class MonotoneRules(RuleSet):
    """The same rules without the clauses that ask for an absence, or for all there is of something, as aggregates do."""

    def clauses(self, denied: frozenset[RelationSchema]) -> tuple[Clause, ...]:
        """The clauses whose conclusions new facts leave as they are."""
        return tuple(clause for clause in super().clauses(denied) if not tests_absence(clause))


def tests_absence(clause: Clause) -> bool:
    """Whether some item of a clause asks that nothing, or nothing more, matches: an absence, or an aggregate."""
    return any(isinstance(item, ClauseAtom) and (item.absent or item.schema.role is Role.GROUPS) for item in clause.body)
