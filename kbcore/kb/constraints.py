"""Refusal of facts that violate a declared constraint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from kbcore.branching.preview import Proposal, staged
from kbcore.clock import Clock
from kbcore.context.violations import SCHEMA, Violation
from kbcore.durable.transactions import apply_to_overlay
from kbcore.errors import Conflict
from kbcore.kb.conflicts import Commit
from kbcore.reason.budget import Budget
from kbcore.reason.external.predicates import ExternalPredicates
from kbcore.state.changes import AssertFacts, Delta, Outdated
from kbcore.state.facts import Fact
from kbcore.state.tenant import Tenant

Reads = Callable[[], AbstractContextManager[tuple[Tenant, Budget]]]
"""Function that opens a read of the tenant."""


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
