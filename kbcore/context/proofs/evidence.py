"""Answers of goals, each with the stored facts that its first proof depends on."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from kbcore.context.capacity import FactKey, RankedCandidate
from kbcore.context.contradictions import visible
from kbcore.context.ranking import Supply
from kbcore.context.request import ConjunctiveGoal, Goal
from kbcore.context.window import ABSENCE, UNPROVED
from kbcore.errors import BudgetExceeded
from kbcore.proofs.facts import ASSERTED
from kbcore.proofs.prover import FactProof, goal_prover
from kbcore.reason.annotate import Answers
from kbcore.reason.ask import Reasoner, body_variables, terms_of
from kbcore.reason.budget import Budget
from kbcore.reason.goal_spans import goal_span
from kbcore.reason.options import GoalOptions
from kbcore.state.facts import Row
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.rulebook import ParsedRule
from kbplanner.engine.backend import NO_ROW
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Literal
from kbplanner.ir.unify import substituted_atom
from kbplanner.passes.check import counterpart
from kbplanner.syntax.printer import print_item, print_row
from kbtypes.windows import Provenance

PROOF_BATCH = 32
"""Number of conclusions that are proved together."""

UNCOUNTED = GoalOptions(counts_accesses=False)
"""Options of goals inside a context window, which do not count as accesses of their answers."""

ONE_ANSWER = GoalOptions(first=1, counts_accesses=False)

PROOF_STEPS_PER_FACT = 50
"""Maximum number of proof steps that are followed per fact that the window can hold."""


@dataclass(slots=True, eq=False)
class AnswerGroup:
    """An answer of a goal and the facts its proof depends on.

    `whole` is False if facts were cut, `proved` is False if finding them exceeds the limits.
    """

    goal: int
    answer: RankedCandidate
    bases: list[RankedCandidate] = field(default_factory=list)
    rules: list[ParsedRule] = field(default_factory=list)
    whole: bool = True
    proved: bool = True

    @property
    def facts(self) -> list[RankedCandidate]:
        """The answer and its base facts."""
        return [self.answer, *self.bases]


class Witness:
    """Search for answers and the facts they depend on; the caller holds the read lock."""

    def __init__(self, reasoner: Reasoner, supply: Supply, most: int, budget: Budget) -> None:
        self.reasoner = reasoner
        self.supply = supply
        self.most = most
        self.budget = budget
        self._stored: dict[FactKey, RankedCandidate] = {}
        self._unprovable: set[RelationSchema] = set()

    def answers(self, number: int, goal: Goal) -> Iterator[list[AnswerGroup]]:
        """Yield the answers of a goal with their evidence, in batches, each sorted best first.

        Stored answers come first, ordered by salience. Conclusions follow in answer order; a batch
        of them is proved when the caller requests it. There are at most `most` answers of each
        kind. The answers of a goal with several literals come in answer order.
        """
        self.budget.yield_now()
        for partition in self.supply.partitions:
            if isinstance(goal, ConjunctiveGoal):
                yield from self._joint(number, goal, partition)
            else:
                yield from self._answers(number, goal, partition)

    def first(self, partition: Partition, atom: Atom) -> AnswerGroup | None:
        """Return a ground atom with its evidence, or None if the atom does not hold."""
        for groups in self._positive(0, partition, atom):
            for group in groups:
                return group
        return None

    def _joint(
        self, number: int, goal: ConjunctiveGoal, partition: Partition
    ) -> Iterator[list[AnswerGroup]]:
        """Yield the answers of a goal with several literals, in batches.

        The answer of a group is what the first positive literal becomes; the others, and what they
        depend on, are its base facts.
        """
        variables = body_variables(goal.body)
        with goal_span(self.budget, goal.body):
            rows, count = self.reasoner.solve_body(
                partition, goal.body, variables, self.budget, UNCOUNTED
            )
        count = min(count, self.most)
        values = self.reasoner.tenant.engine.texts(rows[: count * len(variables)])
        atoms = [item.atom for item in goal.body if isinstance(item, Literal) and not item.negated]
        for start in range(0, count, PROOF_BATCH):
            groups = []
            for index in self.budget.paced(range(start, min(start + PROOF_BATCH, count))):
                row = values[index * len(variables) : (index + 1) * len(variables)]
                known = dict(zip(variables, row, strict=True))
                parts = [self.first(partition, substituted_atom(atom, known)) for atom in atoms]
                group = _together(number, [part for part in parts if part is not None])
                if group is not None:
                    groups.append(group)
            yield groups

    def _answers(
        self, goal: int, literal: Literal, partition: Partition
    ) -> Iterator[list[AnswerGroup]]:
        atom = literal.atom
        if not literal.negated:
            yield from self._positive(goal, partition, atom)
            return
        opposite = counterpart(literal)
        rows = (
            self.reasoner.rows(partition, literal, self.budget, ONE_ANSWER) if atom.ground else []
        )
        if rows and rows[0]["metadata"].get("basis") == "absence":
            yield [
                AnswerGroup(
                    goal,
                    RankedCandidate(
                        rows[0], 0.0, self.supply.scores.now, None, Provenance(ABSENCE, ())
                    ),
                )
            ]
        elif rows or not atom.ground:
            yield from self._positive(goal, partition, opposite)

    def _positive(self, goal: int, partition: Partition, atom: Atom) -> Iterator[list[AnswerGroup]]:
        """Yield the answers of a signed atom, in batches."""
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        stored = partition.get(schema)
        groups = self._stored_answers(goal, stored, atom)
        if groups:
            yield groups
        if not self.reasoner.concludes(partition, schema):
            return
        with goal_span(self.budget, (Literal(atom),)):
            rows, count = self.reasoner.solve(partition, atom, self.budget, UNCOUNTED)
        concluded = self._new_conclusions(stored, rows, count, atom.arity)
        for start in range(0, len(concluded), PROOF_BATCH):
            indices = concluded[start : start + PROOF_BATCH]
            cells = array("I")
            for index in indices:
                cells.extend(rows[index * atom.arity : (index + 1) * atom.arity])
            yield self._evident(goal, partition, atom, (cells, len(indices)))

    def _stored_answers(
        self, goal: int, stored: StoredRelation | None, atom: Atom
    ) -> list[AnswerGroup]:
        """Return the most salient stored answers, one more than a window can hold."""
        pattern = goal_pattern(atom.args, self.reasoner.tenant.find)
        if stored is None or pattern is None:
            return []
        best = self.supply.scores.most_of(
            [(stored, pattern if any(pattern) else None)], self.most + 1
        )
        candidates = self.supply.candidates([self.supply.supplied(fact) for fact in best])
        return [
            AnswerGroup(goal, self._stored.setdefault(candidate.key, candidate))
            for candidate in candidates
        ]

    def _new_conclusions(
        self, stored: StoredRelation | None, rows: array[int], count: int, arity: int
    ) -> list[int]:
        """Return the indexes of the first answers that are not stored."""
        if stored is None or not stored.relation.counts().live:
            return list(range(min(count, self.most)))
        ids, at, indices = (
            stored.relation.locate(rows, count),
            self.reasoner.tenant.at(0),
            list[int](),
        )
        for index in self.budget.paced(range(count)):
            if ids[index] == NO_ROW or not visible(stored, ids[index], at):
                indices.append(index)
                if len(indices) >= self.most:
                    break
        return indices

    def _evident(
        self, goal: int, partition: Partition, atom: Atom, answers: Answers
    ) -> list[AnswerGroup]:
        """Return conclusions with the base facts of their proofs, best first.

        Where proofs exceed a limit, conclusions have no base facts, and no inherited values. Proofs
        get half of the remaining time, so that there is time to go on without them.
        """
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        budget = self.budget.part(2)
        try:
            if schema not in self._unprovable:
                rows = self.reasoner.described(partition, atom, answers, budget)
                return self._proved(goal, partition, schema, rows, budget)
        except BudgetExceeded:
            self._unprovable.add(schema)
        finally:
            self.budget.rows_made += budget.rows_made
        self.budget.yield_now()
        now = self.supply.scores.now
        return [
            AnswerGroup(goal, RankedCandidate(row, 0.0, now, None, UNPROVED), proved=False)
            for row in self.reasoner.bare_rows(partition, atom, answers)
        ]

    def _proved(
        self,
        goal: int,
        partition: Partition,
        schema: RelationSchema,
        answers: Sequence[Row],
        budget: Budget,
    ) -> list[AnswerGroup]:
        """Return conclusions with the base facts of their proofs, best first."""
        prover = goal_prover(self.reasoner, partition, budget, None, self.most + 1, rows=False)
        conclusions: list[tuple[Row, Provenance, list[Atom], list[ParsedRule], bool]] = []
        with closing(prover.proofs(schema, [row["args"] for row in answers])) as proofs:
            for row, (top, proof) in zip(answers, proofs, strict=True):
                bases, rules, whole = self._base_facts(top, proof)
                conclusions.append(
                    (
                        row,
                        _provenance(proof, top),
                        bases,
                        rules,
                        whole,
                    )
                )
        self._add_candidates(
            partition, [atom for _, _, bases, _, _ in conclusions for atom in bases]
        )
        groups = []
        for row, provenance, bases, rules, whole in conclusions:
            facts = [self._stored[_key(partition, atom)] for atom in bases]
            salience = min((fact.salience for fact in facts), default=0.0)
            newest = max((fact.created_at for fact in facts), default=self.supply.scores.now)
            answer = RankedCandidate(row, salience, newest, None, provenance, bases=facts)
            groups.append(AnswerGroup(goal, answer, facts, rules, whole))
        return sorted(groups, key=lambda group: -group.answer.salience)

    def _base_facts(self, top: int, proof: FactProof) -> tuple[list[Atom], list[ParsedRule], bool]:
        """Return the stored facts below a conclusion, the rules used, and whether the proof is
        complete.

        The facts are ordered from left to right in the proof.
        """
        bases: list[Atom] = []
        rules: dict[str, ParsedRule] = {}
        seen: set[int] = set()
        todo = [top]
        while todo:
            fact = todo.pop()
            if fact in seen:
                continue
            seen.add(fact)
            if proof.facts.kind(fact) == ASSERTED:
                bases.append(proof.facts.atom(fact))
            else:
                todo.extend(reversed(proof.expand(fact)))
                rule = proof.rule(fact)
                if rule is not None:
                    rules.setdefault(rule.id, rule)
            if len(bases) > self.most or len(seen) > PROOF_STEPS_PER_FACT * self.most:
                return [], list(rules.values()), False
        return bases, list(rules.values()), True

    def _add_candidates(self, partition: Partition, atoms: Sequence[Atom]) -> None:
        """Create the candidates for stored facts of proofs, one relation at a time."""
        groups: dict[RelationSchema, dict[FactKey, Atom]] = {}
        for atom in atoms:
            key = _key(partition, atom)
            if key not in self._stored:
                schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
                groups.setdefault(schema, {})[key] = atom
        find = self.reasoner.tenant.engine.find
        for schema, known in groups.items():
            stored = partition.need(schema)
            symbols = array("I", [find(str(arg)) for atom in known.values() for arg in atom.args])
            ids = stored.relation.locate(symbols, len(known))
            for fact in self.supply.candidates(self.supply.placed(stored, ids)):
                self._stored[fact.key] = fact


def _together(number: int, parts: Sequence[AnswerGroup]) -> AnswerGroup | None:
    """Return one group for the facts that are an answer together, None without any."""
    if not parts:
        return None
    first, *others = parts
    bases = {id(fact): fact for part in parts for fact in part.bases}
    bases.update((id(part.answer), part.answer) for part in others)
    bases.pop(id(first.answer), None)
    rules = {rule.id: rule for part in parts for rule in part.rules}
    return AnswerGroup(
        number,
        first.answer,
        list(bases.values()),
        list(rules.values()),
        whole=all(part.whole for part in parts),
        proved=all(part.proved for part in parts),
    )


def _key(partition: Partition, atom: Atom) -> FactKey:
    return partition.name, atom.predicate, not atom.positive, tuple(map(str, atom.args))


def _provenance(proof: FactProof, top: int) -> Provenance:
    """Return the rule and the premises of the last step of a proof."""
    rule, premises = proof.rule(top), proof.expand(top)
    return Provenance(
        "" if rule is None else rule.text,
        tuple(_premise_text(proof, each) for each in premises),
        frozenset(n for n, each in enumerate(premises) if each in proof.facts.tests),
    )


def _premise_text(proof: FactProof, fact: int) -> str:
    """Return the text of a premise."""
    if fact in proof.facts.tests:
        return print_item(proof.facts.tests[fact][1])
    atom = proof.facts.atom(fact)
    return print_row(atom.predicate, [str(arg) for arg in terms_of(atom)], not atom.positive)
