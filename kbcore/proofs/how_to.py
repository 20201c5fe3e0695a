"""The search for the smallest changes of stored facts that make a goal true or false.

Sets of one change are tried first, then of two and of three. Each set is evaluated in an overlay;
one that is not enough is where the search goes on from (Reiter, A theory of diagnosis from first
principles, Artificial Intelligence 32, 1987: conflicts are found when they are needed).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.proofs.candidates import TRUE
from kbcore.proofs.repairs import (
    ChangeableFacts,
    Effort,
    FirstRepairs,
    Repairs,
    StepsExceeded,
    grounded,
    is_ground,
    schema_of,
    undoes,
)
from kbcore.proofs.worlds import NO_CHANGES, Changes, World
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Apply, Atom, BodyItem, Comparison, Expr, Literal, Rule
from kbplanner.ir.unify import with_now
from kbplanner.ir.values.instants import instant_text
from kbplanner.syntax.printer import print_atom, print_item
from kbtypes.how_to import HowTo, HowToProposal

DEFAULT_PROPOSALS, MAX_PROPOSALS = 5, 100
"""Proposals that are returned if a request names no limit, and at most."""

MAX_CHANGES = 3
"""Facts that a proposal adds and removes."""

FIRST_STEPS, FIRST_DEPTH, FIRST_SETS = 300, 3, 20
"""Premises that are looked at for the sets that are found first, rules above each other that are
used for them, and number of these sets beside two for each wanted proposal.
"""

MAX_CHECKS = 500
"""Sets of changes that a search evaluates."""


@dataclass(frozen=True, slots=True)
class HowToOptions:
    """Options of a search: the truth value to reach, predicates with rules whose facts may change
    too, and the number of proposals.
    """

    make: str
    changing: tuple[str, ...] = ()
    limit: int = DEFAULT_PROPOSALS


class HowToSearch:
    """The search in one world, which it leaves in any state."""

    def __init__(
        self, world: World, vocabulary: ChangeableFacts, budget: Budget, options: HowToOptions
    ) -> None:
        self._world = world
        self._vocabulary = vocabulary
        self._budget = budget
        self._options = options
        self._effort = Effort(budget)
        self._verdicts: dict[Changes, bool] = {}
        self._found: dict[Changes, HowToProposal] = {}

    def result(self, body: Sequence[BodyItem]) -> HowTo:
        """Return the proposals for a goal.

        Raises BudgetExceeded if the budget does not suffice to decide whether the goal holds.
        """
        options, goal = self._options, ", ".join(map(print_item, body))
        truth = self._world.truth(body, self._budget)
        if truth == options.make:
            return HowTo(goal, options.make, truth, (), False)
        self._verdicts[NO_CHANGES] = False
        try:
            self._search(body)
        except StepsExceeded:
            self._effort.cut()
        except BudgetExceeded:
            self._effort.truncated = True
        proposals = sorted(self._found.values(), key=_rank)[: options.limit]
        return HowTo(goal, options.make, truth, tuple(proposals), self._effort.truncated)

    def _search(self, body: Sequence[BodyItem]) -> None:
        """Try sets of changes by size until there are enough."""
        failed: dict[Changes, None] = {NO_CHANGES: None}
        for size in range(1, MAX_CHANGES + 1):
            if self._options.make == TRUE and self._try_first(body, size):
                return
            candidates: dict[Changes, HowToProposal] = {}
            try:
                self._collect(body, failed, size, candidates)
            except StepsExceeded:
                self._effort.finish()
            for changes in sorted(candidates, key=lambda each: _rank(candidates[each])):
                if len(self._found) >= self._options.limit:
                    break
                if self._fails(body, changes):
                    failed[changes] = None
            if len(self._found) >= self._options.limit or self._effort.is_over:
                return
            if self._found and not self._effort.is_further:
                self._effort.look_further()

    def _try_first(self, body: Sequence[BodyItem], size: int) -> bool:
        """Try the sets of `size` changes that are found first; return True if these are enough
        proposals, so that no more are needed.
        """
        limit = self._options.limit
        for depth in range(1, FIRST_DEPTH + 1):
            self._world.enter(NO_CHANGES, self._budget)
            effort = Effort(self._budget, FIRST_STEPS)
            search = FirstRepairs(self._world, self._vocabulary, effort, size, depth)
            candidates: dict[Changes, None] = {}
            with suppress(StepsExceeded):
                for changes in search.first(body):
                    if len(changes) == size and self._world.is_effective(changes):
                        candidates.setdefault(changes)
                    if len(candidates) >= FIRST_SETS + 2 * limit:
                        break
            for changes in sorted(candidates, key=lambda each: _rank(_proposal(each))):
                if not self._covers(changes):
                    self._fails(body, changes)
                if len(self._found) >= limit:
                    return True
            if not search.is_cut:
                break
        return False

    def _collect(
        self,
        body: Sequence[BodyItem],
        failed: dict[Changes, None],
        size: int,
        candidates: dict[Changes, HowToProposal],
    ) -> None:
        """Add the sets of `size` changes that may be enough to `candidates`, and smaller ones that
        are not to `failed`.
        """
        waiting = list(failed)
        while waiting:
            for changes in self._next(body, waiting.pop(0), size):
                if changes in self._verdicts or undoes(changes) or self._covers(changes):
                    continue
                if not self._world.is_effective(changes):
                    continue
                if len(changes) == size:
                    candidates[changes] = _proposal(changes)
                elif self._fails(body, changes):  # a part of larger changes
                    failed[changes] = None
                    waiting.append(changes)

    def _next(self, body: Sequence[BodyItem], base: Changes, size: int) -> Iterator[Changes]:
        """Yield sets of at most `size` changes that contain others, which are not enough.

        Constants are guessed for variables only while nothing smaller was found.
        """
        for shares in (False, True):  # changes that serve two premises are rare and take long
            if self._effort.is_over:
                return
            self._world.enter(base, self._budget)
            most = size - len(base)
            repairs = Repairs(self._world, self._vocabulary, self._effort, most, shares=shares)
            for changes in repairs.options(body, make=self._options.make == TRUE):
                if is_ground(changes):
                    yield base | changes
                elif not self._found:
                    for each in grounded(changes, self._world.constants):
                        self._effort.step()
                        yield base | each

    def _fails(self, body: Sequence[BodyItem], changes: Changes) -> bool:
        """Return True if changes are not enough; if they are, and no part is, propose them."""
        if not self._is_enough(body, changes):
            return True
        if self._is_minimal(body, changes):
            self._found[changes] = _proposal(changes)
        return False

    def _covers(self, changes: Changes) -> bool:
        """Return True if a part of changes is enough."""
        return any(part <= changes for part in self._found)

    def _is_enough(self, body: Sequence[BodyItem], changes: Changes) -> bool:
        """Return True if a goal has the truth value after changes, by evaluating it."""
        verdict = self._verdicts.get(changes)
        if verdict is None:
            if len(self._verdicts) > MAX_CHECKS:
                raise StepsExceeded
            self._world.enter(changes, self._budget)
            verdict = self._world.has_truth(self._options.make, body, self._budget)
            self._verdicts[changes] = verdict
        return verdict

    def _is_minimal(self, body: Sequence[BodyItem], changes: Changes) -> bool:
        """Return True if no part of changes is enough; a part that is becomes a proposal."""
        for size in range(1, len(changes)):
            for part in map(frozenset, combinations(sorted(changes, key=str), size)):
                if self._is_enough(body, part):
                    self._found[part] = _proposal(part)
                    return False
        return True


def vocabulary_of(
    reasoner: Reasoner,
    partition: Partition,
    body: Sequence[BodyItem],
    changing: Sequence[str],
    now: int,
) -> tuple[ChangeableFacts, set[str]]:
    """Return the rules and the predicates of a search, and the constants of the goal and the rules.

    Raises InvalidInput if `changing` names a predicate that has no fact and no rule.
    """
    rules: dict[RelationSchema, list[Rule]] = {}
    constants: set[str] = set()
    schemas: set[RelationSchema] = set()
    visible = reasoner.tenant.rules.visible(partition.name).rules
    at = instant_text(now)
    for rule in (*visible, Rule(Atom("goal"), tuple(body))):
        for atom in _atoms(rule.body):
            schemas.add(schema_of(atom))
            constants.update(arg for arg in atom.args if isinstance(arg, str))
        for item in rule.body:
            if isinstance(item, Comparison):
                constants.update(_constants(item.left))
                constants.update(_constants(item.right))
    for rule in visible:
        constants.update(arg for arg in rule.head.args if isinstance(arg, str))
        rules.setdefault(schema_of(rule.head), []).append(with_now(rule, at))
    schemas.update(rules)
    schemas.update(
        stored.schema for stored in partition.relations() if stored.relation.counts().visible
    )
    modes = {} if reasoner.external is None else dict(reasoner.external.modes)
    negatives = frozenset(schema for schema in schemas if not schema.positive)
    return ChangeableFacts(rules, _named(changing, schemas), negatives, modes), constants


def _named(names: Sequence[str], schemas: Iterable[RelationSchema]) -> frozenset[tuple[str, int]]:
    """Return the predicates with these names."""
    chosen: set[tuple[str, int]] = set()
    known = {(schema.predicate, schema.arity) for schema in schemas}
    for name in names:
        matching = {each for each in known if each[0] == name}
        if not matching:
            raise InvalidInput.at(
                "changing", f"no fact, no rule and no goal has a predicate {name!r}"
            )
        chosen |= matching
    return frozenset(chosen)


def _atoms(body: Sequence[BodyItem]) -> Iterator[Atom]:
    return (item.atom for item in body if isinstance(item, Literal))


def _constants(expression: Expr) -> Iterator[str]:
    if isinstance(expression, str):
        yield expression
    elif isinstance(expression, Apply):
        for arg in expression.args:
            yield from _constants(arg)


def _proposal(changes: Changes) -> HowToProposal:
    added, removed = (
        tuple(sorted(print_atom(atom) for is_added, atom in changes if is_added is adds))
        for adds in (True, False)
    )
    return HowToProposal(added, removed)


def _rank(proposal: HowToProposal) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    return len(proposal.add) + len(proposal.remove), proposal.add, proposal.remove
