"""A set of rules that are visible together, compiled as far as possible without a goal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from kbplanner.passes.linearise import linearise
from kbplanner.passes.lower import lower
from kbplanner.passes.stratify import check_stratified
from kbplanner.program import Clause, ClauseAtom
from kbplanner.schema import RelationSchema, Role
from kbplanner.terms import Aggregate, Apply, Comparison, Literal, Rule


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

    @cached_property
    def constants(self) -> frozenset[str]:
        """The constants of rules: conclusions can have them as arguments although no fact does."""
        found: set[str] = set()
        for rule in self.rules:
            for part in (rule.head, *rule.body):
                if isinstance(part, Comparison):
                    found.update(side for side in (part.left, part.right) if isinstance(side, str))
                else:
                    atom = part.atom if isinstance(part, Literal) else part
                    found.update(arg for arg in atom.args if isinstance(arg, str))
        return frozenset(found)

    @cached_property
    def computes(self) -> bool:
        """Whether conclusions can have arguments that stand neither in a fact nor in a rule."""
        return any(
            any(isinstance(arg, Aggregate) for arg in rule.head.args)
            or any(isinstance(item, Comparison) and Apply in (type(item.left), type(item.right)) for item in rule.body)
            for rule in self.rules
        )

    def clauses(self, denied: frozenset[RelationSchema]) -> tuple[Clause, ...]:
        """The rules lowered, given which of `deniable` have rows."""
        if denied not in self._lowered:
            self._lowered[denied] = linearise(lower(self.rules, denied))
        return self._lowered[denied]
