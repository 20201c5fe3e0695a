"""The facts of a partition after changes that are tried out, and what holds among them.

The changes are applied to one overlay of the tenant, as those of a preview are, and undone before
others: each relation is copied once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from kbcore.proofs.candidates import FALSE, TRUE, UNDEFINED
from kbcore.proofs.facts import ABSENT, ASSERTED
from kbcore.proofs.prover import goal_prover
from kbcore.reason.ask import Reasoner, body_variables
from kbcore.reason.budget import Budget
from kbcore.reason.options import GoalOptions
from kbcore.state.changes import AssertFacts, Change, RetractFact
from kbcore.state.facts import Fact
from kbcore.state.overlay import Overlay, ReadSet, apply_to_overlay
from kbcore.state.tenant import Tenant
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import (
    Aggregate,
    Atom,
    BodyItem,
    Literal,
    Rule,
    Term,
    Variable,
    extremum_of,
)
from kbplanner.ir.unify import substituted

GROUP_INPUTS = 200
"""Inputs of an aggregate that are looked at for one to remove."""

_FIRST = GoalOptions(first=1, counts_accesses=False)
_EVERY = GoalOptions(counts_accesses=False)

MAX_ROWS = 300
"""Rows that are tried for one premise."""

_SOME = GoalOptions(first=MAX_ROWS + 1, counts_accesses=False)


class FactChange(NamedTuple):
    """A fact to add or to remove; during a search the atom may have variables."""

    adds: bool
    atom: Atom


Changes = frozenset[FactChange]

NO_CHANGES: Changes = frozenset()


@dataclass(frozen=True, slots=True)
class Support:
    """The leaves of a proof: stored facts, atoms that must not hold, and the rules that fold all
    rows of a group, with their conclusions.
    """

    facts: tuple[Atom, ...]
    absent: tuple[Atom, ...]
    groups: tuple[tuple[Rule, Atom], ...]


class World:
    """A partition with a set of changes; `enter` exchanges the set.

    The caller holds the tenant's read lock.
    """

    def __init__(
        self,
        overlay: Overlay,
        scope: str | None,
        reasoner: Callable[[Tenant], Reasoner],
        now: int,
        constants: set[str],
    ) -> None:
        self.tenant = overlay
        self.scope = scope
        self.changes = NO_CHANGES
        self._reasoner_of = reasoner
        self._now = now
        self._constants = constants
        self._sorted_constants: list[str] | None = None
        self._rows: dict[Atom, list[tuple[str, ...]]] = {}
        self._supports: dict[Atom, Support] = {}

    @property
    def reasoner(self) -> Reasoner:
        """The reasoner over the changed facts; `enter` may close an earlier one."""
        return self._reasoner_of(self.tenant)

    @property
    def constants(self) -> list[str]:
        """The constants of the goal, of the rules and of the stored facts, as text sorts them."""
        if self._sorted_constants is None:
            symbols: set[int] = set()
            for stored in self.tenant.partition(self.scope).relations():
                rows = stored.relation.match_rows([0] * stored.schema.arity)
                symbols.update(rows)
            texts = self.tenant.engine.texts(array("I", symbols))
            self._sorted_constants = sorted(self._constants.union(texts))
        return self._sorted_constants

    def enter(self, changes: Changes, budget: Budget) -> None:
        """Undo the present changes and make others."""
        if changes == self.changes:
            return
        own = [self._change(each, back=True) for each in self.changes - changes]
        own += [self._change(each, back=False) for each in changes - self.changes]
        apply_to_overlay(self.tenant, own, self._now, budget.yield_now)
        self.changes = changes
        self._rows.clear()
        self._supports.clear()

    def _change(self, change: FactChange, *, back: bool) -> Change:
        atom = change.atom
        args = tuple(map(str, atom.args))
        if change.adds is back:
            return RetractFact(atom.predicate, args, atom.positive, self.scope)
        return AssertFacts((Fact(atom.predicate, args, atom.positive, self.scope),))

    def truth(self, body: Sequence[BodyItem], budget: Budget) -> str:
        """Return the truth value of a goal of one or more literals."""
        if self._holds(body, budget, _FIRST):
            return TRUE
        every = _EVERY._replace(include_undefined=True)
        return UNDEFINED if self._holds(body, budget, every) else FALSE

    def has_truth(self, truth: str, body: Sequence[BodyItem], budget: Budget) -> bool:
        """Return True if a goal of one or more literals has a truth value."""
        if truth == TRUE:
            return self._holds(body, budget, _FIRST)
        return self.truth(body, budget) == truth

    def _holds(self, body: Sequence[BodyItem], budget: Budget, options: GoalOptions) -> bool:
        item, partition = body[0], self.tenant.partition(self.scope)
        if len(body) > 1 or not isinstance(item, Literal):
            variables = body_variables(body)
            return self.reasoner.solve_body(partition, body, variables, budget, options)[1] > 0
        if item.negated:
            return bool(self.reasoner.rows(partition, item, budget, options))
        return self.reasoner.solve(partition, item.atom, budget, options)[1] > 0

    def first_answer(self, body: Sequence[BodyItem], budget: Budget) -> tuple[BodyItem, ...] | None:
        """Return a goal with the values of its first answer; None if it has no answer."""
        variables = body_variables(body)
        item = body[0]
        if len(body) == 1 and isinstance(item, Literal) and item.negated:
            return tuple(body) if self._holds(body, budget, _FIRST) else None
        rows, count = self.reasoner.solve_body(
            self.tenant.partition(self.scope), body, variables, budget, _FIRST
        )
        if not count:
            return None
        texts = self.tenant.engine.texts(rows[: len(variables)])
        values: dict[Variable, Term] = dict(zip(variables, texts, strict=True))
        return tuple(substituted(each, values) for each in body)

    def rows(self, atom: Atom, budget: Budget) -> list[tuple[str, ...]]:
        """Return the arguments of the true instances of an atom, of more than MAX_ROWS one more."""
        known = self._rows.get(atom)
        if known is None:
            known = self._rows[atom] = self._solved(atom, budget, _SOME)
        return known

    def blockers(self, atom: Atom, budget: Budget) -> list[Atom]:
        """Return the instances of an atom that make its negation false or undefined."""
        every = _EVERY._replace(include_undefined=True)
        denied: set[tuple[str, ...]] = set()
        if atom.positive:
            denied.update(self._solved(Atom(atom.predicate, atom.args, False), budget, _EVERY))
        rows = self._solved(atom, budget, every)
        return [Atom(atom.predicate, row, atom.positive) for row in rows if row not in denied]

    def _solved(self, atom: Atom, budget: Budget, options: GoalOptions) -> list[tuple[str, ...]]:
        rows, count = self.reasoner.solve(self.tenant.partition(self.scope), atom, budget, options)
        if not atom.arity:
            return [()] * bool(count)
        count = count if options.first is None else min(count, options.first)
        texts = self.tenant.engine.texts(rows[: count * atom.arity])
        budget.yield_now()
        return list(zip(*[iter(texts)] * atom.arity, strict=True))

    def holds(self, item: BodyItem, budget: Budget) -> bool:
        """Return True if a premise without variables is true."""
        partition = self.tenant.partition(self.scope)
        return self.reasoner.solve_body(partition, (item,), (), budget, _FIRST)[1] > 0

    def is_effective(self, changes: Changes) -> bool:
        """Return True if the facts to add are not stored, and those to remove are."""
        return all(self._is_stored(atom) is not adds for adds, atom in changes)

    def _is_stored(self, atom: Atom) -> bool:
        """Return True if a ground atom is a fact that is valid now without any changes."""
        partition = self.tenant.base.partition(self.scope)
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        stored = None if partition is None else partition.get(schema)
        symbols = [self.tenant.engine.find(str(arg)) for arg in atom.args]
        if stored is None or 0 in symbols:
            return False
        return bool(len(stored.relation.match(symbols, limit=1)[1]))

    def support(self, atom: Atom, budget: Budget) -> Support:
        """Return what one proof of a true ground atom ends in."""
        known = self._supports.get(atom)
        if known is None:
            known = self._supports[atom] = self._proved(atom, budget)
        return known

    def _proved(self, atom: Atom, budget: Budget) -> Support:
        facts: list[Atom] = []
        absent: list[Atom] = []
        groups: list[tuple[Rule, Atom]] = []
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        prover = goal_prover(
            self.reasoner,
            self.tenant.partition(self.scope),
            budget,
            None,
            inputs=GROUP_INPUTS,
            rows=False,
        )
        with closing(prover.proofs(schema, [[str(arg) for arg in atom.args]])) as proofs:
            for top, proof in proofs:
                waiting, seen = [top], {top}
                while waiting:
                    number = waiting.pop()
                    below = [each for each in proof.expand(number) if each not in seen]
                    seen.update(below)
                    waiting += below
                    kind = proof.facts.kind(number)
                    rule = proof.rule(number)
                    if kind == ABSENT:
                        _, item = proof.facts.tests[number]
                        if isinstance(item, Literal):
                            absent.append(item.atom)
                    elif kind == ASSERTED:
                        facts.append(proof.facts.atom(number))
                    elif rule is not None and folds(rule.rule):
                        groups.append((rule.rule, proof.facts.atom(number)))
        return Support(tuple(facts), tuple(absent), tuple(groups))


def folds(rule: Rule) -> bool:
    """Return True if a conclusion of a rule depends on all rows of its group."""
    head = rule.head
    return extremum_of(head) is not None or any(isinstance(arg, Aggregate) for arg in head.args)


@contextmanager
def world_of(
    tenant: Tenant,
    scope: str | None,
    reasoner: Callable[[Tenant], Reasoner],
    now: int,
    constants: set[str],
) -> Iterator[World]:
    """Provide the facts of a scope at `now` (epoch milliseconds), to be changed.

    `constants` are those of the goal and of the rules.
    """
    overlay = Overlay(tenant, ReadSet())
    overlay.noting = False
    try:
        overlay.advance(now)
        yield World(overlay, scope, reasoner, now, constants)
    finally:
        overlay.drop()
