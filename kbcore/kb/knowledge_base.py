"""Knowledge base: the handle on one tenant that HTTP routes and embedding programs share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kbcore.errors import (
    BudgetExceeded,
    Conflict,
    InvalidInput,
    NotFound,
    NotReady,
    RateLimited,
)
from kbcore.kb.conflicts import KEEP_BOTH, ConflictResolver
from kbcore.kb.context_windows import ContextWindows
from kbcore.kb.memory import Memory
from kbcore.kb.natural_language import NaturalLanguage
from kbcore.kb.proofs import Proofs
from kbcore.kb.queries import Queries
from kbcore.kb.scopes import Scopes
from kbcore.kb.scripts import MAX_ATTEMPTS, Block, Executed, blocks_of, run
from kbcore.language.rule_review import Known, known_predicates
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.predicates import predicates
from kbcore.retraction.cascade import Consequences
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    RetractFact,
    RetractPattern,
    RetractRule,
)
from kbcore.state.facts import AssertOutcome, Fact, FactRows, RetractOutcome, Row
from kbcore.state.rulebook import RulesOutcome, StoredRule, recursion_warning, stored_rule
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.terms import Atom, Rule, Term
from kbplanner.passes.check import check_rule
from kbplanner.syntax.arity import arity_warnings, rule_statement
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.lint import lint


class KnowledgeBase(Queries, Proofs, Scopes, Memory, ContextWindows, NaturalLanguage):
    """Facts, rules and answers of one tenant.

    Rows are dicts with the keys of the HTTP interface. `scope` is None for the base partition, a
    name for that partition, and "*" (reads only) for every partition, each evaluated separately.
    Writes return when they are durable.
    """

    # -- writes ------------------------------------------------------------------------------------

    def assert_facts(self, facts: Sequence[Fact], *, conflict: str = KEEP_BOTH) -> AssertOutcome:
        """Store facts, all or none.

        `conflict` says what happens to a fact whose opposite is stored: KEEP_BOTH stores both,
        REJECT refuses all facts (Conflict), NEWEST_WINS retracts the opposite, and CONFIDENCE keeps
        the fact with the higher confidence (a missing confidence counts as 1; the new fact wins a
        tie). Plugins can add strategies.
        """
        for fact in facts:
            self._check_writable(fact.scope)
        if conflict == KEEP_BOTH:
            delta = self._commit((AssertFacts(tuple(facts)),))
        else:
            strategies = self._services.plugins.conflict_strategies()
            resolver = ConflictResolver(
                conflict, strategies, self._stored_opposite, self._services.clock
            )
            delta = resolver.write(facts, self._commit)
        return AssertOutcome(delta.asserted, delta.updated, delta.at)

    def assert_rows(self, rows: Sequence[FactRows]) -> AssertOutcome:
        """Store many facts without metadata, all or none; opposites of stored facts are kept."""
        for group in rows:
            self._check_writable(group.scope)
        delta = self._commit((AssertRows(tuple(rows)),))
        return AssertOutcome(delta.asserted, delta.updated, delta.at)

    def assert_rules(
        self,
        rules: Sequence[Rule],
        facts: Sequence[Fact] = (),
        defined: Iterable[tuple[str, int]] = (),
    ) -> RulesOutcome:
        """Store rules, and facts with them, all or none.

        `defined` are predicates (name, arity) that are about to get facts or rules; no warning
        calls them unknown. Raises InvalidInput, with the variable or the cycle, if a rule is
        refused.
        """
        warnings = [warning for rule in rules for warning in check_rule(rule)]
        statements = [rule_statement(rule) for rule in rules]
        known = self.known_predicates()
        for name, arity in (*((fact.predicate, len(fact.args)) for fact in facts), *defined):
            known.setdefault(name, set()).add(arity)
        later = [*lint(statements), *arity_warnings(statements, known)]
        stored = tuple(stored_rule(rule) for rule in rules)
        for scope in (*(rule.scope for rule in rules), *(fact.scope for fact in facts)):
            self._check_writable(scope)
        changes: tuple[Change, ...] = (AssertRules(tuple(rules)),)
        if facts:
            changes = (*changes, AssertFacts(tuple(facts)))

        cycles: list[tuple[str, ...]] = []

        def check() -> None:
            cycles[:] = self._read_tenant().rules.check(stored)

        delta = self._commit(changes, check=check)
        warnings += self._read_tenant().rules.endless(stored)
        warnings += [
            RuleWarning("negative-recursion", recursion_warning(cycle)) for cycle in cycles
        ]
        texts = [f"{w.message} ({w.hint})" if w.hint else w.message for w in (*warnings, *later)]
        return RulesOutcome(stored, tuple(texts), delta.asserted)

    def execute(
        self,
        text: str | Sequence[Block],
        *,
        scope: str | None = None,
        request_limits: RequestLimits | None = None,
    ) -> Executed:
        """Run a text in the rule language: store its clauses and answer its queries, in order.

        A query (`?- goal.`) sees the clauses before it. The text is applied as a whole or not at
        all: an error, or a query over its budget, changes nothing. `scope` is for queries and for
        clauses that name no scope. `request_limits` is the budget of all queries together. The text
        may be the result of `blocks_of`.

        Raises InvalidInput, BudgetExceeded, and Conflict if other writers keep changing what the
        queries read.
        """
        blocks = blocks_of(text, scope) if isinstance(text, str) else text
        mixed = (len(blocks) > 1 and any(block.clauses for block in blocks)) or any(
            block.clauses and block.goal for block in blocks
        )
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
    def _transaction(self) -> Iterator[KnowledgeBase]:
        """Yield a knowledge base that stages operations and commits them together at the end.

        Each operation sees the ones before it.
        """
        id = self._services.begin(self.database, self.tenant)
        with self._services.in_transaction(
            self.database, self.tenant, id, caller=self._caller
        ) as transaction:
            yield transaction
            transaction.commit()

    def retract_fact(
        self,
        predicate: str,
        args: Sequence[str],
        *,
        positive: bool | None = None,
        scope: str | None = None,
        request_limits: RequestLimits | None = None,
    ) -> RetractOutcome:
        """Remove a fact, of one sign or (None) of both; a fact that does not exist is not an error.

        `request_limits` limits the count of conclusions that no longer hold; over budget the count
        is `truncated`.
        """
        self._check_writable(scope)
        return self._retract(
            RetractFact(predicate, tuple(args), positive, scope),
            predicate,
            tuple(args),
            request_limits,
        )

    def retract_pattern(
        self,
        predicate: str,
        pattern: Sequence[Term],
        *,
        positive: bool | None = None,
        scope: str | None = None,
        request_limits: RequestLimits | None = None,
    ) -> RetractOutcome:
        """Remove the facts that match a pattern.

        Variables are wildcards; a repeated variable requires equal arguments.
        """
        self._check_writable(scope)
        return self._retract(
            RetractPattern(predicate, tuple(pattern), positive, scope),
            predicate,
            tuple(pattern),
            request_limits,
        )

    def retract_rule(
        self, *, id: str | None = None, rule: Rule | None = None, scope: str | None = None
    ) -> StoredRule:
        """Remove a rule, given by its id or as an equal rule; raises NotFound."""
        if (id is None) == (rule is None):
            raise InvalidInput(
                "name a rule either by id or by head and body",
                {"fields": {"id": ["id, or head and body"]}},
            )
        if rule is not None:
            id, scope = stored_rule(rule).id, rule.scope
        change = RetractRule(id or "", scope)

        def check() -> None:
            if self._read_tenant().rules.get(change.scope, change.id) is None:
                raise NotFound(f"no rule '{change.id}'", {"id": change.id, "scope": change.scope})

        return self._commit((change,), check=check).rules_removed[0]

    # -- reads -------------------------------------------------------------------------------------

    def predicates(self, scope: str | None = None) -> dict[str, Any]:
        """Return the schema: predicates with arity, fact and rule counts, and totals."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            return predicates(tenant, self._partitions(tenant, scope), scope)

    def known_predicates(self) -> Known:
        """Return the predicates of every partition with their arities."""
        return known_predicates(self.predicates(ALL_SCOPES)["predicates"])

    def rules(self, scope: str | None = ALL_SCOPES) -> list[StoredRule]:
        """Return rules in the order in which they were stored, of all partitions or of one."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            return [
                rule
                for rule in tenant.rules.all()
                if scope == ALL_SCOPES or rule.scope in (None, scope)
            ]

    # -- inside ------------------------------------------------------------------------------------

    def _retract(
        self,
        change: RetractFact | RetractPattern,
        predicate: str,
        args: tuple[Term, ...],
        request_limits: RequestLimits | None,
    ) -> RetractOutcome:
        """Retract, then count the conclusions that no longer hold.

        The retraction is committed before the count, so running out of budget only truncates the
        count.
        """
        delta = self._commit((change,))
        rows = [row for removed in delta.removed for row in removed.rows]
        consequences, still_derivable = Consequences(), False
        try:
            with self._reads(request_limits) as (tenant, budget):
                self._services.cascades(tenant).count(delta.removed, budget, consequences)
                still_derivable = self._still_derivable(tenant, change, predicate, args, budget)
        except (BudgetExceeded, RateLimited, NotReady):
            consequences.truncated = True
        return RetractOutcome(
            len(rows),
            rows,
            consequences.count,
            consequences.rows,
            consequences.appeared,
            still_derivable,
            consequences.truncated,
        )

    def _still_derivable(
        self,
        tenant: Tenant,
        change: RetractFact | RetractPattern,
        predicate: str,
        args: tuple[Term, ...],
        budget: Budget,
    ) -> bool:
        if isinstance(change, RetractPattern):
            return False
        reasoner = self._services.reasoner(tenant)
        signs = (True, False) if change.positive is None else (change.positive,)
        return any(
            reasoner.solve(partition, Atom(predicate, args, positive), budget)[1]
            for partition in self._partitions(tenant, change.scope)
            for positive in signs
        )

    def _stored_opposite(self, fact: Fact) -> Row | None:
        rows = self.query_rows(
            fact.predicate, fact.args, positive=not fact.positive, scope=fact.scope, limit=1
        )
        return rows[0] if rows else None
