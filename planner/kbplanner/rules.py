"""A set of rules that are visible together, compiled as far as possible without a goal."""

from __future__ import annotations

from collections.abc import Iterable

from kbplanner.passes.linearise import linearise
from kbplanner.passes.lower import lower
from kbplanner.passes.stratify import check_stratified, computed_recursion
from kbplanner.program import Clause, ClauseAtom
from kbplanner.schema import RelationSchema, Role
from kbplanner.terms import Rule


class RuleSet:
    """Rules in a fixed order, numbered from 1; immutable.

    Raises InvalidInput for a rule the engine does not evaluate, UnstratifiedNegation or RecursiveAggregate where the
    rules together recurse through negation or an aggregate.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: tuple[Rule, ...] = tuple(rules)
        self._lowered: dict[frozenset[RelationSchema], tuple[Clause, ...]] = {}
        clauses = self.clauses(frozenset())
        check_stratified(clauses)
        self.derived = frozenset(RelationSchema(r.head.predicate, r.head.arity, r.head.positive) for r in self.rules)
        """Stored schemas of the predicates that have rules."""
        self.endless = frozenset(self.rules[number - 1] for number in computed_recursion(clauses))
        """Rules of a recursion through a computed value, which may not come to an end."""
        self.reads = frozenset(
            item.schema.stored
            for clause in clauses
            if clause.rule
            for item in clause.body
            if isinstance(item, ClauseAtom) and item.schema.role not in (Role.BINDINGS, Role.GROUPS)
        )
        """Stored schemas of the predicates that bodies mention."""
        self.deniable = frozenset(
            item.schema.stored.opposite
            for clause in clauses
            for item in clause.body
            if isinstance(item, ClauseAtom) and item.absent
        )
        """Stored relations whose rows decide how a `not` is compiled, once there are any."""

    def clauses(self, denied: frozenset[RelationSchema]) -> tuple[Clause, ...]:
        """The rules lowered, given which of `deniable` have rows."""
        if denied not in self._lowered:
            self._lowered[denied] = linearise(lower(self.rules, denied))
        return self._lowered[denied]
