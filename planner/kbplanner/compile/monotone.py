"""The part of a set of rules whose conclusions later facts cannot invalidate."""

from __future__ import annotations

from kbplanner.compile.rules import RuleSet
from kbplanner.ir.program import Clause, ClauseAtom
from kbplanner.ir.schema import RelationSchema, Role


class MonotoneRules(RuleSet):
    """The same rules without the clauses that test absence or aggregate."""

    def clauses(self, denied: frozenset[RelationSchema]) -> tuple[Clause, ...]:
        """Return the clauses whose conclusions new facts leave as they are."""
        return tuple(clause for clause in super().clauses(denied) if not tests_absence(clause))


def tests_absence(clause: Clause) -> bool:
    """Return True if an item of a clause tests that no (further) row matches: absence or aggregate."""
    return any(
        isinstance(item, ClauseAtom) and (item.absent or item.schema.role is Role.GROUPS)
        for item in clause.body
    )
