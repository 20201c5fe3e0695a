"""Handle on one tenant: the operations that routes and the Python API call."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from kbcore.branching.impact import ImpactGoal, ImpactOutcome, impact_of
from kbcore.branching.places import Keys, ScopePlace, keys_of
from kbcore.branching.preview import DEFAULT_LISTED, Proposal, Stays, TruthPreview, staged
from kbcore.context.proofs.violations import SCHEMA
from kbcore.errors import (
    BudgetExceeded,
    Conflict,
    InvalidInput,
    NotFound,
    NotReady,
    RateLimited,
)
from kbcore.language.rule_review import Known, check_programs
from kbcore.operations.conflicts import (
    KEEP_BOTH,
    ConflictResolver,
    Constraints,
    StoredConstraints,
    StoredFacts,
)
from kbcore.operations.context_windows import ContextWindows
from kbcore.operations.episodes.correction import Corrections
from kbcore.operations.episodes.episodes import Supports, refuse_other_content
from kbcore.operations.goals_in_words import GoalsInWords
from kbcore.operations.history.fact_history import FactHistories
from kbcore.operations.memory import MemoryMethods
from kbcore.operations.natural_language import NaturalLanguage
from kbcore.operations.queries import Queries
from kbcore.operations.receipts import Receipts
from kbcore.operations.rule_sets import RuleSetMethods, set_heads
from kbcore.operations.salience import SalienceMethods
from kbcore.operations.scopes import ScopeMethods
from kbcore.operations.scripts import (
    MAX_ATTEMPTS,
    ScriptBlock,
    ScriptOutcome,
    Signature,
    blocks_of,
    is_mixed,
    run,
)
from kbcore.operations.subscriptions.subscribing import StandingGoalMethods
from kbcore.operations.views import ViewedReads
from kbcore.operations.written_labels import LabelReader, with_declared, without_labels
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.external.predicates import EXTERNAL_PROBLEMS
from kbcore.reason.predicates import predicates
from kbcore.retraction.cascade import Consequences
from kbcore.state.argument_types import check_arguments
from kbcore.state.changes import (
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    Declare,
    Delta,
    EndedFact,
    EndFacts,
    RetractFact,
    RetractPattern,
    RetractRule,
)
from kbcore.state.facts import AssertOutcome, Fact, FactRows, Row
from kbcore.state.labelling import OUTWEIGHED, intervals_seen
from kbcore.state.labels import admits
from kbcore.state.overlay import apply_to_overlay
from kbcore.state.partition import StoredRelation
from kbcore.state.rule_sets import item_key
from kbcore.state.rulebook import (
    RULES_PER_YIELD,
    ParsedDimension,
    ParsedInput,
    ParsedMask,
    ParsedPhrase,
    ParsedRequirement,
    ParsedRule,
    RulesOutcome,
    StoredDefinition,
    recursion_warning,
    stored_declaration,
    stored_rule,
)
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.check.lint import lint
from kbplanner.check.texts import GOAL, KINDS, PROGRAM, StoredProgram, check_goal
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.inputs import Input
from kbplanner.ir.limits import shortened
from kbplanner.ir.masks import Mask
from kbplanner.ir.modes import NO_MODES, Modes
from kbplanner.ir.phrases import Declaration, Definition, declaration_problem
from kbplanner.ir.requirements import Requirement
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import ANONYMOUS, Atom, Rule, Term
from kbplanner.pacing import YieldNow, go_on, in_parts, let_go, paced, yielding
from kbplanner.passes.check import check_rule
from kbplanner.syntax.arity import arity_warnings, rule_statement
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.parser import check_goal_size
from kbplanner.syntax.printer import print_row
from kbtypes.results import Finding, RetractOutcome
from kbtypes.rule_sets import Impact

Declared = TypeVar(
    "Declared", ParsedPhrase, ParsedInput, ParsedMask, ParsedDimension, ParsedRequirement
)

FACTS_PER_YIELD = 2000
PREDICATES_PER_YIELD = 500
"""Facts, and predicates, examined between two calls of `yield_now`: about a millisecond."""


class TenantKB(
    ViewedReads,
    Queries,
    Receipts,
    StandingGoalMethods,
    ScopeMethods,
    SalienceMethods,
    Corrections,
    ContextWindows,
    NaturalLanguage,
    GoalsInWords,
    FactHistories,
    MemoryMethods,
    RuleSetMethods,
):
    """Facts, rules and answers of one tenant.

    Rows are dicts with the keys of the HTTP interface. `scope` is None for the base partition, a
    name for that partition, and "*" (reads only) for every partition, each evaluated separately.
    Writes return when they are durable.
    """

    # -- writes ------------------------------------------------------------------------------------

    def assert_facts(self, facts: Sequence[Fact], *, conflict: str = KEEP_BOTH) -> AssertOutcome:
        """Store facts, all or none.

        `conflict` says what happens to a fact whose opposite is stored, or that has another value
        for a declared `@key`: KEEP_BOTH stores both, REJECT refuses all facts (Conflict),
        NEWEST_WINS prefers the new fact, and CONFIDENCE the fact with the higher confidence (a
        missing confidence counts as 1; the new fact wins a tie). A stored fact that loses ends when
        the winner begins to hold, and stays in the history; a new one is discarded. REJECT also
        refuses facts that violate another declared constraint. Plugins can add strategies.
        """
        yield_now = self._deadline()
        external = self._services.predicates
        if len(facts) == 1:
            fact = facts[0]
            if fact.scope is not None:
                self._check_writable(fact.scope)
            if external is not None and fact.positive:
                signature = fact.predicate, len(fact.args)
                if signature in external.signatures:
                    external.check_new((signature,))
            if fact.evidence:
                facts = self._with_evidence(facts, yield_now=yield_now)
        else:
            parts = partial(in_parts, facts, yield_now, FACTS_PER_YIELD)
            for scope in {fact.scope for part in parts() for fact in part}:
                self._check_writable(scope)
            if external is not None:
                names = {fact.predicate for part in parts() for fact in part}
                if not names.isdisjoint(name for name, _ in external.signatures):
                    external.check_new(
                        {
                            (fact.predicate, len(fact.args))
                            for part in parts()
                            for fact in part
                            if fact.positive
                        }
                    )
            facts = self._with_evidence(facts, yield_now=yield_now)
        self._check_intervals(facts, yield_now)
        is_labelled = _have_labels(facts, yield_now)
        if is_labelled and conflict != KEEP_BOTH:
            return self._with_labels_of(facts, conflict).assert_facts(
                [without_labels(fact) for fact in facts], conflict=conflict
            )
        if is_labelled:
            changes = self._label_reader(()).changes(facts, (), (), yield_now)
            delta = self._commit(changes, yield_now=yield_now)
        elif conflict == KEEP_BOTH:
            delta = self._commit((AssertFacts(tuple(facts)),), yield_now=yield_now)
        else:
            resolver = self._resolver(conflict, (), yield_now)
            delta = resolver.write(facts, partial(self._commit, yield_now=yield_now))
        return AssertOutcome(delta.asserted, delta.updated, delta.at, delta.discarded)

    def assert_rows(self, rows: Sequence[FactRows], *, conflict: str = KEEP_BOTH) -> AssertOutcome:
        """Store many facts without metadata, all or none; `conflict` as for `assert_facts`."""
        yield_now = self._deadline()
        for scope in {group.scope for group in rows}:
            self._check_writable(scope)
        if self._services.predicates is not None:
            self._services.predicates.check_new(
                (group.predicate, group.arity) for group in rows if group.positive
            )
        commit = partial(self._commit, yield_now=yield_now)
        if conflict == KEEP_BOTH:
            delta = commit((AssertRows(tuple(rows)),))
        else:
            delta = self._resolver(conflict, (), yield_now).write_rows(rows, commit)
        return AssertOutcome(delta.asserted, delta.updated, delta.at, delta.discarded)

    def assert_rules(
        self,
        rules: Sequence[Definition],
        facts: Sequence[Fact] = (),
        defined: Iterable[tuple[str, int]] = (),
        supports: Supports | None = None,
        request_limits: RequestLimits | None = None,
        *,
        conflict: str = KEEP_BOTH,
    ) -> RulesOutcome:
        """Store rules and declarations, and facts and their evidence with them, all or none.

        `conflict` is the strategy for the facts, as for `assert_facts`; keys that the rules declare
        count too.

        `defined` are predicates (name, arity) that are about to get facts or rules; no warning
        calls them unknown. Raises InvalidInput, with the variable or the cycle, if a rule is
        refused, and BudgetExceeded if checking them takes longer than the request may.
        """
        episodes = () if supports is None else supports.episodes
        yield_now = self._deadline(request_limits)
        facts = self._with_evidence(facts, episodes, yield_now)
        self._check_intervals(facts, yield_now)
        declarations = _checked_declarations(rules)
        own = [each for each in rules if isinstance(each, Rule)]
        warnings, later = self._rule_warnings(
            own,
            (
                *(
                    (fact.predicate, len(fact.args))
                    for fact in paced(facts, yield_now, FACTS_PER_YIELD)
                ),
                *((each.predicate, each.arity) for each in declarations if isinstance(each, Input)),
                *defined,
            ),
            yield_now,
        )
        if self._services.predicates is not None:
            signatures = _positive_signatures(own, facts, yield_now)
            self._services.predicates.check_new(tuple(signatures))
        stored = tuple(stored_rule(rule) for rule in paced(own, yield_now, RULES_PER_YIELD))
        every = chain(rules, facts)
        for scope in {each.scope for each in paced(every, yield_now, FACTS_PER_YIELD)}:
            self._check_writable(scope)
        is_labelled = _have_labels((*facts, *own), yield_now)
        if is_labelled and conflict != KEEP_BOTH:
            raise InvalidInput.at(
                "conflictStrategy", "beside rules, statements with labels are stored with KEEP_BOTH"
            )
        changes = _definition_changes(() if is_labelled else stored, declarations, supports)
        if is_labelled:
            reader = self._label_reader(declarations)
            changes += reader.changes(facts, own, stored, yield_now)
        elif not facts and not changes:
            changes.append(AssertFacts(()))

        cycles: list[tuple[str, ...]] = []

        def check() -> None:
            if supports is not None and supports.check is not None:
                supports.check()
            tenant = self._read_tenant()
            for each in paced(episodes, yield_now, FACTS_PER_YIELD):
                known = tenant.episodes.get(each.id)
                if (
                    known is not None
                ):  # its time may differ: it is now for each of two calls at once
                    refuse_other_content(replace(each, at=None), known)
            cycles[:] = tenant.rules.check(stored, self._modes(), yield_now)

        def commit(of_facts: tuple[Change, ...], check_facts: Callable[[], None] | None) -> Delta:
            def checks() -> None:
                check()
                if check_facts is not None:
                    check_facts()

            return self._commit((*changes, *of_facts), check=checks, yield_now=yield_now)

        if not facts or is_labelled:
            delta = commit((), None)
        elif conflict == KEEP_BOTH:
            delta = commit((AssertFacts(tuple(facts)),), None)
        else:
            ended = () if supports is None else supports.ended
            delta = self._resolver(conflict, own, yield_now, ended).write(facts, commit)
        warnings += self._read_tenant().rules.endless(stored, self._services.yield_now)
        warnings += [
            RuleWarning("negative-recursion", recursion_warning(cycle)) for cycle in cycles
        ]
        texts = tuple(each.text for each in (*warnings, *later))
        of_rules = iter(stored)
        definitions = tuple(
            next(of_rules) if isinstance(each, Rule) else stored_declaration(each) for each in rules
        )
        return RulesOutcome(
            definitions, texts, delta.asserted, delta.updated, delta.at, delta.discarded
        )

    def _label_reader(self, declarations: Iterable[Declaration]) -> LabelReader:
        """Return the reader of the labels that the text of statements names; `declarations` are in
        the same text.
        """
        tenant = self._stored_tenant()
        dimensions = with_declared(tenant.rules.dimensions(), declarations)
        return LabelReader(self.labels, dimensions, tenant.label_sets)

    def _with_labels_of(self, facts: Sequence[Fact], conflict: str) -> TenantKB:
        """Return a handle that gives facts the labels that all of them name."""
        labels = self._label_reader(()).of_all(facts, ())
        if len(labels) > 1:
            raise InvalidInput.at(
                "conflictStrategy", f"{conflict} is not available for facts of different labels"
            )
        return self._seeing(self._whole_services(), self.view, labels.pop())

    def execute(
        self,
        text: str | Sequence[ScriptBlock],
        *,
        scope: str | None = None,
        request_limits: RequestLimits | None = None,
    ) -> ScriptOutcome:
        """Run a text in the rule language: store its clauses and answer its queries, in order.

        A query (`?- goal.`) sees the clauses before it. Statements may be commands such as
        `ASSERT p(a);`. The text is applied as a whole or not at
        all: an error, or a query over its budget, changes nothing. `scope` is for queries and for
        clauses that name no scope. `request_limits` is the budget of all queries together. The text
        may be the result of `blocks_of`.

        Raises InvalidInput, BudgetExceeded, and Conflict if other writers keep changing what the
        queries read.
        """
        if isinstance(text, str):
            blocks: Sequence[ScriptBlock] = blocks_of(text, scope, self._deadline(request_limits))
        else:
            blocks = text
        mixed = is_mixed(blocks)
        with self._budget(request_limits) as budget:
            for attempts_left in range(MAX_ATTEMPTS, 0, -1):
                try:
                    if not mixed:
                        outcome = run(self, blocks, scope, budget)
                    else:
                        with self._transaction() as transaction:
                            outcome = run(transaction, blocks, scope, budget)
                    break
                except Conflict:
                    if not mixed or not self._can_retry or attempts_left == 1:
                        raise
        outcome.timestamp = self._services.clock.now_ms()
        return outcome

    _can_retry = True
    """True if a group of operations that met a conflict can be retried from the beginning."""

    @contextmanager
    def _transaction(self) -> Iterator[TenantKB]:
        """Yield a knowledge base that stages operations and commits them together at the end.

        Each operation sees the ones before it.
        """
        services = self._whole_services()
        id = services.begin(self.database, self.tenant, self.view)
        with services.in_transaction(
            self.database, self.tenant, id, caller=self._caller
        ) as transaction:
            handle = transaction.seen_as(self.view, self.labels)
            yield handle
            handle.commit()

    def retract_fact(
        self,
        predicate: str,
        args: Sequence[str],
        *,
        positive: bool | None = None,
        scope: str | None = None,
        count: bool = True,
        request_limits: RequestLimits | None = None,
    ) -> RetractOutcome:
        """Remove a fact, of one sign or (None) of both; a fact that does not exist is not an error.

        Without `count` the conclusions that no longer hold are not counted. `request_limits` limits
        the count; over budget it is `truncated`.
        """
        self._check_writable(scope)
        change = RetractFact(predicate, tuple(args), positive, scope)
        return self._retract([change], request_limits, count)

    def retract_pattern(
        self,
        predicate: str,
        pattern: Sequence[Term] | None,
        *,
        positive: bool | None = None,
        scope: str | None = None,
        count: bool = True,
        request_limits: RequestLimits | None = None,
    ) -> RetractOutcome:
        """Remove the facts that match a pattern; None matches any number of arguments.

        Variables are wildcards; a repeated variable requires equal arguments. `count` and
        `request_limits` as for `retract_fact`.
        """
        self._check_writable(scope)
        if pattern is None:
            # Without any fact, one change that matches nothing: a follower must still refuse it.
            arities = sorted(self._arities(predicate, scope)) or [0]
            patterns: list[tuple[Term, ...]] = [(ANONYMOUS,) * arity for arity in arities]
        else:
            patterns = [tuple(pattern)]
        changes = [RetractPattern(predicate, each, positive, scope) for each in patterns]
        return self._retract(changes, request_limits, count)

    def retract_rule(
        self, *, id: str | None = None, rule: Rule | None = None, scope: str | None = None
    ) -> StoredDefinition:
        """Remove a rule, given by its id or as an equal rule, or a declaration by its id.

        The id of a phrase is `@name/arity`, of an input `@name/arity input`. What a rule set
        contains too stays stored. Raises NotFound, and Conflict if only rule sets contain it.
        """
        if (id is None) == (rule is None):
            raise InvalidInput(
                "name a rule either by id or by head and body",
                {"fields": {"id": ["id, or head and body"]}},
            )
        if rule is not None:
            id, scope = stored_rule(rule).id, rule.scope
        change = RetractRule(id or "", scope)

        target = change.scope, change.id

        def check() -> None:
            tenant = self._read_tenant()
            stored = tenant.rules.declaration(*target) or tenant.rules.get(*target)
            if stored is None:
                raise NotFound(f"no rule '{change.id}'", {"id": change.id, "scope": change.scope})
            known[:] = [stored]
            key = item_key(stored)
            names = tenant.rule_sets.sets_of(change.scope, key)
            if names and not tenant.rule_sets.by_hand_with(change.scope, key):
                raise Conflict(
                    f"the rule '{change.id}' is in the rule set '{names[0]}': deploy it without the"
                    " rule",
                    {"id": change.id, "ruleSets": names},
                )

        known: list[StoredDefinition] = []
        self._commit((change,), check=check)
        return known[0]

    # -- reads -------------------------------------------------------------------------------------

    def predicates(self, scope: str | None = None) -> dict[str, Any]:
        """Return the schema: predicates with arity, fact and rule counts, and totals."""
        tenant, yield_now = self._read_tenant(), self._deadline()
        with tenant.lock.read():
            return predicates(tenant, self._partitions(tenant, scope), scope, yield_now)

    def check(
        self,
        text: str,
        *,
        kind: str = PROGRAM,
        scope: str | None = None,
        request_limits: RequestLimits | None = None,
    ) -> list[Finding]:
        """Return every error and warning of a text beside what is stored; store nothing.

        `kind` is PROGRAM for facts, rules and queries, GOAL for one goal without `?-` and dot.
        `scope` is for rules that name none. Raises InvalidInput for another kind or scope, and
        BudgetExceeded if the check takes longer than the request may.
        """
        if kind not in KINDS:
            raise InvalidInput.at("kind", f"must be one of {', '.join(KINDS)}")
        self._check_writable(scope)
        yield_now = self._deadline(request_limits)
        tenant = self._read_tenant()
        with tenant.lock.read():
            sets = set_heads(tenant.rule_sets, scope, yield_now)
        stored = StoredProgram(
            self.known_predicates(yield_now),
            tuple(each.rule for each in paced(self.rules(), yield_now)),
            self._modes(),
            {name: frozenset(names) for name, names in paced(sets.items(), yield_now)},
            tenant.rules.dimensions(),
        )
        with yielding(yield_now):
            if kind == GOAL:
                check_goal_size(text, "text")
                return check_goal(text, stored, yield_now=yield_now)
            return check_programs([text], stored, scope, yield_now)[0]

    def preview(
        self,
        proposal: Proposal,
        *,
        limit: int = DEFAULT_LISTED,
        request_limits: RequestLimits | None = None,
    ) -> TruthPreview:
        """Return the facts and conclusions that would become true, false or undefined if a change
        were made.

        Nothing is stored. Each list has at most `limit` elements; the counts are complete, unless
        the preview is `truncated` because the budget ended it. Raises NotFound for an unknown rule,
        and InvalidInput as `assert_rules` does and for facts with arguments of wrong types.
        """
        deadline = self._deadline(request_limits)
        for scope in proposal.scopes(deadline):
            self._check_writable(scope)
        proposal, asserted = self._as_labelled(proposal, deadline)
        tenant = self._read_tenant()
        check_arguments(tenant, asserted, self._services.clock.now_ms(), deadline)
        warnings, later = self._rule_warnings(
            proposal.rules,
            {(fact.predicate, len(fact.args)) for fact in paced(proposal.facts, deadline)},
            deadline,
        )
        outcome = TruthPreview()
        try:
            with self._reads(request_limits) as (tenant, budget):
                now = tenant.at(self._services.clock.now_ms())
                external = self._services.predicates
                with staged(tenant, proposal, now, budget, external) as stage:
                    warnings += stage.warnings
                    apply_to_overlay(stage.overlay, asserted, now, budget.yield_now)
                    stage.compare(limit, budget, outcome)
        except BudgetExceeded:
            outcome.truncated = True
        outcome.warnings = [*warnings, *later]
        return outcome

    def _as_labelled(
        self, proposal: Proposal, yield_now: YieldNow
    ) -> tuple[Proposal, tuple[Change, ...]]:
        """Return what a proposal changes in what this handle sees, and the changes that store its
        facts.

        What the view does not admit is not stored, and what the labels do not dominate stays.
        Raises what `_label_reader` raises for labels in the text.
        """
        facts, rules = proposal.facts, proposal.rules
        if not (self.view or self.labels or _have_labels((*facts, *rules), yield_now)):
            return proposal, (AssertFacts(facts),)
        reader = self._label_reader(())
        dimensions = self._stored_tenant().rules.dimensions()

        def is_seen(statement: Fact | Rule, kind: str) -> bool:
            return admits(self.view, reader.labels(statement.labels, kind), dimensions)

        facts = tuple(each for each in paced(facts, yield_now) if is_seen(each, "fact"))
        rules = tuple(each for each in paced(rules, yield_now) if is_seen(each, "rule"))
        admitted = replace(
            proposal,
            facts=tuple(map(without_labels, facts)),
            rules=tuple(replace(each, labels=()) for each in rules),
            stays=Stays(self._stored_tenant(), self.view, self.labels) if self.labels else None,
        )
        if self.view:  # what a view shows has no labels
            return admitted, (AssertFacts(admitted.facts),)
        return admitted, reader.changes(facts, (), (), yield_now)

    def _impact(self, proposal: Proposal, scope: str | None, goals: Sequence[ImpactGoal]) -> Impact:
        """Implement `RuleSetMethods._impact`."""
        external = self._services.predicates

        def evaluate(tenant: Tenant, budget: Budget) -> Impact:
            for goal in goals:
                self._refuse_required(goal.body, tenant, "impactGoals")
            now = tenant.at(self._services.clock.now_ms())
            with staged(tenant, proposal, now, budget, external) as stage:
                asserted = (AssertFacts(proposal.facts),)
                apply_to_overlay(stage.overlay, asserted, now, budget.yield_now)
                return impact_of(stage, scope, goals, self._services.reasoner, budget)

        try:
            return self._evaluated(evaluate, None)
        except BudgetExceeded:  # before anything was compared
            return ImpactOutcome(truth=TruthPreview(truncated=True)).written()

    def known_predicates(self, yield_now: YieldNow = go_on) -> Known:
        """Return the predicates of every partition with their arities; `yield_now` is called about
        once a millisecond.
        """
        known: Known = {}
        tenant = self._read_tenant()
        with tenant.lock.read():
            for partition in self._partitions(tenant, ALL_SCOPES):
                for stored in paced(partition.relations(), yield_now, PREDICATES_PER_YIELD):
                    if stored.relation.counts().visible:
                        known.setdefault(stored.schema.predicate, set()).add(stored.schema.arity)
            for rule in paced(tenant.rules.all(), yield_now, PREDICATES_PER_YIELD):
                head = rule.rule.head
                known.setdefault(head.predicate, set()).add(head.arity)
            for name, arity in tenant.rules.inputs(None, all_scopes=True):
                known.setdefault(name, set()).add(arity)
        return known

    def rules(self, scope: str | None = ALL_SCOPES) -> list[ParsedRule]:
        """Return rules in the order in which they were stored, of all partitions or of one."""
        self._check_scope(scope)
        tenant = self._read_tenant()
        with tenant.lock.read():
            labels = tenant.rules.labels
            return [
                replace(rule, labels=labels[rule.scope, rule.id])
                if (rule.scope, rule.id) in labels
                else rule
                for rule in tenant.rules.all()
                if scope == ALL_SCOPES or rule.scope in (None, scope)
            ]

    def phrases(self, scope: str | None = ALL_SCOPES) -> list[ParsedPhrase]:
        """Return the declared phrases in their order, of all partitions or those used in one."""
        return self._declared(ParsedPhrase, scope)

    def inputs(self, scope: str | None = ALL_SCOPES) -> list[ParsedInput]:
        """Return the declared inputs in their order, of all partitions or those used in one."""
        return self._declared(ParsedInput, scope)

    def masks(self, scope: str | None = ALL_SCOPES) -> list[ParsedMask]:
        """Return the declared masks in their order, of all partitions or those used in one."""
        return self._declared(ParsedMask, scope)

    def dimensions(self, scope: str | None = ALL_SCOPES) -> list[ParsedDimension]:
        """Return the declared levels and groups of labels in their order."""
        return self._declared(ParsedDimension, scope)

    def requirements(self, scope: str | None = ALL_SCOPES) -> list[ParsedRequirement]:
        """Return the levels that answers of predicates require, in their order."""
        return self._declared(ParsedRequirement, scope)

    # -- inside ------------------------------------------------------------------------------------

    def _declared(self, kind: type[Declared], scope: str | None) -> list[Declared]:
        tenant = self._read_tenant()
        with tenant.lock.read():
            return [
                each
                for each in tenant.rules.declarations()
                if isinstance(each, kind) and (scope == ALL_SCOPES or each.scope in (None, scope))
            ]

    def _modes(self) -> Modes:
        """Return the modes of the predicates that plugins provide."""
        external = self._services.predicates
        return NO_MODES if external is None else external.modes

    def _rule_warnings(
        self, rules: Sequence[Rule], defined: Iterable[Signature], yield_now: YieldNow
    ) -> tuple[list[RuleWarning], list[RuleWarning]]:
        """Return the warnings of the check of each rule, and those of the lint, which follow all
        others.

        `defined` are predicates that get facts or rules with these. `yield_now` is called about
        once a millisecond. Raises InvalidInput for a rule that is refused.
        """
        if not rules:
            return [], []
        checks = [
            warning
            for rule in paced(rules, yield_now, RULES_PER_YIELD)
            for warning in check_rule(rule)
        ]
        statements = [rule_statement(rule) for rule in paced(rules, yield_now, RULES_PER_YIELD)]
        known = self.known_predicates(yield_now)
        for name, arity in defined:
            known.setdefault(name, set()).add(arity)
        external = self._services.predicates
        provided = () if external is None else external.signatures
        later = [
            *lint(paced(statements, yield_now, RULES_PER_YIELD)),
            *arity_warnings(statements, known, provided, yield_now=yield_now),
        ]
        let_go(known, yield_now)
        return checks, later

    def _arities(self, predicate: str, scope: str | None) -> set[int]:
        """Return the arities of the stored relations of a predicate."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            return {
                stored.schema.arity
                for partition in self._partitions(tenant, scope)
                for stored in partition.relations()
                if stored.schema.predicate == predicate
            }

    def _retract(
        self,
        changes: Sequence[RetractFact | RetractPattern],
        request_limits: RequestLimits | None,
        count: bool,
    ) -> RetractOutcome:
        """Retract, then count the conclusions that no longer hold if `count` is True.

        The retraction is committed before the count, so running out of budget only truncates the
        count.
        """
        if count:
            self._prepare_count(frozenset(change.scope for change in changes), request_limits)
        delta = self._commit(tuple(changes))
        rows = [row for removed in delta.removed for row in removed.rows]
        consequences, still_derivable = Consequences(), False

        def evaluate(tenant: Tenant, budget: Budget) -> bool:
            nonlocal consequences
            consequences = Consequences()
            if count:
                self._services.cascades(tenant).count(delta.removed, budget, consequences)
            return any(self._still_derivable(tenant, change, budget) for change in changes)

        try:
            still_derivable = self._evaluated(evaluate, request_limits)
        except (BudgetExceeded, RateLimited, NotReady, *EXTERNAL_PROBLEMS):
            consequences.truncated = True
        return RetractOutcome(
            len(rows),
            consequences.count,
            rows,
            consequences.rows,
            consequences.appeared,
            still_derivable,
            consequences.truncated,
            count,
        )

    def _prepare_count(
        self, scopes: frozenset[str | None], request_limits: RequestLimits | None
    ) -> None:
        """Make it possible to count from kept conclusions; without success it is counted in another
        way.
        """

        def prepare(tenant: Tenant, budget: Budget) -> None:
            self._services.cascades(tenant).prepare(scopes, budget)

        if self._services.cascades(self._read_tenant()).are_behind(scopes):
            with suppress(BudgetExceeded, RateLimited, NotReady):
                self._evaluated(prepare, request_limits)

    def _still_derivable(
        self,
        tenant: Tenant,
        change: RetractFact | RetractPattern,
        budget: Budget,
    ) -> bool:
        if isinstance(change, RetractPattern):
            return False
        reasoner = self._services.reasoner(tenant)
        signs = (True, False) if change.positive is None else (change.positive,)
        return any(
            reasoner.solve(partition, Atom(change.predicate, change.args, positive), budget)[1]
            for partition in self._partitions(tenant, change.scope)
            for positive in signs
        )

    def _constraints(self) -> Constraints:
        """Return what refuses facts that violate a declared constraint."""
        return StoredConstraints(
            lambda: self._of_own_labels()._reads(None),
            self._stored_tenant,
            self._services.clock,
            self._services.predicates,
        )

    def _resolver(
        self,
        conflict: str,
        new_rules: Sequence[Rule],
        yield_now: YieldNow,
        ended: Sequence[EndedFact] = (),
    ) -> ConflictResolver:
        """Return the writer of facts of a strategy; `new_rules` are stored with the facts, and
        `ended` end with them: one that ends before it begins was never true and is no rival.
        """
        ends = {each.key: each.until for each in ended if each.until is not None}

        def is_rival(row: Row) -> bool:
            key = row["scope"], row["predicate"], tuple(row["args"]), not row["negated"]
            return key not in ends or row["validFrom"] < ends[key]

        return ConflictResolver(
            conflict,
            self._services.plugins.conflict_strategies(),
            StoredFacts(
                lambda scope: self._keys(scope, new_rules),
                lambda fact, claim: list(filter(is_rival, self._intervals(fact, claim, yield_now))),
                self._has_relation,
                self._holding_rivals,
                self._state,
            ),
            self._constraints(),
            self._services.clock,
            yield_now,
        )

    def _has_relation(self, scope: str | None, schema: RelationSchema) -> bool:
        """Return False if a scope has no fact of a schema."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            (partition,) = self._partitions(tenant, scope)
            return bool(partition.named(schema.predicate, schema.arity, schema.positive))

    def _holding_rivals(
        self, group: FactRows, places: Sequence[tuple[Sequence[int], RelationSchema]], now: int
    ) -> list[list[tuple[int, tuple[str, ...], int | None]]]:
        """Return for each place, which is columns and a schema, the stored facts of the schema that
        hold at `now` or later and have the arguments of a fact of the group in the columns: each
        with the index of that fact, its own arguments, and its beginning.

        The beginning is None, and there are no arguments, where only a look at its intervals tells:
        it begins later or was stated again then, or facts of the relation have labels.
        """
        tenant = self._stored_tenant()
        with tenant.lock.read():
            (partition,) = self._partitions(tenant, group.scope)
            symbols = tenant.engine.find_many(group.args)
            holding: list[list[tuple[int, tuple[str, ...], int | None]]] = []
            for columns, schema in places:
                stored = partition.get(schema)
                if stored is None or not stored.relation.counts().live:
                    holding.append([])
                    continue
                ids, numbers = _matching(stored, symbols, columns)
                if self.labels or stored.has_labels:
                    holding.append([(number, (), None) for number in numbers])
                else:
                    holding.append(list(stored.holding(tenant.engine, ids, numbers, now)))
        return holding

    def _state(self) -> tuple[Tenant, int]:
        """Return what identifies the stored facts and rules: equal as long as they are the same."""
        tenant = self._stored_tenant()
        return tenant, tenant.version

    def _keys(self, scope: str | None, new_rules: Sequence[Rule]) -> Keys:
        """Return the keys of a scope that stored rules and new ones declare."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            rules = tenant.rules.visible(scope)
        known = rules.rules if SCHEMA in rules.derived else ()
        return keys_of(chain(known, (rule for rule in new_rules if rule.scope in (None, scope))))

    def _check_intervals(self, facts: Sequence[Fact], yield_now: YieldNow) -> None:
        """Raise InvalidInput for a fact whose interval is empty.

        Without `valid_from` a fact begins now, or at the beginning that it has if it is stored.
        """
        ending = [
            fact
            for part in in_parts(facts, yield_now, FACTS_PER_YIELD)
            for fact in part
            if fact.valid_until is not None
        ]
        for fact in paced(ending, yield_now, FACTS_PER_YIELD):
            until, start = fact.valid_until or 0, fact.valid_from
            if start is None and until <= self._services.clock.now_ms():
                start = max(
                    (row["validFrom"] for row in self._intervals(fact, None, yield_now)),
                    default=until,
                )
            if start is not None and until <= start:
                text = print_row(fact.predicate, fact.args, not fact.positive)
                raise InvalidInput.at(
                    "validUntil",
                    "must be after validFrom, which is now for a new fact without one, in"
                    f" {shortened(text)}",
                )

    def _intervals(self, fact: Fact, claim: ScopePlace | None, yield_now: YieldNow) -> list[Row]:
        """Return a row for each interval of the rivals of a fact at a place, or (None) of the fact
        itself, the oldest interval of a fact first.

        Rivals that not all readers of what is written may see are marked as OUTWEIGHED; the fact
        itself is left out where it has such labels.
        """
        positive = fact.positive if claim is None else claim.sign_of_rivals(fact)
        tenant = self._stored_tenant()
        with tenant.lock.read():
            (partition,) = self._partitions(tenant, fact.scope)
            stored = partition.named(fact.predicate, len(fact.args), positive)
            if not stored:
                return []
            pattern = fact.args if claim is None else claim.pattern
            symbols = goal_pattern(pattern, tenant.find)
            if symbols is None:
                return []
            rows, ids = stored[0].relation.match(symbols, hidden=True, yield_now=yield_now)
            if self.labels or stored[0].has_labels:
                matching = rows, ids
                intervals = intervals_seen(tenant, stored[0], matching, self.view, self.labels)
            else:
                intervals = stored[0].intervals(tenant.engine, rows, ids)
        if claim is None:
            return [row for row in intervals if OUTWEIGHED not in row]
        return [row for row in intervals if claim.are_rivals(fact, row["args"], not row["negated"])]


def _matching(
    stored: StoredRelation, symbols: array[int], columns: Sequence[int]
) -> tuple[array[int], array[int]]:
    """Return the ids of stored rows that have the values of given rows in some columns, and for
    each id the index of that row; symbols that are 0 stand for values that no row has.
    """
    arity = stored.schema.arity
    patterns = array("I", bytes(symbols.itemsize * len(symbols)))
    for column in columns:
        patterns[column::arity] = symbols[column::arity]
    count = len(symbols) // arity
    chosen = (patterns[column::arity] for column in columns)
    known = [index for index, values in enumerate(zip(*chosen, strict=True)) if all(values)]
    if len(known) < count:
        rows = (patterns[index * arity : (index + 1) * arity] for index in known)
        patterns = array("I", chain.from_iterable(rows))
    ids, numbers = stored.relation.match_many(patterns, len(known), hidden=True)
    return ids, array("I", [known[number] for number in numbers])


def _have_labels(statements: Sequence[Fact | Rule], yield_now: YieldNow) -> bool:
    """Return True if the text of any statement names labels."""
    return any(each.labels for each in paced(statements, yield_now, FACTS_PER_YIELD))


def _positive_signatures(
    rules: Sequence[Rule], facts: Sequence[Fact], yield_now: YieldNow
) -> Iterator[tuple[str, int]]:
    """Yield the predicates (name, arity) of positive heads and facts."""
    for rule in paced(rules, yield_now, FACTS_PER_YIELD):
        if rule.head.positive:
            yield rule.head.predicate, rule.head.arity
    for fact in paced(facts, yield_now, FACTS_PER_YIELD):
        if fact.positive:
            yield fact.predicate, len(fact.args)


def _definition_changes(
    rules: tuple[ParsedRule, ...],
    declarations: Sequence[Declaration],
    supports: Supports | None,
) -> list[Change]:
    """Return the changes that store rules and declarations, and the evidence of facts."""
    changes: list[Change] = []
    if supports is not None and supports.episodes:
        changes.append(AddEpisodes(supports.episodes))
    if rules:
        changes.append(AssertRules(rules))
    if supports is not None and supports.known:
        changes.append(AddEvidence(supports.known))
    if supports is not None and supports.ended:
        changes.append(EndFacts(supports.ended))
    if declarations:
        changes.append(Declare(tuple(declarations)))
    return changes


def _checked_declarations(definitions: Iterable[Definition]) -> list[Declaration]:
    """Return the declarations among definitions; raises InvalidInput for one with a mistake."""
    declarations = [each for each in definitions if not isinstance(each, Rule)]
    for each in declarations:
        if problem := declaration_problem(each):
            kinds = {Input: "input", Mask: "mask of", Requirement: "requirement of"}
            kind = kinds.get(type(each), "phrase of")
            raise InvalidInput(f"the {kind} {each.signature}: {problem}")
    return declarations
