"""Preview of a change: the facts and conclusions that would become true, false or undefined.

The change is applied to an overlay of the tenant, which shares the relations that the change does
not touch. Nothing is committed, and no other request sees the overlay. What changes of facts change
is followed where that is possible (`retraction/differences.py`); otherwise, and for changes of
rules, both states are evaluated and compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from kbcore.branching.truth_changes import (
    State,
    TruthComparison,
    compare_truth,
    list_differences,
    new_rows,
)
from kbcore.errors import BudgetExceeded, NotFound, TooLarge
from kbcore.reason.budget import Budget
from kbcore.reason.external.predicates import ExternalPredicates
from kbcore.retraction.differences import differences
from kbcore.retraction.programs import Programs
from kbcore.retraction.rows import Difference, RowSet
from kbcore.state.changes import RetractFact, RetractPattern, RetractRule
from kbcore.state.facts import Fact
from kbcore.state.labelling import details_of
from kbcore.state.labels import Labels, admits, dominates
from kbcore.state.overlay import MAX_NEW_TEXT, Overlay, ReadSet
from kbcore.state.partition import RowJournal, StoredRelation
from kbcore.state.rulebook import RULES_PER_YIELD, recursion_warning, stored_rule
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW, RunLimits
from kbplanner.evaluate.evaluate import PlanCache, goal_pattern
from kbplanner.ir.modes import NO_MODES
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Rule
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.parser import parse_rule
from kbtypes.results import PredicateChange, PreviewCounts, TruthChange

DEFAULT_LISTED = 100
"""Default limit of each list of a preview."""

COMPARED_PER_YIELD = 200
"""Rules compared between two calls of `yield_now`: about a millisecond."""

FACTS_PER_YIELD = 1000
"""Facts looked at between two calls of `yield_now`: about a millisecond."""

RETRACTIONS_PER_YIELD = 100
"""Retractions carried out between two calls of `yield_now`: about a millisecond."""

MAX_FOLLOWED = 20_000
"""Changed facts that are followed; more of them change so much that both states are compared."""

MAX_ROWS, MAX_STEPS = 1_000_000, 10_000_000
"""Limits of each run that follows them."""

Name = tuple[str | None, RelationSchema]
"""Scope and stored schema of a relation."""


@dataclass(frozen=True, slots=True)
class Stays:
    """The rule for retractions with labels, through a view: they leave what the view admits and the
    labels do not dominate. `stored` is the tenant with all labels; where there is no view, the
    caller holds its read lock.
    """

    stored: Tenant
    view: Labels
    labels: Labels

    def leaves(self, every: Iterable[Labels]) -> bool:
        """Return True if anything that is stored with some of these labels stays."""
        dimensions = self.stored.rules.dimensions()
        return any(
            admits(self.view, each, dimensions) and not dominates(self.labels, each, dimensions)
            for each in every
        )

    def leaves_rule(self, removal: RetractRule) -> bool:
        """Return True if a rule stays."""
        rules = self.stored.rules
        known = rules.get(removal.scope, removal.id)
        return known is not None and self.leaves(rules.labels_of(known))

    def gone(
        self, overlay: Overlay, stored: StoredRelation, rows: array[int], budget: Budget
    ) -> tuple[array[int], int]:
        """Return the symbols of those rows of an overlay that go, and their number."""
        tenant, arity = self.stored, stored.schema.arity
        gone, count = array("I"), 0
        with tenant.lock.read() if self.view else nullcontext():
            partition = tenant.partition(stored.scope)
            whole = None if partition is None else partition.get(stored.schema)
            if whole is None:
                return gone, 0
            for index in budget.paced(range(len(rows) // max(arity, 1)), COMPARED_PER_YIELD):
                row = rows[index * arity : (index + 1) * arity]
                key = tuple(map(tenant.engine.find, overlay.engine.texts(row)))
                if whole.relation.locate(array("I", key), 1)[0] == NO_ROW:
                    continue
                if not self.leaves(labels for labels, _ in details_of(tenant, whole, key)):
                    gone.extend(row)
                    count += 1
        return gone, count


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change to preview: rules and facts to remove, then rules and facts to store.

    The retraction of a fact or rule and the assertion of another one are an edit. `stays` says what
    retractions leave; None if they leave nothing.
    """

    facts: tuple[Fact, ...] = ()
    rules: tuple[Rule, ...] = ()
    retractions: tuple[RetractFact | RetractPattern, ...] = ()
    rule_retractions: tuple[RetractRule, ...] = ()
    stays: Stays | None = None

    def scopes(self, yield_now: YieldNow = go_on) -> set[str | None]:
        """Return the scopes that the change names; None is the base, or every scope for rules."""
        groups = (self.facts, self.rules, self.retractions, self.rule_retractions)
        return {each.scope for group in groups for each in paced(group, yield_now)}


@dataclass(slots=True)
class TruthPreview:
    """The differences in truth that a change would make, in order of dependency.

    The lists have at most as many elements as asked for; `by_predicate` has the full counts of each
    predicate that would change. `truncated` is True if the budget ended the comparison: then
    predicates are missing. `warnings` are about the proposed rules.
    """

    becomes_true: list[TruthChange] = field(default_factory=list)
    becomes_false: list[TruthChange] = field(default_factory=list)
    becomes_undefined: list[TruthChange] = field(default_factory=list)
    by_predicate: list[PredicateChange] = field(default_factory=list)
    truncated: bool = False
    warnings: list[RuleWarning] = field(default_factory=list)

    @property
    def counts(self) -> PreviewCounts:
        """The numbers of changes of all predicates."""
        return PreviewCounts(
            sum(each.becomes_true for each in self.by_predicate),
            sum(each.becomes_false for each in self.by_predicate),
            sum(each.becomes_undefined for each in self.by_predicate),
        )


def rule_retraction(text: str, scope: str | None) -> RetractRule:
    """Return the retraction of a rule given by its id or its text; of a phrase by its id.

    `scope` is for a text that names none. Raises RuleSyntaxError.
    """
    if ":-" not in text:
        return RetractRule(text, scope)
    rule = parse_rule(text)
    return RetractRule(stored_rule(rule).id, rule.scope or scope)


@dataclass(frozen=True, slots=True)
class Staged:
    """A proposal in an overlay of the tenant.

    `written` are the relations that it may have changed, with `journals` of their changes;
    `warnings` are about its rules.
    """

    tenant: Tenant
    overlay: Overlay
    proposal: Proposal
    written: set[Name]
    warnings: list[RuleWarning]
    journals: dict[Name, RowJournal]
    external: ExternalPredicates | None = None

    def compare(self, limit: int, budget: Budget, outcome: TruthPreview) -> None:
        """Add the differences in truth to `outcome`, at most `limit` in each list.

        Conclusions that depend on external predicates are not compared.
        Raises BudgetExceeded, with the differences of the predicates compared before in `outcome`.
        """
        for scope in self._scopes():
            comparison = self._comparison(scope, budget)
            changes = self._found(comparison, budget)
            if changes is None:
                compare_truth(comparison, limit, budget, outcome)
            else:
                list_differences(comparison, changes, limit, budget, outcome)

    def new_conclusions(
        self, schema: RelationSchema, budget: Budget
    ) -> Iterator[tuple[str | None, list[str]]]:
        """Yield the scope and the arguments of each atom of one predicate that becomes true."""
        for scope in self._scopes():
            comparison = self._comparison(scope, budget)
            changes = self._found(comparison, budget, schema)
            if changes is None:
                for args in new_rows(comparison, schema, budget):
                    yield scope, args
            elif schema in changes:
                texts = self.tenant.engine.texts(changes[schema].appeared.symbols)
                for start in range(0, len(texts), schema.arity):
                    yield scope, texts[start : start + schema.arity]

    def _found(
        self, comparison: TruthComparison, budget: Budget, goal: RelationSchema | None = None
    ) -> dict[RelationSchema, Difference] | None:
        """Return the differences of facts and conclusions by stored schema, found from the changes
        of facts; with `goal` only those that this predicate depends on.

        None if they cannot be found in this way. Raises BudgetExceeded if no time is left.
        """
        rules, partition = comparison.after.rules, comparison.after.partition
        if (
            self.proposal.rules
            or self.proposal.rule_retractions
            or rules.negative_components(rules.deniable)
        ):
            return None
        facts = {}
        for (scope, schema), journal in self.journals.items():
            if scope == partition.name:
                if journal.count > MAX_FOLLOWED:
                    return None
                came, gone = journal.peek()
                if came or gone:
                    rows = (RowSet.of(each, schema.arity) for each in (came, gone))
                    facts[schema] = Difference(*rows)
        limits = RunLimits(
            min(MAX_ROWS, budget.limits.rows or MAX_ROWS),
            budget.limits.bytes,
            min(MAX_STEPS, budget.limits.steps or MAX_STEPS),
        )
        within = replace(budget, limits=limits)
        programs = Programs.of(self.tenant)
        try:
            changes = differences(self.overlay, programs, partition, rules, facts, within, goal)
        except BudgetExceeded:
            budget.check_time()
            return None
        if changes is None:
            return None
        stored = {each: rows for each, rows in facts.items() if each not in rules.derived}
        return {**stored, **changes}

    def _comparison(self, scope: str | None, budget: Budget) -> TruthComparison:
        tenant, overlay = self.tenant, self.overlay
        before, after = (
            book.visible(scope, budget.yield_now) for book in (tenant.rules, overlay.rules)
        )
        if self.external is not None:
            before, after = map(self.external.independent, (before, after))
        old, new = (set(budget.paced(each.rules, COMPARED_PER_YIELD)) for each in (before, after))
        return TruthComparison(
            State(tenant, tenant.partition(scope) or tenant.new_partition(scope), before),
            State(overlay, overlay.partition(scope), after),
            frozenset(schema for name, schema in self.written if name == scope),
            frozenset(
                RelationSchema(rule.head.predicate, rule.head.arity, rule.head.positive)
                for rule in budget.paced(old ^ new, COMPARED_PER_YIELD)
            ),
        )

    def _scopes(self) -> list[str | None]:
        """Return the scopes in which something may change: the base first, then by name."""
        scopes = {scope for scope, _ in self.written}
        ruled = {rule.scope for rule in self.proposal.rules}
        ruled |= {removal.scope for removal in self.proposal.rule_retractions}
        if None in ruled:  # such a rule is valid in every scope
            scopes.update(self.tenant.scopes())
        scopes |= ruled
        return sorted(scopes, key=lambda name: (name is not None, name or ""))


@contextmanager
def staged(
    tenant: Tenant,
    proposal: Proposal,
    now: int,
    budget: Budget,
    external: ExternalPredicates | None = None,
) -> Iterator[Staged]:
    """Provide a proposal in an overlay at `now` (epoch milliseconds), except for its facts, which
    the caller adds.

    The caller holds the tenant's read lock. Raises NotFound for an unknown rule; TooLarge; and what
    `RuleBook.check` raises for rules that cannot be stored.
    """
    _check_new_text(tenant, proposal, budget)
    written = {(fact.scope, fact.schema) for fact in budget.paced(proposal.facts, FACTS_PER_YIELD)}
    with staged_for_writing(tenant, proposal, written, now, budget, external) as stage:
        yield stage


@contextmanager
def staged_for_writing(
    tenant: Tenant,
    proposal: Proposal,
    written: set[Name],
    now: int,
    budget: Budget,
    external: ExternalPredicates | None = None,
) -> Iterator[Staged]:
    """Provide a proposal as `staged` does, with facts in the relations `written`, which are to be
    stored afterwards: their texts are limited as those of any write.
    """
    overlay = Overlay(tenant, ReadSet())
    overlay.noting = False
    if proposal.rules or proposal.rule_retractions:
        overlay.plans = PlanCache(tenant.engine)  # plans of proposed rules are used only once
    journals: dict[Name, RowJournal] = {}
    try:
        warnings = _change_rules(overlay, proposal, external, budget)
        overlay.advance(now)
        for scope, schema in written:
            own = overlay.partition(scope).writable(schema)
            journals[scope, schema] = own.journal(needs_all=True)
        for change in budget.paced(proposal.retractions, RETRACTIONS_PER_YIELD):
            written.update(_remove(overlay, change, budget, journals, proposal.stays))
        yield Staged(tenant, overlay, proposal, written, warnings, journals, external)
    finally:
        overlay.drop()


def _check_new_text(tenant: Tenant, proposal: Proposal, budget: Budget) -> None:
    """Raise TooLarge if the proposed facts have too many new constants, which take memory in the
    engine.
    """
    new_text = sum(
        len(arg)
        for fact in budget.paced(proposal.facts, FACTS_PER_YIELD)
        for arg in fact.args
        if not tenant.engine.find(arg)
    )
    if new_text > MAX_NEW_TEXT:
        raise TooLarge(
            "the facts of a preview contain too many constants that no fact has",
            {"limit": "newTextChars", "value": MAX_NEW_TEXT},
        )


def _change_rules(
    overlay: Overlay, proposal: Proposal, external: ExternalPredicates | None, budget: Budget
) -> list[RuleWarning]:
    """Remove and add the proposed rules in an overlay; return warnings about those that are added.

    Raises NotFound for an unknown rule, and what `RuleBook.check` raises.
    """
    if not (proposal.rules or proposal.rule_retractions):
        return []
    book = overlay.writable_rules()
    for removal in budget.paced(proposal.rule_retractions, RETRACTIONS_PER_YIELD):
        target = removal.scope, removal.id
        if proposal.stays is not None and proposal.stays.leaves_rule(removal):
            continue
        if (book.withdraw(*target) or book.remove(*target)) is None:
            raise NotFound(f"no rule '{removal.id}'", {"id": removal.id, "scope": removal.scope})
    added = [stored_rule(rule) for rule in budget.paced(proposal.rules, RULES_PER_YIELD)]
    modes = NO_MODES if external is None else external.modes
    cycles = book.check(added, modes, budget.yield_now)
    budget.yield_now()
    for rule in budget.paced(added, COMPARED_PER_YIELD):
        book.add(rule)
    return [
        *book.endless(added, budget.yield_now),
        *(RuleWarning("negative-recursion", recursion_warning(cycle)) for cycle in cycles),
    ]


def _remove(
    overlay: Overlay,
    change: RetractFact | RetractPattern,
    budget: Budget,
    journals: dict[Name, RowJournal],
    stays: Stays | None,
) -> Iterator[Name]:
    """Remove facts from an overlay, and yield the relations that lost any; begin journals of these.

    Unlike the application of a commit, no fact is read in its external form: a pattern may match
    very many.
    """
    partition = overlay.partition(change.scope)
    terms = change.pattern if isinstance(change, RetractPattern) else change.args
    pattern = goal_pattern(terms, overlay.engine.find)
    if pattern is None:
        return
    for stored in partition.named(change.predicate, len(terms), change.positive):
        if not len(stored.relation.match(pattern, hidden=True, limit=1)[1]):
            continue
        own = partition.writable(stored.schema)
        name = change.scope, stored.schema
        if name not in journals:
            journals[name] = own.journal(needs_all=True)
        rows, ids = own.relation.match(pattern, hidden=True, yield_now=budget.yield_now)
        count = len(ids)
        if stays is not None:
            rows, count = stays.gone(
                overlay, own, rows if terms else array("I", [0] * count), budget
            )
        own.remove(rows, count)
        overlay.changed(count, own)
        yield name
