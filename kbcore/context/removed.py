"""Reasons for the removal of entries between two windows: no longer true, or no longer selected."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kbcore.context.contradictions import stored_clashes
from kbcore.context.proofs.evidence import ONE_ANSWER, AnswerGroup, Witness
from kbcore.context.ranking import Supply
from kbcore.context.request import WindowRequest
from kbcore.context.resolution import Judge
from kbcore.context.salience import Scores
from kbcore.context.summaries import Summaries
from kbcore.context.text.phrases import premise_atom
from kbcore.context.window import ABSENCE
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition
from kbplanner.engine.backend import NO_ROW
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Literal
from kbtypes.windows import Entry, Window

RETRACTED = "retracted"
"""It is not stored any more, or nothing that it was concluded from is left."""

EXPIRED = "expired"
"""Its validity has ended, or that of a fact it was concluded from."""

SUPERSEDED = "superseded"
"""It is still true: its summary stands for it, or the same fact is in the new window with other
details.
"""

CONTRADICTED = "contradicted"
"""The opposite is known since then, or has won against it."""

NOT_SELECTED = "not_selected"
"""It is still true; other facts took its place, or the request no longer asks for it."""

REASONS = (RETRACTED, EXPIRED, SUPERSEDED, CONTRADICTED, NOT_SELECTED)
NO_LONGER_TRUE = frozenset({RETRACTED, EXPIRED, CONTRADICTED})
"""The reasons for which an entry is no longer true."""


@dataclass(frozen=True, slots=True)
class Removal:
    """An entry that was removed from a window, with one of REASONS."""

    entry: Entry
    reason: str

    @property
    def key(self) -> str:
        """Key of the entry in diffs."""
        return self.entry.key


class Reasons:
    """Reasons for the removal of entries, from the current state; the caller holds the read lock.

    `before` is the previous window, `after` the window built for `request`, `now` the current time.
    """

    def __init__(
        self,
        reasoner: Reasoner,
        scores: Scores,
        before: Window,
        after: Window,
        request: WindowRequest,
        now: int,
        budget: Budget,
    ) -> None:
        self._reasoner = reasoner
        self._tenant = reasoner.tenant
        self._now = self._tenant.at(now)
        self._resolves = request.auto_resolve
        self._budget = budget
        self._kept = {entry.key for entry in after.entries}
        self._before: Mapping[tuple[str | None, str], Entry] = {
            (entry.scope, entry.signed): entry for entry in before.entries
        }
        scopes = dict.fromkeys(entry.scope for entry in before.entries)
        self._partitions: dict[str | None, Partition] = {
            scope: self._tenant.partition(scope) or self._tenant.new_partition(scope)
            for scope in scopes
        }
        self._supply = Supply(scores, list(self._partitions.values()), request.min_salience)
        self._witness = Witness(reasoner, self._supply, request.max_facts, budget)
        self._summaries: Summaries | None = None
        self._judge: Judge | None = None

    def of(self, entries: Iterable[Entry]) -> tuple[Removal, ...]:
        """Return the entries with their reasons. Raises BudgetExceeded."""
        return tuple(
            Removal(entry, self._reason(entry)) for entry in self._budget.paced(list(entries))
        )

    def _reason(self, entry: Entry) -> str:
        if entry.key in self._kept:
            return SUPERSEDED
        partition = self._partitions[entry.scope]
        atom = Atom(entry.predicate, entry.args, not entry.negated)
        if entry.provenance is not None and entry.provenance.rule == ABSENCE:
            return self._reason_of_absence(partition, atom)
        group = self._witness.first(partition, atom)
        if group is None:
            return self._reason_of_untrue(entry, partition, atom)
        if self._resolves and self._has_lost(group):
            return CONTRADICTED
        return SUPERSEDED if self._is_summarized(group, partition) else NOT_SELECTED

    def _reason_of_absence(self, partition: Partition, atom: Atom) -> str:
        """Return the reason for the removal of an entry that states an absence."""
        literal = Literal(Atom(atom.predicate, atom.args), negated=True)
        if self._reasoner.rows(partition, literal, self._budget, ONE_ANSWER):
            return NOT_SELECTED
        return CONTRADICTED

    def _reason_of_untrue(self, entry: Entry, partition: Partition, atom: Atom) -> str:
        if self._is_expired(entry.scope, atom, entry):
            return EXPIRED
        opposite = Atom(atom.predicate, atom.args, not atom.positive)
        if not entry.contradicted and self._witness.first(partition, opposite) is not None:
            return CONTRADICTED
        return EXPIRED if self._depends_on_expired(entry) else RETRACTED

    def _has_lost(self, group: AnswerGroup) -> bool:
        """Return whether a fact, or one that it depends on, is on the losing side of a
        contradiction.
        """
        if self._judge is None:
            self._judge = Judge(
                self._witness, stored_clashes(self._tenant, self._supply, None, self._budget)
            )
        return any(self._judge.loses(fact) for fact in group.facts)

    def _is_summarized(self, group: AnswerGroup, partition: Partition) -> bool:
        """Return whether the new window has the summary of a stored fact."""
        self._summaries = self._summaries or Summaries(self._supply)
        summary = self._summaries.of(group.answer)
        if summary is None:
            return False
        row = summary.row
        key = Entry(
            row["predicate"], tuple(row["args"]), row["negated"], partition.name, 0.0, "", "", 0
        ).key
        return key in self._kept

    def _depends_on_expired(self, entry: Entry) -> bool:
        """Return whether a fact that a conclusion depends on has expired.

        Only facts in the previous window or in the store are checked.
        """
        todo, seen = [entry], {entry.signed}
        while todo:
            provenance = todo.pop().provenance
            for text in provenance.signed if provenance is not None else ():
                known = self._before.get((entry.scope, text))
                atom = premise_atom(text)
                if text in seen or atom is None:
                    continue
                seen.add(text)
                if self._is_expired(entry.scope, atom, known):
                    return True
                if known is not None:
                    todo.append(known)
        return False

    def _is_expired(self, scope: str | None, atom: Atom, known: Entry | None) -> bool:
        """Return whether a fact is stored but no longer valid, or was removed after its
        `validUntil`.
        """
        stored = self._partitions[scope].get(
            RelationSchema(atom.predicate, atom.arity, atom.positive)
        )
        if stored is not None:
            symbols = array("I", [self._tenant.find(str(arg)) for arg in atom.args])
            (row_id,) = stored.relation.locate(symbols, 1)
            if row_id != NO_ROW:
                return (
                    bool(stored.limited)
                    and next(stored.windows(array("I", [row_id])))[1] <= self._now
                )
        return (
            known is not None and known.valid_until is not None and known.valid_until <= self._now
        )
