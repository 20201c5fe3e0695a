"""A set of rules that are visible together, compiled as far as is possible without a goal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakValueDictionary

from kbplanner.errors import ExternalRecursion, InvalidInput, UnboundArgument
from kbplanner.ir.calls import blocked_rules, check_callable, infer_modes
from kbplanner.ir.extrema import check_extrema, extremum_findings, mixed_extrema
from kbplanner.ir.modes import NO_MODES, Modes
from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    dependencies,
    dependents,
    emptied,
)
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import Comparison, Literal, Rule, numbered_variables
from kbplanner.pacing import YieldNow, current_yield, paced
from kbplanner.passes.linearise import linearise
from kbplanner.passes.lower import conclusions, lower
from kbplanner.passes.stratify import check_stratified, rules_computing_recursively
from kbplanner.passes.wellfounded import (
    NegativeComponent,
    negative_components,
    uncertain,
    without_negative_components,
)
from kbplanner.syntax.printer import print_rule


@dataclass(frozen=True, eq=False)
class RuleSlice:
    """The clauses that relations depend on, and their rules: all that a plan is made from.

    The clauses number the rules from 1, by their places in `rules`. Slices with the same content
    are one object, so that what is cached by slice outlives changes of other rules. `endless` are
    the numbers of rules of a recursion through a computed value; `external` as in RuleSet.
    """

    clauses: tuple[Clause, ...]
    rules: tuple[Rule, ...]
    endless: frozenset[int]
    external: Modes


@dataclass(frozen=True, slots=True, eq=False)
class ComponentSource:
    """The clauses that a negative component is evaluated from: its own, and those of the relations
    outside of components that they depend on, in order; and the indexes of the components they
    read.
    """

    clauses: tuple[Clause, ...]
    components: tuple[int, ...]


class _Places:
    """The places of the clauses of each relation, and the component of each relation in one."""

    def __init__(
        self, clauses: Sequence[Clause], parts: Sequence[NegativeComponent], yield_now: YieldNow
    ) -> None:
        self._clauses = clauses
        self._places: dict[RelationSchema, list[int]] = {}
        for number, clause in paced(enumerate(clauses), yield_now):
            self._places.setdefault(clause.head.schema, []).append(number)
        self._component = {
            schema: index for index, part in enumerate(parts) for schema in part.relations
        }

    def source(self, part: NegativeComponent, index: int, yield_now: YieldNow) -> ComponentSource:
        """Return the source of a component, given by its index too."""
        todo = list(part.relations)
        reached, components, places = set(todo), set[int](), list[int]()
        for schema in paced(emptied(todo), yield_now, CLAUSES_PER_YIELD):
            component = self._component.get(schema, index)
            if component != index:
                components.add(component)
                continue
            own = self._places.get(schema, [])
            places += own
            for number in own:
                for atom in self._clauses[number].all_atoms():
                    if atom.schema not in reached:
                        reached.add(atom.schema)
                        todo.append(atom.schema)
        clauses = tuple(self._clauses[number] for number in sorted(places))
        return ComponentSource(clauses, tuple(sorted(components)))


_SLICES: WeakValueDictionary[tuple[object, ...], RuleSlice] = WeakValueDictionary()
"""The slices in use, by content."""


class RuleSet:
    """Rules in a fixed order, numbered from 1; immutable.

    `within` is a smaller rule set, to which these rules add only rules that no other rule reads
    (goals of several literals). Models of its components also hold for these rules. Raises
    InvalidInput for a rule the engine does not evaluate, RecursiveAggregate where the rules
    together recurse through an aggregate, RefusedExtremum where a best value is not monotone.
    `yield_now` is called about once a millisecond, here and in the methods; by default it is
    `current_yield`.
    """

    external: Modes = NO_MODES
    """The modes of the DERIVED relations that plugins provide."""

    def __init__(
        self,
        rules: Iterable[Rule],
        within: RuleSet | None = None,
        yield_now: YieldNow | None = None,
    ) -> None:
        yield_now = current_yield() if yield_now is None else yield_now
        self.within = within or self
        self.rules: tuple[Rule, ...] = tuple(rules)
        self._lowered: dict[frozenset[RelationSchema], tuple[Clause, ...]] = {}
        self._slices: dict[
            tuple[frozenset[RelationSchema], frozenset[RelationSchema], bool | None], RuleSlice
        ] = {}
        self._external_form: ExternalRules | None = None
        self._negative: dict[frozenset[RelationSchema], tuple[NegativeComponent, ...]] = {}
        self._sources: dict[tuple[frozenset[RelationSchema], int], ComponentSource] = {}
        self._places: dict[frozenset[RelationSchema], _Places] = {}
        self._reachable: dict[
            tuple[frozenset[RelationSchema], frozenset[RelationSchema]], frozenset[RelationSchema]
        ] = {}
        yield_now()
        check_extrema(mixed_extrema(self.rules, yield_now))
        self._best = {
            stored: relation
            for stored, relation in conclusions(self.rules, yield_now).items()
            if relation.role in BEST
        }
        clauses = self.clauses(frozenset(), yield_now)
        check_stratified(clauses, yield_now)
        self.derived = frozenset(map(_head, paced(self.rules, yield_now, CLAUSES_PER_YIELD)))
        """Stored schemas of the predicates that have rules."""
        self.computed_recursion = frozenset(
            self.rules[number - 1] for number in rules_computing_recursively(clauses, yield_now)
        )
        """Rules of a recursion through a computed value, which may not terminate."""
        self.computes_values = any(
            isinstance(item, (Computation, AggregateClause))
            for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD)
            for item in clause.body
        )
        """True if conclusions can have arguments that occur in no fact and no rule."""
        self.reads = frozenset(
            item.schema.stored
            for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD)
            if clause.rule
            for item in clause.body
            if isinstance(item, ClauseAtom) and item.schema.role not in (Role.BINDINGS, Role.GROUPS)
        )
        """Stored schemas of the predicates that bodies mention."""
        self.deniable = frozenset(
            item.schema.stored.opposite
            for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD)
            for item in clause.body
            if isinstance(item, ClauseAtom) and item.absent and item.schema.positive
        )
        """Stored relations of explicit negatives. Whether they have rows decides how a `not` is
        compiled.
        """
        for denied in {frozenset[RelationSchema](), self.deniable}:
            check_extrema(extremum_findings(self.clauses(denied, yield_now), yield_now))

    def with_external(self, external: Modes) -> ExternalRules:
        """Return the form of these rules in which plugins provide some predicates, given by the
        modes of their stored schemas; the same object for the same mapping.
        """
        form = self._external_form
        if form is None or form.modes is not external:
            form = self._external_form = ExternalRules(self, external)
        return form

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
        self, denied: frozenset[RelationSchema], yield_now: YieldNow | None = None
    ) -> tuple[NegativeComponent, ...]:
        """Return the components that recurse through negation, each after those it depends on."""
        if self.within is not self:
            return self.within.negative_components(denied & self.within.deniable, yield_now)
        if denied not in self._negative:
            yield_now = current_yield() if yield_now is None else yield_now
            self._negative[denied] = negative_components(self.clauses(denied, yield_now), yield_now)
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

    def component_source(self, denied: frozenset[RelationSchema], index: int) -> ComponentSource:
        """Return what the clauses of a component read, as far as other components are settled."""
        source = self._sources.get((denied, index))
        if source is None:
            parts, yield_now = self.negative_components(denied), current_yield()
            if denied not in self._places:
                self._places[denied] = _Places(self.clauses(denied), parts, yield_now)
            source = self._places[denied].source(parts[index], index, yield_now)
            self._sources[denied, index] = source
        return source

    def components_reading(
        self, denied: frozenset[RelationSchema], stored: Iterable[RelationSchema]
    ) -> frozenset[RelationSchema]:
        """Return the relations of those components that depend on any of these stored relations."""
        depending = dependents(self.clauses(denied), stored, current_yield())
        parts = (part.relations for part in self.negative_components(denied))
        return frozenset(schema for own in parts if not depending.isdisjoint(own) for schema in own)

    def _reached(
        self, denied: frozenset[RelationSchema], roots: frozenset[RelationSchema]
    ) -> frozenset[RelationSchema]:
        """Return the relations that `roots` depend on, including `roots`."""
        if (denied, roots) in self._reachable:
            return self._reachable[denied, roots]
        reached = frozenset(dependencies(self.clauses(denied), roots, current_yield()))
        self._reachable[denied, roots] = reached
        return reached

    def slice(
        self, denied: frozenset[RelationSchema], roots: Iterable[RelationSchema]
    ) -> RuleSlice:
        """Return the slice of `clauses` that relations of conclusions depend on."""
        return self._slice(denied, frozenset(roots), None)

    def proof_slice(
        self, denied: frozenset[RelationSchema], root: RelationSchema, allow_rewriting: bool
    ) -> RuleSlice:
        """Return the slice of `proof_clauses` that a relation of conclusions depends on."""
        return self._slice(denied, frozenset((root,)), allow_rewriting)

    def _slice(
        self,
        denied: frozenset[RelationSchema],
        roots: frozenset[RelationSchema],
        allow_rewriting: bool | None,
    ) -> RuleSlice:
        key = (denied, roots, allow_rewriting)
        slice_ = self._slices.get(key)
        if slice_ is None:
            clauses = (
                self.clauses(denied)
                if allow_rewriting is None
                else self.proof_clauses(denied, allow_rewriting)
            )
            yield_now = current_yield()
            reached = dependencies(clauses, roots, yield_now)
            used = [clause for clause in paced(clauses, yield_now) if clause.head.schema in reached]
            numbers = sorted({clause.rule for clause in used if clause.rule})
            new_numbers = {0: 0} | {old: new for new, old in enumerate(numbers, 1)}
            content = (
                tuple(
                    Clause(clause.head, clause.body, new_numbers[clause.rule])
                    for clause in paced(used, yield_now, CLAUSES_PER_YIELD)
                ),
                tuple(self.rules[number - 1] for number in numbers),
                frozenset(
                    new_numbers[number]
                    for number in numbers
                    if self.rules[number - 1] in self.computed_recursion
                ),
            )
            slice_ = _SLICES.setdefault(
                (*content, tuple(self.external.items())), RuleSlice(*content, self.external)
            )
            self._slices[key] = slice_
        return slice_

    def uncertain(self, denied: frozenset[RelationSchema], goal: RelationSchema) -> bool:
        """Return True if a stored schema's conclusions can be undefined."""
        return False

    def proof_clauses(
        self, denied: frozenset[RelationSchema], allow_rewriting: bool
    ) -> tuple[Clause, ...]:
        """Return clauses for proofs, in the shape of the rules; `allow_rewriting` allows rewritten
        linear recursion.
        """
        return (
            self.clauses(denied) if allow_rewriting else lower(self.rules, denied, current_yield())
        )

    def clauses(
        self, denied: frozenset[RelationSchema], yield_now: YieldNow | None = None
    ) -> tuple[Clause, ...]:
        """Return the rules lowered, given which of `deniable` have rows."""
        if denied not in self._lowered:
            yield_now = current_yield() if yield_now is None else yield_now
            self._lowered[denied] = linearise(lower(self.rules, denied, yield_now), yield_now)
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
        self.derived, self.external = rules.derived, rules.external

    def clauses(
        self, denied: frozenset[RelationSchema], yield_now: YieldNow | None = None
    ) -> tuple[Clause, ...]:
        """Return the rules lowered, over what was settled."""
        if denied not in self._lowered:
            parts = self._source.negative_components(denied)
            self._lowered[denied] = without_negative_components(
                self._source.clauses(denied), parts, self._undefined, yield_now=current_yield()
            )
        return self._lowered[denied]

    def proof_clauses(
        self, denied: frozenset[RelationSchema], allow_rewriting: bool
    ) -> tuple[Clause, ...]:
        """Return clauses for proofs: those that recurse through negation test the absence of
        possible rows.
        """
        source, yield_now = self._source.proof_clauses(denied, allow_rewriting), current_yield()
        return without_negative_components(
            source,
            negative_components(source, yield_now),
            self._undefined,
            keep=True,
            yield_now=yield_now,
        )

    def uncertain(self, denied: frozenset[RelationSchema], goal: RelationSchema) -> bool:
        """Return True if a stored schema's conclusions can be undefined."""
        if denied not in self._uncertain:
            parts = self._source.negative_components(denied)
            self._uncertain[denied] = uncertain(
                self._source.clauses(denied), parts, self._undefined, current_yield()
            )
        return self.conclusions(goal) in self._uncertain[denied]


class RulesOver(RuleSet):
    """The rules of all relations but those whose rows are there: these are read from the stored
    relations that `stored` names.
    """

    def __init__(self, rules: RuleSet, stored: Mapping[RelationSchema, RelationSchema]) -> None:
        self._source = rules
        self._stored = stored
        super().__init__(rules.rules)
        self.derived = frozenset(
            schema for schema in rules.derived if rules.conclusions(schema) not in stored
        )

    def clauses(
        self, denied: frozenset[RelationSchema], yield_now: YieldNow | None = None
    ) -> tuple[Clause, ...]:
        """Return the lowered rules, which read the rows that exist already."""
        if denied not in self._lowered:
            self._lowered[denied] = tuple(
                Clause(clause.head, tuple(map(self._item, clause.body)), clause.rule)
                for clause in self._source.clauses(denied, yield_now)
                if clause.head.schema not in self._stored
            )
        return self._lowered[denied]

    def _item(self, item: ClauseItem) -> ClauseItem:
        if isinstance(item, ClauseAtom) and item.schema in self._stored:
            return ClauseAtom(self._stored[item.schema], item.args, item.absent)
        return item


class MonotoneRules(RuleSet):
    """The same rules without the clauses that test absence, aggregate or keep best values."""

    def clauses(
        self, denied: frozenset[RelationSchema], yield_now: YieldNow | None = None
    ) -> tuple[Clause, ...]:
        """Return the clauses whose conclusions new facts leave as they are."""
        return tuple(
            clause for clause in super().clauses(denied, yield_now) if not tests_absence(clause)
        )


class ExternalRules(RuleSet):
    """Rules in which some predicates are provided by plugins: relations with rows for given inputs.

    In `rules` they are stored relations without rows. Here they are derived ones, so that the
    passes make demand for them, and their stored relations hold the rows that are known. `external`
    has the modes of their stored schemas.
    """

    def __init__(self, rules: RuleSet, external: Modes) -> None:
        self._source = rules
        self._external_goals: dict[RelationSchema, frozenset[RelationSchema]] = {}
        self._independent: RuleSet | None = None
        self.modes = external
        self.external = {schema.derived: modes for schema, modes in external.items()}
        super().__init__(rules.rules, rules.within)
        self.reads, self.deniable = rules.reads, rules.deniable
        self.derived = rules.derived | frozenset(external)
        self.computes_values = True

    def clauses(
        self, denied: frozenset[RelationSchema], yield_now: YieldNow | None = None
    ) -> tuple[Clause, ...]:
        """Return the rules lowered, reading the derived relations of external predicates."""
        if denied not in self._lowered:
            clauses = [
                replace(clause, body=tuple(self._readable(item) for item in clause.body))
                for clause in paced(
                    self._source.clauses(denied), current_yield(), REWRITES_PER_YIELD
                )
            ]
            for schema in self.external:
                args = numbered_variables(schema.arity)
                body = (ClauseAtom(schema.stored, args),)
                clauses.append(Clause(ClauseAtom(schema, args), body))
            self._lowered[denied] = tuple(clauses)
        return self._lowered[denied]

    def external_of(self, goal: RelationSchema) -> frozenset[RelationSchema]:
        """Return the stored schemas of the external predicates that a stored schema's conclusions
        can depend on.
        """
        predicates = self._external_goals.get(goal)
        if predicates is None:
            # With every explicit negative that can matter, since a goal may ask for another time.
            predicates = frozenset()
            if goal.derived in self._depending:
                reached = self._reached(self.deniable, frozenset((goal.derived,)))
                predicates = frozenset(s.stored for s in self.external if s in reached)
            self._external_goals[goal] = predicates
        return predicates

    def independent(self) -> RuleSet:
        """Return the rules for predicates that depend on no external predicate, as a rule set of
        their own.
        """
        if self._independent is None:
            rules = self._source.rules
            chosen = [
                rule
                for rule in paced(rules, current_yield(), CLAUSES_PER_YIELD)
                if _head(rule).derived not in self._depending
            ]
            same = len(chosen) == len(rules)
            self._independent = self._source if same else RuleSet(chosen)
        return self._independent

    @cached_property
    def _depending(self) -> set[RelationSchema]:
        """The relations that can depend on an external predicate, as in `external_of`."""
        return dependents(self.clauses(self.deniable), self.external, current_yield())

    @cached_property
    def inferred(self) -> Modes:
        """The modes of the external relations and of those derived ones that depend on them."""
        return infer_modes(self.clauses(frozenset()), self.external, current_yield())

    def check_components(
        self, denied: frozenset[RelationSchema], goals: Iterable[RelationSchema] | None
    ) -> None:
        """Raise ExternalRecursion if goals need recursion through negation over an external
        predicate: it is evaluated in full, which such a predicate cannot be.
        """
        parts = self.negative_components(denied)
        for index in self.needed_components(denied, goals):
            if parts[index].relations.isdisjoint(self._depending):
                continue
            reached = self._reached(denied, parts[index].relations)
            names = sorted(str(schema.stored) for schema in self.external if schema in reached)
            if names:
                raise ExternalRecursion(names)

    def check(self, heads: Iterable[RelationSchema]) -> None:
        """Raise UnboundArgument or ExternalRecursion if the rules for stored schemas cannot be
        evaluated for any goal.
        """
        denied: frozenset[RelationSchema] = frozenset()
        goals = [schema for schema in heads if schema.derived in self._depending]
        if not goals:
            return
        self.check_components(denied, goals)
        clauses = self.clauses(denied)
        for schema in goals:
            marks = "b" * schema.arity
            try:
                check_callable(
                    clauses, schema.derived, marks, self.inferred, self.external, current_yield()
                )
            except UnboundArgument as error:
                raise naming_call(error, self.rules) from error

    def problems(self) -> Iterator[tuple[int, InvalidInput]]:
        """Yield the number of each rule that no goal can evaluate, once, with the error of its call
        of an external predicate.
        """
        denied: frozenset[RelationSchema] = frozenset()
        clauses = self.clauses(denied)
        refused: set[int] = set()
        for part in self.negative_components(denied):
            if part.relations.isdisjoint(self._depending):
                continue
            reached = self._reached(denied, part.relations)
            names = sorted(str(schema.stored) for schema in self.external if schema in reached)
            numbers = (c.rule for c in clauses if c.rule and c.head.schema in part.relations)
            number = next(numbers, 0)
            if names and number:
                refused.add(number)
                yield number, ExternalRecursion(names)
        for number, error in blocked_rules(clauses, self.inferred, self.external, current_yield()):
            if number not in refused:
                refused.add(number)
                yield number, error

    def _readable(self, item: ClauseItem) -> ClauseItem:
        if not isinstance(item, ClauseAtom) or item.schema.role is not Role.STORED:
            return item
        derived = item.schema.derived
        return replace(item, schema=derived) if derived in self.external else item


def _head(rule: Rule) -> RelationSchema:
    """Return the stored schema of the predicate that a rule concludes."""
    return RelationSchema(rule.head.predicate, rule.head.arity, rule.head.positive)


def naming_call(error: UnboundArgument, rules: Sequence[Rule]) -> UnboundArgument:
    """Return the error with the text of the rule whose call has an unbound argument."""
    if not 0 < error.rule <= len(rules):
        return error
    return error.within(print_rule(rules[error.rule - 1]))


def tests_absence(clause: Clause) -> bool:
    """Return True if a clause tests that no (further) row matches: by absence, an aggregate or a
    best value.
    """
    return clause.head.schema.role in BEST or any(
        isinstance(item, ClauseAtom) and (item.absent or item.schema.role in (Role.GROUPS, *BEST))
        for item in clause.body
    )
