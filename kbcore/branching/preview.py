"""Preview of a change: the facts and conclusions that would become true, false or undefined.

The change is applied to an overlay of the tenant, which shares the relations that the change does
not touch. Nothing is committed, and no other request sees the overlay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kbcore.branching.truth_changes import State, TruthComparison, compare_truth, new_rows
from kbcore.errors import NotFound, TooLarge
from kbcore.reason.budget import Budget
from kbcore.reason.external.predicates import ExternalPredicates
from kbcore.state.changes import RetractFact, RetractPattern, RetractRule
from kbcore.state.facts import Fact
from kbcore.state.overlay import MAX_NEW_TEXT, Overlay, ReadSet
from kbcore.state.rulebook import RULES_PER_YIELD, recursion_warning, stored_rule
from kbcore.state.tenant import Tenant
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

Name = tuple[str | None, RelationSchema]
"""Scope and stored schema of a relation."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change to preview: rules and facts to remove, then rules and facts to store.

    The retraction of a fact or rule and the assertion of another one are an edit.
    """

    facts: tuple[Fact, ...] = ()
    rules: tuple[Rule, ...] = ()
    retractions: tuple[RetractFact | RetractPattern, ...] = ()
    rule_retractions: tuple[RetractRule, ...] = ()

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

    `written` are the relations that it may have changed, `warnings` are about its rules.
    """

    tenant: Tenant
    overlay: Overlay
    proposal: Proposal
    written: set[Name]
    warnings: list[RuleWarning]
    external: ExternalPredicates | None = None

    def compare(self, limit: int, budget: Budget, outcome: TruthPreview) -> None:
        """Add the differences in truth to `outcome`, at most `limit` in each list.

        Conclusions that depend on external predicates are not compared.
        Raises BudgetExceeded, with the differences of the predicates compared before in `outcome`.
        """
        for scope in self._scopes():
            compare_truth(self._comparison(scope, budget), limit, budget, outcome)

    def new_conclusions(
        self, schema: RelationSchema, budget: Budget
    ) -> Iterator[tuple[str | None, list[str]]]:
        """Yield the scope and the arguments of each atom of one predicate that becomes true."""
        for scope in self._scopes():
            for args in new_rows(self._comparison(scope, budget), schema, budget):
                yield scope, args

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
    overlay = Overlay(tenant, ReadSet())
    overlay.noting = False
    overlay.plans = PlanCache(tenant.engine)  # plans of proposed rules are used only once
    try:
        warnings = _change_rules(overlay, proposal, external, budget)
        overlay.advance(now)
        written = {
            (fact.scope, fact.schema) for fact in budget.paced(proposal.facts, FACTS_PER_YIELD)
        }
        for change in budget.paced(proposal.retractions, RETRACTIONS_PER_YIELD):
            written.update(_remove(overlay, change, budget))
        yield Staged(tenant, overlay, proposal, written, warnings, external)
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
    overlay: Overlay, change: RetractFact | RetractPattern, budget: Budget
) -> Iterator[Name]:
    """Remove facts from an overlay, and yield the relations that lost any.

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
        rows, ids = own.relation.match(pattern, hidden=True, yield_now=budget.yield_now)
        own.remove(rows, len(ids))
        overlay.changed(len(ids), own)
        yield change.scope, stored.schema
