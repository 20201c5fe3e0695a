"""Selection of whole proofs for the goals of a window, those of the best answers first.

If a request names predicates, only the facts of a proof with one of these predicates are added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from kbcore.context.capacity import FactKey, RankedCandidate, Room, entry_of
from kbcore.context.proofs.evidence import AnswerGroup, Witness
from kbcore.context.proofs.near_misses import Partial
from kbcore.context.request import ConjunctiveGoal, Goal, WindowRequest, goal_text
from kbcore.context.resolution import Judge
from kbcore.context.selection import Selection
from kbcore.state.rulebook import ParsedRule
from kbplanner.ir.schema import RelationSchema
from kbtypes.windows import GoalNote

GOALS_AT_ONCE = 20
"""Goals written as text between two calls of `yield_now`: about a millisecond."""

MAX_ALTERNATIVES = 3
"""Rules of a goal without answers whose unmet conditions are named in the text."""

GROUPS_BETWEEN = 10
"""Answers that are looked at between two turns of others."""

MAX_ELSEWHERE = 20
"""Answers of a goal that are named although their entries are listed for another goal."""


class GoalProofs:
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
        self._predicates = request.admitted
        self._witness = witness
        self._room = room
        self._selection = selection
        self._judge = judge
        self._resolve = request.auto_resolve
        self.rules: dict[str, ParsedRule] = {}
        self.found: Counter[int] = Counter()
        self.whole: Counter[int] = Counter()
        self.reasons: dict[int, Counter[str]] = {}
        self.partial: list[dict[str, Any]] = []
        self._listed: dict[FactKey, int] = {}
        self._elsewhere: dict[int, list[str]] = {}
        self._left_out: Counter[int] = Counter()
        self._unfinished: set[int] = set()
        self._unproved: set[int] = set()

    def take(self, *, is_guess: bool = False) -> None:
        """Add the whole proofs that fit, best answers first, then the answers whose proofs are too
        large.

        Goals are served in rotation, the best answer of each first. A fact on the losing side of a
        contradiction is skipped, and so is every answer that depends on it. For a goal without
        answers, the facts that match part of its rules are added, unless it `is_guess`.
        """
        lots = {n: self._witness.answers(n, goal) for n, goal in enumerate(self._goals)}
        alone: list[AnswerGroup] = []
        while lots and self._room.left > 0:
            heads = [(n, next(lot, None)) for n, lot in self._witness.budget.paced(lots.items(), 1)]
            lots = {number: lots[number] for number, groups in heads if groups is not None}
            groups_in_turns = _in_turns([groups for _, groups in heads if groups is not None])
            for group in self._witness.budget.paced(groups_in_turns, GROUPS_BETWEEN):
                self.found[group.goal] += 1
                reason = self._refusal(group)
                if reason is None:
                    self._put(group)
                else:
                    self.reasons.setdefault(group.goal, Counter())[reason] += 1
                    if reason != "contradicted":
                        self._left_out[group.goal] += self._admits(group.answer)
                        if group.bases or not group.whole:
                            alone.append(group)
        self._unfinished = {number for number in lots if self._has_conclusions(number)}
        for group in alone:
            if not self._room.left:
                break
            text = goal_text(self._goals[group.goal])
            if self._admits(group.answer) and self._room.refusal([group.answer], text) is None:
                self._rules(group)
                self._left_out[group.goal] -= 1
                self._take_answer(group, "answer of a goal; its proof does not fit", text)
        for number, goal in enumerate(self._witness.budget.paced(self._goals, 1)):
            if not self.found[number] and not is_guess:
                self._take_partial(goal)

    def notes(self) -> list[GoalNote]:
        """Return what the text says about goals besides their facts."""
        notes: dict[GoalNote, None] = {}
        for number, goal in enumerate(self._witness.budget.paced(self._goals, GOALS_AT_ONCE)):
            text, elsewhere = goal_text(goal), self._elsewhere.get(number, [])
            unanswered = not self.found[number]
            note = GoalNote(
                text,
                unanswered=unanswered,
                denied=unanswered and _is_denial(goal),
                unmet=self._unmet(text) if unanswered else (),
                elsewhere=tuple(elsewhere[:MAX_ELSEWHERE]),
                elsewhere_more=len(elsewhere[MAX_ELSEWHERE:]),
                cut=self._left_out[number] > 0,
                maybe_more=number in self._unfinished,
                contradicted=self.reasons.get(number, Counter())["contradicted"],
                unproved=number in self._unproved,
            )
            if note != GoalNote(text):
                notes[note] = None
        return list(notes)

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

    def _refusal(self, group: AnswerGroup) -> str | None:
        lost = [fact for fact in group.facts if self._judge.loses(fact)]
        if lost and self._resolve:
            return "contradicted"
        if not group.whole:
            return "maxFacts"
        return self._room.refusal(
            list(filter(self._admits, group.facts)), goal_text(self._goals[group.goal])
        )

    def _admits(self, fact: RankedCandidate) -> bool:
        return fact.predicate in self._predicates

    def _put(self, group: AnswerGroup) -> None:
        if group.proved:
            self.whole[group.goal] += 1
        else:
            self._unproved.add(group.goal)
        self._rules(group)
        goal = goal_text(self._goals[group.goal])
        if self._admits(group.answer):
            self._take_answer(group, f"answer of {goal}", goal)
        for fact in filter(self._admits, group.bases):
            self._listed.setdefault(fact.key, group.goal)
            self._selection.take_relevant(fact, f"{group.answer.text} depends on it", goal)

    def _take_answer(self, group: AnswerGroup, reason: str, goal: str) -> None:
        """Add an answer, or record that it is listed for an earlier goal."""
        if self._listed.setdefault(group.answer.key, group.goal) != group.goal:
            answers = self._elsewhere.setdefault(group.goal, [])
            answers.append(entry_of(group.answer).signed)
        self._selection.take_relevant(group.answer, reason, goal)

    def _has_conclusions(self, number: int) -> bool:
        """Return whether rules may give answers of a goal."""
        goal = self._goals[number]
        if isinstance(goal, ConjunctiveGoal):
            return True
        atom = goal.atom
        schema = RelationSchema(atom.predicate, atom.arity, not goal.negated)
        witness = self._witness
        return not atom.ground and any(
            witness.reasoner.concludes(partition, schema) for partition in witness.supply.partitions
        )

    def _unmet(self, goal: str) -> tuple[str, ...]:
        """Return the conditions that are not met, for each rule of a goal without answers."""
        alternatives = [miss["missing"] for miss in self.partial if miss["goal"] == goal]
        texts = dict.fromkeys(", ".join(missing) for missing in alternatives if missing)
        return tuple(texts)[:MAX_ALTERNATIVES]

    def _rules(self, group: AnswerGroup) -> None:
        for rule in group.rules:
            self.rules.setdefault(rule.id, rule)

    def _take_partial(self, goal: Goal) -> None:
        """Add the facts that match part of the rules of a goal without answers.

        Of a goal with several literals, add the facts that match some of them.
        """
        if not isinstance(goal, ConjunctiveGoal) and goal.negated:
            return
        text = goal_text(goal)
        for partition in self._witness.supply.partitions:
            partial = Partial(self._witness, partition)
            parts = (
                iter((partial.body(goal.body),))
                if isinstance(goal, ConjunctiveGoal)
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


def _in_turns(lots: Sequence[Sequence[AnswerGroup]]) -> Iterator[AnswerGroup]:
    return (group for group in chain.from_iterable(zip_longest(*lots)) if group is not None)


def _is_denial(goal: Goal) -> bool:
    """Return whether a goal asks if a single fact does not hold."""
    return not isinstance(goal, ConjunctiveGoal) and goal.negated and goal.atom.ground
