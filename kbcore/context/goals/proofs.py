"""Selection of whole proofs for the goals of a window, those of the best answers first.

If a request names predicates, only the facts of a proof with one of these predicates are added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from kbcore.context.capacity import Candidate, Room
from kbcore.context.goals.evidence import Group, Witness
from kbcore.context.goals.near_misses import Partial
from kbcore.context.request import Conjunction, Goal, WindowRequest, goal_text
from kbcore.context.resolution import Judge
from kbcore.context.selection import Selection
from kbcore.state.rulebook import StoredRule


class Goals:
    """The goals of a window that is being built."""

    def __init__(
        self,
        request: WindowRequest,
        witness: Witness,
        room: Room,
        selection: Selection,
        judge: Judge,
    ) -> None:
        self._goals = request.goals
        self._predicates = None if request.predicates is None else frozenset(request.predicates)
        self._witness = witness
        self._room = room
        self._selection = selection
        self._judge = judge
        self._resolve = request.auto_resolve
        self.rules: dict[str, StoredRule] = {}
        self.found: Counter[int] = Counter()
        self.whole: Counter[int] = Counter()
        self.reasons: dict[int, Counter[str]] = {}
        self.partial: list[dict[str, Any]] = []

    def take(self) -> None:
        """Add the whole proofs that fit, best answers first, then the answers whose proofs are too
        large.

        Goals are served in rotation, the best answer of each first. A fact on the losing side of a
        contradiction is skipped, and so is every answer that depends on it.
        """
        lots = [self._witness.answers(number, goal) for number, goal in enumerate(self._goals)]
        alone: list[Group] = []
        while lots and self._room.left > 0:
            heads = [(lot, next(lot, None)) for lot in lots]
            lots = [lot for lot, groups in heads if groups is not None]
            for group in _in_turns([groups for _, groups in heads if groups is not None]):
                self.found[group.goal] += 1
                reason = self._refusal(group)
                if reason is None:
                    self._put(group)
                else:
                    self.reasons.setdefault(group.goal, Counter())[reason] += 1
                    if reason != "contradicted" and (group.bases or not group.whole):
                        alone.append(group)
        for group in alone:
            if not self._room.left:
                break
            text = goal_text(self._goals[group.goal])
            if self._admits(group.answer) and self._room.refusal([group.answer], text) is None:
                self._rules(group)
                self._selection.take_relevant(
                    group.answer, "answer of a goal; its proof does not fit", text
                )
        for number, goal in enumerate(self._goals):
            if not self.found[number]:
                self._take_partial(goal)

    def describe(self) -> list[dict[str, Any]]:
        """Return the outcome of each goal."""
        return [
            {
                "goal": goal_text(goal),
                "answers": self.found[number],
                "whole": self.whole[number],
                "cut": dict(self.reasons.get(number, {})),
                "partial": [miss for miss in self.partial if miss["goal"] == goal_text(goal)],
            }
            for number, goal in enumerate(self._goals)
        ]

    def _refusal(self, group: Group) -> str | None:
        lost = [fact for fact in group.facts if self._judge.loses(fact)]
        if lost and self._resolve:
            return "contradicted"
        if not group.whole:
            return "maxFacts"
        return self._room.refusal(
            list(filter(self._admits, group.facts)), goal_text(self._goals[group.goal])
        )

    def _admits(self, fact: Candidate) -> bool:
        return self._predicates is None or fact.predicate in self._predicates

    def _put(self, group: Group) -> None:
        self.whole[group.goal] += 1
        self._rules(group)
        goal = goal_text(self._goals[group.goal])
        if self._admits(group.answer):
            self._selection.take_relevant(group.answer, f"answer of {goal}", goal)
        for fact in filter(self._admits, group.bases):
            self._selection.take_relevant(fact, f"{group.answer.text} depends on it", goal)

    def _rules(self, group: Group) -> None:
        for rule in group.rules:
            self.rules.setdefault(rule.id, rule)

    def _take_partial(self, goal: Goal) -> None:
        """Add the facts that match part of the rules of a goal without answers.

        Of a goal with several literals, add the facts that match some of them.
        """
        if not isinstance(goal, Conjunction) and goal.negated:
            return
        text = goal_text(goal)
        for partition in self._witness.supply.partitions:
            partial = Partial(self._witness, partition)
            parts = (
                iter((partial.body(goal.body),))
                if isinstance(goal, Conjunction)
                else partial.rules(goal.atom)
            )
            for part in parts:
                if part.rule is not None:
                    self.rules.setdefault(part.rule.id, part.rule)
                have = []
                for fact in part.facts:
                    if self._judge.loses(fact) and self._resolve:
                        continue
                    have.append(fact.text)
                    if self._admits(fact) and self._room.refusal([fact], text) is None:
                        self._selection.take_partial(
                            fact,
                            f"matches part of {'' if part.rule is None else 'a rule for '}{text}",
                            text,
                        )
                self.partial.append(
                    {
                        "goal": text,
                        "rule": "" if part.rule is None else part.rule.text,
                        "have": have,
                        "missing": list(part.missing),
                    }
                )


def _in_turns(lots: Sequence[Sequence[Group]]) -> Iterator[Group]:
    return (group for group in chain.from_iterable(zip_longest(*lots)) if group is not None)
