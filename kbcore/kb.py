"""A knowledge base: the handle on one tenant. HTTP routes and embedding programs call the same methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kbcore.errors import Conflict, InvalidInput, NotFound
from kbcore.explaining import Explaining
from kbcore.reason.aggregate import AggregateOutcome, aggregate
from kbcore.reason.annotate import Answers
from kbcore.reason.ask import Reasoner, terms_of
from kbcore.reason.budget import Budget, Notes
from kbcore.reason.match import matching, sorted_rows
from kbcore.reason.predicates import predicates
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    ChangeSet,
    Delta,
    RetractFact,
    RetractPattern,
    RetractRule,
)
from kbcore.state.facts import AssertOutcome, Fact, FactRows, RetractOutcome, Row
from kbcore.state.partition import Partition
from kbcore.state.rulebook import StoredRule, recursion_warning, stored_rule
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.arity import arity_warnings, rule_statement
from kbplanner.passes.check import check_rule
from kbplanner.terms import Atom, BodyItem, Literal, Rule, Term, Variable

Write = Callable[[list[Row]], bytes]
"""Gives the JSON array of rows, which are used up."""

CONFLICT_STRATEGIES = ("KEEP_BOTH", "REJECT", "NEWEST_WINS", "CONFIDENCE")


class _Outdated(Conflict):
    """What a write was worked out from has changed; it is worked out again."""


@dataclass(frozen=True, slots=True)
class RulesOutcome:
    """The rules as stored, new or there before, and warnings for their author."""

    rules: tuple[StoredRule, ...]
    warnings: tuple[str, ...] = ()


class KnowledgeBase(Explaining):
    """Facts, rules and answers of one tenant.

    Rows are dicts with the keys of the HTTP interface. `scope` is None for the base partition, a name for exactly that
    one, "*" (reads only) for every partition, each reasoned about on its own. Writes return when they are durable.
    """

    # -- writes -------------------------------------------------------------------------------------------------------

    def assert_facts(self, facts: Sequence[Fact], *, conflict: str = "KEEP_BOTH") -> AssertOutcome:
        """Store facts, all or none.

        `conflict` says what happens to a fact whose opposite sign is stored: KEEP_BOTH stores both, REJECT refuses all
        (Conflict), NEWEST_WINS retracts the opposite, CONFIDENCE keeps the one with the higher confidence (unknown
        counts as 1; the new one wins a tie).
        """
        for fact in facts:
            self._writable(fact.scope)
        if conflict not in CONFLICT_STRATEGIES:
            raise InvalidInput.at("conflictStrategy", f"must be one of {', '.join(CONFLICT_STRATEGIES)}")
        if conflict == "KEEP_BOTH":
            delta = self._commit((AssertFacts(tuple(facts)),))
        elif conflict == "REJECT":
            delta = self._commit((AssertFacts(tuple(facts)),), check=lambda: self._refuse_opposites(facts))
        else:
            delta = self._commit_resolved(facts, conflict)
        return AssertOutcome(delta.asserted, delta.updated, delta.at)

    def assert_rows(self, rows: Sequence[FactRows]) -> AssertOutcome:
        """Store many facts that have nothing beside their arguments, all or none; opposites of stored facts are kept."""
        for group in rows:
            self._writable(group.scope)
        delta = self._commit((AssertRows(tuple(rows)),))
        return AssertOutcome(delta.asserted, delta.updated, delta.at)

    def assert_rules(self, rules: Sequence[Rule], facts: Sequence[Fact] = ()) -> RulesOutcome:
        """Teach rules, and store facts with them, all or none.

        Raises InvalidInput (with the variable or the cycle) where a rule cannot be taken.
        """
        warnings = [warning for rule in rules for warning in check_rule(rule)]
        warnings += arity_warnings([rule_statement(rule) for rule in rules], self._known(facts))
        stored = tuple(stored_rule(rule) for rule in rules)
        for scope in (*(rule.scope for rule in rules), *(fact.scope for fact in facts)):
            self._writable(scope)
        changes: tuple[Change, ...] = (AssertRules(tuple(rules)),)
        if facts:
            changes = (*changes, AssertFacts(tuple(facts)))

        cycles: list[tuple[str, ...]] = []

        def check() -> None:
            cycles[:] = self._read_tenant().rules.check(stored)

        self._commit(changes, check=check)
        warnings += self._read_tenant().rules.endless(stored)
        told = [f"{w.message} ({w.hint})" if w.hint else w.message for w in warnings]
        return RulesOutcome(stored, (*told, *map(recursion_warning, cycles)))

    def retract_fact(
        self, predicate: str, args: Sequence[str], *, positive: bool | None = None, scope: str | None = None
    ) -> RetractOutcome:
        """Remove a fact, of one sign or (None) of both; not an error when there is none."""
        self._writable(scope)
        return self._retract(RetractFact(predicate, tuple(args), positive, scope), predicate, tuple(args))

    def retract_pattern(
        self, predicate: str, pattern: Sequence[Term], *, positive: bool | None = None, scope: str | None = None
    ) -> RetractOutcome:
        """Remove the facts that match; variables are wildcards, the same variable asks for equal arguments."""
        self._writable(scope)
        return self._retract(RetractPattern(predicate, tuple(pattern), positive, scope), predicate, tuple(pattern))

    def retract_rule(self, *, id: str | None = None, rule: Rule | None = None, scope: str | None = None) -> StoredRule:
        """Forget a rule by its id or by being equal to it; raises NotFound."""
        if (id is None) == (rule is None):
            raise InvalidInput("name a rule either by id or by head and body", {"fields": {"id": ["id, or head and body"]}})
        if rule is not None:
            id, scope = stored_rule(rule).id, rule.scope
        wanted = RetractRule(id or "", scope)

        def check() -> None:
            if self._read_tenant().rules.get(wanted.scope, wanted.id) is None:
                raise NotFound(f"no rule '{wanted.id}'", {"id": wanted.id, "scope": wanted.scope})

        return self._commit((wanted,), check=check).rules_removed[0]

    # -- reads --------------------------------------------------------------------------------------------------------

    def infer(
        self,
        literal: Literal,
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        min_confidence: float | None = None,
        as_of: int | None = None,
        timeout_ms: int | None = None,
        include_undefined: bool = False,
        notes: Notes | None = None,
    ) -> list[Row]:
        """Answer a goal with facts and rules, rows in answer order, each partition's after the other.

        `as_of` (epoch milliseconds) judges validity at that moment; `notes` are written. With `include_undefined` there are
        also rows for what recursion through negation leaves neither true nor false; their metadata has `truth` "undefined".
        Raises BudgetExceeded.
        """
        budget = self._budget(timeout_ms, notes)
        tenant = self._read_tenant()
        with tenant.lock.read():
            ask = tenant, literal, scope, limit, offset, min_confidence, as_of, budget
            return [row for _, rows in self._answers(*ask, undefined=include_undefined) for row in rows]

    def infer_json(self, literal: Literal, write: Write, **options: Any) -> list[bytes]:
        """The answers of `infer`, with the same options, as a JSON array in parts.

        `write` gives the array of rows that must be told one by one. Raises BudgetExceeded.
        """
        asked = literal.atom
        if literal.negated:
            asked = Atom(asked.predicate, asked.args, not asked.positive)
        special = options.get("as_of") is not None or options.get("min_confidence") is not None
        special = special or options.get("include_undefined", False)
        scope = options.get("scope")
        if not special and scope != ALL_SCOPES and not (literal.negated and asked.ground):
            budget = self._budget(options.get("timeout_ms"), options.get("notes"))
            tenant = self._read_tenant()
            with tenant.lock.read():
                (partition,) = self._partitions(tenant, scope)
                reasoner = self._runtime.reasoner(tenant)
                found = reasoner.written(partition, asked, budget, options.get("limit"), options.get("offset") or 0)
            if found is not None:
                return found
        return [write(self.infer(literal, **options))]

    def query_json(self, atom: Atom, write: Write, **options: Any) -> list[bytes]:
        """The facts of `query_rows`, with the same options, each with its truth value, as a JSON array in parts.

        `write` gives the array of rows that must be told one by one.
        """
        found = None
        scope, limit = options.get("scope"), options.get("limit")
        if options.get("as_of") is None and scope != ALL_SCOPES:
            tenant = self._read_tenant()
            with tenant.lock.read():
                (partition,) = self._partitions(tenant, scope)
                reasoner = self._runtime.reasoner(tenant)
                found = reasoner.written_facts(partition, atom, options.get("positive"), self._budget(None), limit)
        if found is not None:
            return found
        rows = self.query_rows(atom.predicate, terms_of(atom), **options)
        for row in rows:
            row["truthVal"] = not row["negated"]
        return [write(rows)]

    def query_rows(
        self,
        predicate: str,
        args: Sequence[Term],
        *,
        positive: bool | None = None,
        scope: str | None = None,
        limit: int | None = None,
        as_of: int | None = None,
    ) -> list[Row]:
        """Stored facts that match, no rules applied: of one sign, or (None) of both, positive ones first."""
        tenant = self._read_tenant()
        budget = self._budget(None)
        found: list[Row] = []
        with tenant.lock.read():
            for partition in self._partitions(tenant, scope):
                for stored, rows, ids in matching(tenant, partition, predicate, args, positive, as_of):
                    if limit is None:
                        budget.check_answers(len(ids))
                    left = None if limit is None else limit - len(found)
                    found.extend(sorted_rows(tenant, stored, rows, len(ids), left, budget))
        return found

    def aggregate(
        self,
        predicate: str,
        op: str,
        *,
        arg_index: int | None = None,
        pattern: Sequence[Term] | None = None,
        scope: str | None = None,
        skip_non_numeric: bool = False,
        as_of: int | None = None,
    ) -> AggregateOutcome:
        """COUNT, SUM, MIN, MAX or AVG of one argument of the matching stored facts."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            partitions = self._partitions(tenant, scope)
            return aggregate(tenant, partitions, predicate, op.upper(), arg_index, pattern, skip_non_numeric, as_of)

    def predicates(self, scope: str | None = None) -> dict[str, Any]:
        """The schema: predicates with arity, fact and rule counts, and totals."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            return predicates(tenant, self._partitions(tenant, scope), scope)

    def rules(self, scope: str | None = ALL_SCOPES) -> list[StoredRule]:
        """Rules in the order they were taught: all of them, or those that hold in one partition."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            return [rule for rule in tenant.rules.all() if scope == ALL_SCOPES or rule.scope in (None, scope)]

    def bindings(
        self,
        body: Sequence[BodyItem],
        variables: Sequence[Variable],
        *,
        scope: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[tuple[str, ...]]:
        """The values of `variables` for which a body holds, in answer order."""
        budget = self._budget(timeout_ms)

        def solve(reasoner: Reasoner, partition: Partition) -> Answers:
            return reasoner.solve_body(partition, body, variables, budget)

        return self._tuples(scope, len(variables), solve)

    def tuples(self, atom: Atom, *, scope: str | None = None, timeout_ms: int | None = None) -> list[tuple[str, ...]]:
        """The answers of a goal as tuples of names, one for each argument, in answer order."""
        budget = self._budget(timeout_ms)

        def solve(reasoner: Reasoner, partition: Partition) -> Answers:
            return reasoner.solve(partition, atom, budget)

        return self._tuples(scope, atom.arity, solve)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _tuples(self, scope: str | None, arity: int, solve: Any) -> list[tuple[str, ...]]:
        tenant = self._read_tenant()
        found: list[tuple[str, ...]] = []
        with tenant.lock.read():
            reasoner = self._runtime.reasoner(tenant)
            for partition in self._partitions(tenant, scope):
                rows, count = solve(reasoner, partition)
                if not arity:
                    found.extend([()] * count)
                    continue
                texts = tenant.engine.texts(rows)
                found.extend(zip(*[texts[column::arity] for column in range(arity)], strict=True))
        return found

    def _retract(self, change: RetractFact | RetractPattern, predicate: str, args: tuple[Term, ...]) -> RetractOutcome:
        delta = self._commit((change,))
        rows = [row for removed in delta.removed for row in removed.rows]
        budget = self._budget(None)
        tenant = self._read_tenant()
        with tenant.lock.read():
            fell = self._runtime.cascades(tenant).fallen(delta.removed, budget)
            still = self._still_derivable(tenant, change, predicate, args, budget)
        return RetractOutcome(len(rows), rows, fell.count, fell.rows, fell.appeared, still, fell.truncated)

    def _still_derivable(
        self, tenant: Tenant, change: RetractFact | RetractPattern, predicate: str, args: tuple[Term, ...], budget: Budget
    ) -> bool:
        if isinstance(change, RetractPattern):
            return False
        reasoner = self._runtime.reasoner(tenant)
        signs = (True, False) if change.positive is None else (change.positive,)
        return any(
            reasoner.solve(partition, Atom(predicate, args, positive), budget)[1]
            for partition in self._partitions(tenant, change.scope)
            for positive in signs
        )

    def _commit(self, changes: tuple[Change, ...], check: Any = None) -> Delta:
        return self._runtime.commit(ChangeSet(self.database, self.tenant, changes, check))

    def _commit_resolved(self, facts: Sequence[Fact], conflict: str) -> Delta:
        """Let facts win or lose against their opposites. What is logged is the outcome; it is worked out again if the
        opposites have changed by the time of the write."""
        while True:
            changes = self._resolve(facts, conflict)
            try:
                return self._commit(changes, check=partial(self._still, changes, facts, conflict))
            except _Outdated:
                continue

    def _resolve(self, facts: Sequence[Fact], conflict: str) -> tuple[Change, ...]:
        kept: list[Fact] = []
        losers: list[Change] = []
        for fact in facts:
            found = self.query_rows(fact.predicate, fact.args, positive=not fact.positive, scope=fact.scope)
            if found and conflict == "CONFIDENCE":
                known = found[0]["confidence"]
                if (1.0 if known is None else known) > (1.0 if fact.confidence is None else fact.confidence):
                    continue
            if found:
                losers.append(RetractFact(fact.predicate, fact.args, not fact.positive, fact.scope))
            kept.append(fact)
        return (*losers, AssertFacts(tuple(kept)))

    def _still(self, changes: tuple[Change, ...], facts: Sequence[Fact], conflict: str) -> None:
        if self._resolve(facts, conflict) != changes:
            raise _Outdated("the opposites have changed")

    def _refuse_opposites(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            found = self.query_rows(fact.predicate, fact.args, positive=not fact.positive, scope=fact.scope, limit=1)
            if found:
                raise Conflict("the opposite of a fact is stored", {"reason": "contradiction", "fact": found[0]})

    def _known(self, facts: Sequence[Fact]) -> dict[str, set[int]]:
        """Predicates with their arities: those of every partition, and those of facts about to be stored."""
        known: dict[str, set[int]] = {}
        for row in self.predicates(ALL_SCOPES)["predicates"]:
            known.setdefault(row["predicate"], set()).add(row["arity"])
        for fact in facts:
            known.setdefault(fact.predicate, set()).add(len(fact.args))
        return known

    def _writable(self, scope: str | None) -> None:
        if scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "'*' can be read, not written")
