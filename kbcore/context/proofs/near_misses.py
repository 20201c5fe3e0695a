"""Near misses of a goal without answers: each of its rules, matched as far as possible."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kbcore.context.capacity import RankedCandidate
from kbcore.context.proofs.evidence import ONE_ANSWER, UNCOUNTED, Witness
from kbcore.errors import UnboundArgument
from kbcore.state.partition import Partition
from kbcore.state.rulebook import ParsedRule, stored_rule
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, Literal, Variable
from kbplanner.ir.unify import Substitution, substituted_atom, unify
from kbplanner.syntax.printer import print_item

BRANCHES = 8
"""Ways of matching a rule that are followed, and facts that are looked at for each literal in one
of them.
"""

RULES = 20
"""Rules of a goal that are looked at."""


@dataclass(frozen=True, slots=True)
class MatchedPremises:
    """A rule, or the body of a goal without a rule, with the stored facts that match part of it,
    and the unmatched literals as text.
    """

    rule: ParsedRule | None
    facts: tuple[RankedCandidate, ...]
    missing: tuple[str, ...]


class Partial:
    """Matcher for the rules of goals without answers, in one partition; the caller holds the read
    lock.
    """

    def __init__(self, witness: Witness, partition: Partition) -> None:
        self._witness = witness
        self._partition = partition

    def rules(self, goal: Atom) -> Iterator[MatchedPremises]:
        """Yield a match for each rule whose head unifies with the goal."""
        looked = 0
        for rule in self._witness.reasoner.tenant.rules.visible(self._partition.name).rules:
            values = unify(rule.head, goal)
            if values is None:
                continue
            facts, missing = self._matched(rule.body, values)
            yield MatchedPremises(stored_rule(rule), facts, missing)
            looked += 1
            if looked >= RULES:
                return

    def body(self, body: Sequence[BodyItem]) -> MatchedPremises:
        """Return the match for a goal of several literals."""
        facts, missing = self._matched(body, {})
        return MatchedPremises(None, facts, missing)

    def _matched(
        self, body: Sequence[BodyItem], values: Substitution
    ) -> tuple[tuple[RankedCandidate, ...], tuple[str, ...]]:
        """Match the literals from left to right, skipping those without a match; then test those
        with `not`.
        """
        branches = [values]
        facts: dict[object, RankedCandidate] = {}
        missing: list[str] = []
        for item in body:
            if not isinstance(item, Literal) or item.negated:
                continue
            grown: list[Substitution] = []
            for known in branches:
                atom = substituted_atom(item.atom, known)
                for fact, args in self._matches(atom):
                    if fact is not None:
                        facts.setdefault(fact.key, fact)
                    more = dict(known)
                    more.update(
                        (t, a)
                        for t, a in zip(atom.args, args, strict=True)
                        if isinstance(t, Variable)
                    )
                    grown.append(more)
            if grown:
                branches = grown[:BRANCHES]
            else:
                missing.append(
                    print_item(replace(item, atom=substituted_atom(item.atom, branches[0])))
                )
        for item in body:
            if not isinstance(item, Literal) or not item.negated:
                continue
            atoms = [substituted_atom(item.atom, known) for known in branches]
            holding = [index for index, atom in enumerate(atoms) if self._is_absent(atom)]
            if holding:
                branches = [branches[index] for index in holding]
            else:
                missing.append(print_item(replace(item, atom=atoms[0])))
        return tuple(facts.values()), tuple(missing)

    def _is_absent(self, atom: Atom) -> bool:
        """Return whether `not atom` holds; an atom with variables is taken to."""
        if not atom.ground:
            return True
        literal, witness = Literal(atom, negated=True), self._witness
        return bool(witness.reasoner.rows(self._partition, literal, witness.budget, ONE_ANSWER))

    def _matches(self, atom: Atom) -> Iterator[tuple[RankedCandidate | None, Sequence[str]]]:
        """Yield the most salient stored facts that match, or conclusions if no stored fact
        matches.
        """
        witness, tenant = self._witness, self._witness.reasoner.tenant
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        stored, pattern = self._partition.get(schema), goal_pattern(atom.args, tenant.find)
        if stored is not None and pattern is not None:
            best = witness.supply.scores.most_of(
                [(stored, pattern if any(pattern) else None)], BRANCHES
            )
            if best:
                for fact in witness.supply.candidates(
                    [witness.supply.supplied(ranked) for ranked in best]
                ):
                    yield fact, fact.row["args"]
                return
        if witness.reasoner.concludes(self._partition, schema):
            try:
                rows, count = witness.reasoner.solve(
                    self._partition, atom, witness.budget, UNCOUNTED
                )
            except UnboundArgument:  # a plugin has no rows without values for its inputs
                return
            for index in range(min(count, BRANCHES)):
                yield (
                    None,
                    tenant.engine.texts(
                        array("I", rows[index * atom.arity : (index + 1) * atom.arity])
                    ),
                )
