"""Conflict strategies: decisions about facts whose opposite is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from kbcore.branching.merge import constant_decision, resolution_of
from kbcore.clock import Clock
from kbcore.errors import Conflict, InvalidInput, PluginFailed
from kbcore.plug.ports import Keep, MergeConflict, MergeStrategy, Standing
from kbcore.state.changes import AssertFacts, Change, Delta, Outdated, RetractFact
from kbcore.state.facts import Fact, Row

KEEP_BOTH = "KEEP_BOTH"
"""The default strategy: a fact and its opposite are both stored."""

Commit = Callable[[tuple[Change, ...], "Callable[[], None] | None"], Delta]
"""Function that commits changes if a check does not raise."""


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
