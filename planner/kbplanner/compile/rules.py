"""A set of rules that are visible together, compiled as far as is possible without a goal."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

from kbplanner.ir.extrema import check_extrema, extremum_findings, mixed_extrema
from kbplanner.ir.program import Aggregation, Clause, ClauseAtom, Computation, dependencies
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import Comparison, Literal, Rule
from kbplanner.passes.linearise import linearise
from kbplanner.passes.lower import conclusions, lower
from kbplanner.passes.stratify import check_stratified, rules_computing_recursively
from kbplanner.passes.wellfounded import (
    NegativeComponent,
    negative_components,
    uncertain,
    without_negative_components,
)


class RuleSet:
    """Rules in a fixed order, numbered from 1; immutable.

    `within` is a smaller rule set, to which these rules add only rules that no other rule reads
    (goals of several literals). Models of its components also hold for these rules. Raises
    InvalidInput for a rule the engine does not evaluate, RecursiveAggregate where the rules
    together recurse through an aggregate, RefusedExtremum where a best value is not monotone.
    """

    def __init__(self, rules: Iterable[Rule], within: RuleSet | None = None) -> None:
        self.within = within or self
        self.rules: tuple[Rule, ...] = tuple(rules)
        self._lowered: dict[frozenset[RelationSchema], tuple[Clause, ...]] = {}
        self._negative: dict[frozenset[RelationSchema], tuple[NegativeComponent, ...]] = {}
        self._reachable: dict[
            tuple[frozenset[RelationSchema], frozenset[RelationSchema]], frozenset[RelationSchema]
        ] = {}
        check_extrema(mixed_extrema(self.rules))
        self._best = {
            stored: relation
            for stored, relation in conclusions(self.rules).items()
            if relation.role in BEST
        }
        clauses = self.clauses(frozenset())
        check_stratified(clauses)
        self.derived = frozenset(
            RelationSchema(r.head.predicate, r.head.arity, r.head.positive) for r in self.rules
        )
        """Stored schemas of the predicates that have rules."""
        self.computed_recursion = frozenset(
            self.rules[number - 1] for number in rules_computing_recursively(clauses)
        )
        """Rules of a recursion through a computed value, which may not terminate."""
        self.computes_values = any(
            isinstance(item, (Computation, Aggregation))
            for clause in clauses
            for item in clause.body
        )
        """True if conclusions can have arguments that occur in no fact and no rule."""
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
            if isinstance(item, ClauseAtom) and item.absent and item.schema.positive
        )
        """Stored relations of explicit negatives. Whether they have rows decides how a `not` is compiled."""
        for denied in {frozenset[RelationSchema](), self.deniable}:
            check_extrema(extremum_findings(self.clauses(denied)))

    @cached_property
    def constants(self) -> frozenset[str]:
        """The constants of rules, which conclusions can have as arguments although no fact has
        them.
        """
        constants: set[str] = set()
        for rule in self.rules:
            for part in (rule.head, *rule.body):
                if isinstance(part, Comparison):
                    constants.update(
                        side for side in (part.left, part.right) if isinstance(side, str)
                    )
                else:
                    atom = part.atom if isinstance(part, Literal) else part
                    constants.update(arg for arg in atom.args if isinstance(arg, str))
        return frozenset(constants)

    def conclusions(self, schema: RelationSchema) -> RelationSchema:
        """Return the relation of the conclusions of a stored schema, before it is adorned."""
        return self._best.get(schema.stored, schema.derived)

    def negative_components(
        self, denied: frozenset[RelationSchema]
    ) -> tuple[NegativeComponent, ...]:
        """Return the components that recurse through negation, each after those it depends on."""
        if self.within is not self:
            return self.within.negative_components(denied & self.within.deniable)
        if denied not in self._negative:
            self._negative[denied] = negative_components(self.clauses(denied))
        return self._negative[denied]

    def needed_components(
        self, denied: frozenset[RelationSchema], goals: Iterable[RelationSchema] | None
    ) -> list[int]:
        """Return the indexes of the components that goals on stored schemas (None: any) depend on,
        in order.
        """
        parts = self.negative_components(denied)
        if goals is None:
            return list(range(len(parts)))
        reached = self._reached(denied, frozenset(map(self.conclusions, goals)))
        return [index for index, part in enumerate(parts) if not reached.isdisjoint(part.relations)]

    def components_below(self, denied: frozenset[RelationSchema], index: int) -> list[int]:
        """Return the indexes of the components that the given one depends on, in order."""
        parts = self.negative_components(denied)
        reached = self._reached(denied, parts[index].relations)
        return [
            other
            for other, part in enumerate(parts[:index])
            if not reached.isdisjoint(part.relations)
        ]

    def components_reading(
        self, denied: frozenset[RelationSchema], stored: Iterable[RelationSchema]
    ) -> frozenset[RelationSchema]:
        """Return the relations of those components that depend on any of these stored relations."""
        read = frozenset(stored)
        parts = (part.relations for part in self.negative_components(denied))
        return frozenset(
            schema for own in parts if read & self._reached(denied, own) for schema in own
        )

    def _reached(
        self, denied: frozenset[RelationSchema], roots: frozenset[RelationSchema]
    ) -> frozenset[RelationSchema]:
        """Return the relations that `roots` depend on, including `roots`."""
        if (denied, roots) in self._reachable:
            return self._reachable[denied, roots]
        reached = frozenset(dependencies(self.clauses(denied), roots))
        self._reachable[denied, roots] = reached
        return reached

    def uncertain(self, denied: frozenset[RelationSchema], goal: RelationSchema) -> bool:
        """Return True if a stored schema's conclusions can be undefined."""
        return False

    def proof_clauses(
        self, denied: frozenset[RelationSchema], allow_rewriting: bool
    ) -> tuple[Clause, ...]:
        """Return clauses for proofs, in the shape of the rules; `allow_rewriting` allows rewritten linear
        recursion.
        """
        return self.clauses(denied) if allow_rewriting else lower(self.rules, denied)

    def clauses(self, denied: frozenset[RelationSchema]) -> tuple[Clause, ...]:
        """Return the rules lowered, given which of `deniable` have rows."""
        if denied not in self._lowered:
            self._lowered[denied] = linearise(lower(self.rules, denied))
        return self._lowered[denied]


class SettledRules(RuleSet):
    """Rules whose recursion through negation was evaluated beforehand; some relations have
    undefined rows.
    """

    def __init__(self, rules: RuleSet, undefined: Collection[RelationSchema]) -> None:
        self._source = rules
        self._undefined = frozenset(undefined)
        self._uncertain: dict[frozenset[RelationSchema], frozenset[RelationSchema]] = {}
        super().__init__(rules.rules)
        self.reads, self.deniable = rules.reads, rules.deniable

    def clauses(self, denied: frozenset[RelationSchema]) -> tuple[Clause, ...]:
        """Return the rules lowered, over what was settled."""
        if denied not in self._lowered:
            parts = self._source.negative_components(denied)
            self._lowered[denied] = without_negative_components(
                self._source.clauses(denied), parts, self._undefined
            )
        return self._lowered[denied]

    def proof_clauses(
        self, denied: frozenset[RelationSchema], allow_rewriting: bool
    ) -> tuple[Clause, ...]:
        """Return clauses for proofs: those that recurse through negation test the absence of
        possible rows.
        """
        source = self._source.proof_clauses(denied, allow_rewriting)
        return without_negative_components(
            source, negative_components(source), self._undefined, keep=True
        )

    def uncertain(self, denied: frozenset[RelationSchema], goal: RelationSchema) -> bool:
        """Return True if a stored schema's conclusions can be undefined."""
        if denied not in self._uncertain:
            parts = self._source.negative_components(denied)
            self._uncertain[denied] = uncertain(
                self._source.clauses(denied), parts, self._undefined
            )
        return self.conclusions(goal) in self._uncertain[denied]


class MonotoneRules(RuleSet):
    """The same rules without the clauses that test absence, aggregate or keep best values."""

    def clauses(self, denied: frozenset[RelationSchema]) -> tuple[Clause, ...]:
        """Return the clauses whose conclusions new facts leave as they are."""
        return tuple(clause for clause in super().clauses(denied) if not tests_absence(clause))


def tests_absence(clause: Clause) -> bool:
    """Return True if a clause tests that no (further) row matches: by absence, an aggregate or a
    best value.
    """
    return clause.head.schema.role in BEST or any(
        isinstance(item, ClauseAtom) and (item.absent or item.schema.role in (Role.GROUPS, *BEST))
        for item in clause.body
    )
