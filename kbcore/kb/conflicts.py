"""Conflict strategies: decisions about facts whose opposite is stored, or that violate a constraint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from kbcore.branching.merge import constant_decision, resolution_of
from kbcore.branching.preview import Proposal, staged
from kbcore.clock import Clock
from kbcore.context.goals.violations import SCHEMA, Violation
from kbcore.durable.transactions import apply_to_overlay
from kbcore.errors import Conflict, InvalidInput, PluginFailed
from kbcore.plug.ports import Keep, MergeConflict, MergeStrategy, Standing
from kbcore.reason.budget import Budget
from kbcore.reason.external.predicates import ExternalPredicates
from kbcore.state.changes import AssertFacts, Change, Delta, Outdated, RetractFact
from kbcore.state.facts import Fact, Row
from kbcore.state.tenant import Tenant

KEEP_BOTH = "KEEP_BOTH"
"""The default strategy: a fact and its opposite are both stored."""

Commit = Callable[[tuple[Change, ...], "Callable[[], None] | None"], Delta]
"""Function that commits changes if a check does not raise."""

Reads = Callable[[], AbstractContextManager[tuple[Tenant, Budget]]]
"""Function that opens a read of the tenant."""


class Constraints(Protocol):
    """The declared constraints of a tenant."""

    def guarded(self, facts: Sequence[Fact], commit: Commit, check: Callable[[], None]) -> Delta:
        """Commit facts if they violate no constraint and `check` does not raise.

        Raises Conflict for a violation that there was not before, and Outdated if the knowledge base
        changed in the meantime.
        """
        ...


class ConflictResolver:
    """Writer of facts that applies one conflict strategy to those whose opposite is stored.

    `opposite` returns the stored opposite of a fact, or None. A strategy that refuses every
    opposite, such as REJECT, also refuses facts that violate `constraints`. Raises InvalidInput that
    lists the strategies if the name is unknown.
    """

    def __init__(
        self,
        name: str,
        strategies: Mapping[str, MergeStrategy],
        opposite: Callable[[Fact], Row | None],
        constraints: Constraints,
        clock: Clock,
    ) -> None:
        strategy = strategies.get(name)
        if strategy is None:
            raise InvalidInput.at(
                "conflictStrategy", f"must be one of {', '.join(sorted(strategies))}"
            )
        self._name = name
        self._strategy = strategy
        self._constant = constant_decision(name, strategy)
        self._opposite = opposite
        self._constraints = constraints
        self._clock = clock

    def write(self, facts: Sequence[Fact], commit: Commit) -> Delta:
        """Commit the facts as the strategy decides.

        The log holds the outcome. The outcome is computed again if the opposites change before the
        write. Raises Conflict if the strategy refuses a fact.
        """
        if self._constant is Keep.BOTH:
            return commit((AssertFacts(tuple(facts)),), None)
        while True:
            try:
                if self._constant is Keep.REFUSE:
                    check = partial(self._refuse_opposites, facts)
                    return self._constraints.guarded(facts, commit, check)
                changes = self._resolve(facts)
                return commit(changes, partial(self._check_current, facts, changes))
            except Outdated:
                continue

    def _resolve(self, facts: Sequence[Fact]) -> tuple[Change, ...]:
        """Return the changes that the strategy decides on."""
        winners: list[Fact] = []
        retractions: list[Change] = []
        for fact in facts:
            row = self._opposite(fact)
            decision = Keep.BOTH if row is None else self._decide(fact, row)
            if decision is Keep.TARGET:
                continue
            if decision is Keep.SOURCE:
                retractions.append(
                    RetractFact(fact.predicate, fact.args, not fact.positive, fact.scope)
                )
            winners.append(fact)
        return (*retractions, AssertFacts(tuple(winners)))

    def _decide(self, fact: Fact, row: Row) -> Keep:
        """Return the decision about a fact whose opposite is stored as `row`."""
        if self._constant is not None:
            return self._constant
        new, old = _new_standing(fact, self._clock.now_ms()), _stored_standing(row)
        conflict = MergeConflict(fact.predicate, fact.args, (new,), (old,))
        decision = resolution_of(self._name, self._strategy, conflict).keep
        if decision is Keep.REFUSE:
            raise _contradiction(row)
        if decision is Keep.FACTS:
            raise PluginFailed(
                f"strategy {self._name} returned facts for a new fact; it must choose one of the"
                " two facts"
            )
        return decision

    def _check_current(self, facts: Sequence[Fact], changes: tuple[Change, ...]) -> None:
        if self._resolve(facts) != changes:
            raise Outdated("the opposites have changed")

    def _refuse_opposites(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            row = self._opposite(fact)
            if row is not None:
                raise _contradiction(row)


def _new_standing(fact: Fact, now: int) -> Standing:
    start = now if fact.valid_from is None else fact.valid_from
    ends = [fact.valid_until, None if fact.ttl is None else now + fact.ttl]
    until = min((end for end in ends if end is not None), default=None)
    return Standing(fact.positive, now, start, until, fact.confidence, dict(fact.metadata))


def _stored_standing(row: Row) -> Standing:
    return Standing(
        not row["negated"],
        row["createdAt"],
        row["validFrom"],
        row["validUntil"],
        row["confidence"],
        dict(row["metadata"]),
    )


def _contradiction(row: Row) -> Conflict:
    return Conflict("the opposite of a fact is stored", {"reason": "contradiction", "fact": row})


class StoredConstraints:
    """The constraints of the stored facts: they are evaluated with the new facts before the commit.

    A constraint that depends on an external predicate refuses nothing: its rows cannot be fetched for
    facts that are not stored.
    """

    def __init__(
        self,
        reads: Reads,
        generation: Callable[[], int],
        clock: Clock,
        external: ExternalPredicates | None,
    ) -> None:
        self._reads = reads
        self._generation = generation
        self._clock = clock
        self._external = external

    def guarded(self, facts: Sequence[Fact], commit: Commit, check: Callable[[], None]) -> Delta:
        """Implement `Constraints.guarded`; raises BudgetExceeded too."""
        before = self._generation()
        self._check(facts)

        def checked() -> None:
            check()
            # A write since then may have declared a constraint, or made a violation of the facts.
            if self._generation() != before and self._are_declared(facts):
                raise Outdated("the knowledge base has changed")

        return commit((AssertFacts(tuple(facts)),), checked)

    def _are_declared(self, facts: Sequence[Fact]) -> bool:
        """Return True if a constraint is valid in a scope of the facts."""
        with self._reads() as (tenant, _):
            scopes = {fact.scope for fact in facts}
            return any(SCHEMA in tenant.rules.visible(scope).derived for scope in scopes)

    def _check(self, facts: Sequence[Fact]) -> None:
        """Raise Conflict if facts violate a constraint."""
        if not self._are_declared(facts):
            return
        with self._reads() as (tenant, budget):
            now = tenant.at(self._clock.now_ms())
            with staged(tenant, Proposal(tuple(facts)), now, budget, self._external) as stage:
                apply_to_overlay(stage.overlay, (AssertFacts(tuple(facts)),), now)
                for scope, args in stage.new_conclusions(SCHEMA, budget):
                    raise violated(Violation(scope, *args))


class StagedConstraints:
    """The constraints of a transaction: they are evaluated before and after the facts are staged,
    and an error rolls the transaction back.
    """

    def __init__(self, violations: Callable[[], list[Violation]]) -> None:
        self._violations = violations

    def guarded(self, facts: Sequence[Fact], commit: Commit, check: Callable[[], None]) -> Delta:
        """Implement `Constraints.guarded`; raises BudgetExceeded too."""
        before = set(self._violations())
        delta = commit((AssertFacts(tuple(facts)),), check)
        for each in self._violations():
            if each not in before:
                raise violated(each)
        return delta


def violated(violation: Violation) -> Conflict:
    """Return the error for facts that violate a constraint."""
    return Conflict(
        f"the facts violate a declared constraint: {violation.text}",
        {
            "reason": "constraint",
            "kind": violation.kind,
            "first": violation.first,
            "second": violation.second,
        },
    )
