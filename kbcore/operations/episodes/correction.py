"""Correcting, purging and undoing: changes of what a knowledge base holds, with their reasons."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbcore.branching.preview import Proposal, TruthPreview
from kbcore.errors import Conflict, Forbidden, InvalidInput, NotFound
from kbcore.operations.conflicts import ConflictResolver
from kbcore.operations.episodes.episodes import DEFAULT_LISTED, EpisodeMethods
from kbcore.operations.episodes.given_back import given_back
from kbcore.operations.history.undo import LogReplay, UndoneChange
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.state.changes import (
    AssertFacts,
    Change,
    Delta,
    DropScope,
    EndedFact,
    EndFacts,
    Outdated,
    PurgeMemory,
    RestoredFact,
    RestoreFacts,
    RetractFact,
    UseLabels,
)
from kbcore.state.episodes.evidence import evidence_from_json, evidence_of
from kbcore.state.episodes.purges import PurgeRecord
from kbcore.state.facts import AssertOutcome, Fact, Row, conclusion
from kbcore.state.intervals import without_reserved
from kbcore.state.labels import NO_LABELS, Labels, admits, dominates
from kbcore.state.rulebook import StoredDefinition
from kbcore.state.tenant import Tenant
from kbcore.timestamps import time_text
from kbcore.upkeep.purge import (
    EPISODE,
    SPEAKER,
    NamedScope,
    PurgedGoal,
    PurgePlan,
    PurgeTarget,
    plan_purge,
    purge_records,
)
from kbplanner.engine.backend import NO_ROW
from kbplanner.ir.limits import text_problem
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Rule
from kbplanner.pacing import YieldNow
from kbplanner.syntax.printer import print_atom
from kbtypes.episodes import CorrectOutcome, Episode
from kbtypes.results import TruthChange

FACTS_PER_YIELD = 200
"""Facts read between two calls of `yield_now`: about a millisecond."""

CORRECTS = "corrects"
"""Key of the metadata of a corrected fact: what it replaces, and why."""

MAX_REASON_CHARS = 1000
MAX_ATTEMPTS = 8
MAX_PREVIEWED = 10_000
"""Maximum number of facts of a purge for which conclusions are listed."""


@dataclass(slots=True)
class PurgeRemovals:
    """Facts, episodes and standing goals that a purge removed, or would remove.

    `facts` and `conclusions` are cut at the limit of the request; the counts are complete, except
    those of conclusions if `truncated`. `scopes` have names that mention the subject, with all
    their facts; `rules`, among them phrases, mention it too and stay. `similar` are names that
    contain the subject as a part of a word. `restored` are facts that a removed one had ended, as
    they hold without it, cut at the limit. `erased` is True if no byte of the purged text is left
    in the log and the snapshots of this node. Changes before the number `undo_from` cannot be
    undone any more.
    """

    facts: list[Row]
    fact_count: int
    conclusions: list[TruthChange]
    conclusion_count: int
    episodes: list[Episode]
    rules: list[StoredDefinition]
    goals: list[PurgedGoal]
    scopes: list[NamedScope]
    similar: list[str]
    restored: list[Row]
    truncated: bool
    dry_run: bool
    limit: int
    id: str | None = None
    erased: bool = False
    undo_from: int | None = None
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class PurgeProgress:
    """A purge, and whether its text is gone from the log and the snapshots of this node.

    `waits_for` says why it is not, as in `kbcore.operations.services.Erasure`; None if it is.
    """

    record: PurgeRecord
    erased: bool
    waits_for: str | None


class Corrections(EpisodeMethods, ABC):
    """Corrections of a knowledge base; the abstract methods are those of other parts of it."""

    @abstractmethod
    def preview(
        self,
        proposal: Proposal,
        *,
        limit: int = ...,
        request_limits: RequestLimits | None = None,
    ) -> TruthPreview:
        """Return what would become true or false if a change were made."""

    @abstractmethod
    def _check_upkeep(self, scope: str | None) -> None:
        """Raise InvalidInput if upkeep cannot write to the scope."""

    @abstractmethod
    def _check_intervals(self, facts: Sequence[Fact], yield_now: YieldNow) -> None:
        """Raise InvalidInput for a fact whose interval is empty."""

    @abstractmethod
    def _resolver(
        self, conflict: str, new_rules: Sequence[Rule], yield_now: YieldNow
    ) -> ConflictResolver:
        """Return the writer of facts of a strategy; `new_rules` are stored with the facts."""

    @abstractmethod
    def _goals_to_purge(self) -> list[PurgedGoal]:
        """Return the standing goals of the tenant."""

    @abstractmethod
    def _end_goals(self, ids: Iterable[str]) -> None:
        """End standing goals whose subscriptions are removed, and those that live in memory."""

    def correct(self, old: Atom, new: Fact, *, reason: str) -> CorrectOutcome:
        """Replace a stored fact by another one in one change.

        The new fact gets the evidence of the old one, in addition to its own, its labels, and the
        metadata `corrects` with the text of the old fact and the reason. Both facts are in the
        scope of `new`. Raises NotFound if the old fact is not stored, InvalidInput, Forbidden for a
        fact with labels that this handle may not change, and Conflict for one with several.
        """
        self._check_writable(new.scope)
        if not reason.strip() or len(reason) > MAX_REASON_CHARS:
            raise InvalidInput.at("reason", f"must have 1 to {MAX_REASON_CHARS} characters")
        if problem := text_problem(reason):
            raise InvalidInput.at("reason", problem)
        args = tuple(arg for arg in old.args if isinstance(arg, str))
        if (old.predicate, args, old.positive) == (new.predicate, new.args, new.positive):
            raise InvalidInput.at("new", "is the same fact; assert it to change its metadata")
        if self._services.predicates is not None and new.positive:
            self._services.predicates.check_new([(new.predicate, len(new.args))])
        self._check_intervals([new], self._services.yield_now)
        (new,) = self._with_evidence([new])
        for _ in range(MAX_ATTEMPTS):
            before = self._stored(old.predicate, args, old.positive, new.scope)
            labels = self._labels_of(old, args, new.scope)
            self._check_may_change((labels,))
            evidence = tuple(map(evidence_from_json, before.get("evidence", ())))
            metadata = {**new.metadata, CORRECTS: {"fact": print_atom(old), "reason": reason}}
            fact = replace(
                new, metadata=metadata, evidence=tuple(dict.fromkeys((*evidence, *new.evidence)))
            )
            changes = (
                RetractFact(old.predicate, args, old.positive, new.scope),
                *((UseLabels(labels),) if labels else ()),
                AssertFacts((fact,)),
            )
            try:
                delta = self._commit(changes, self._unchanged(old, args, new.scope, before))
            except Outdated:
                continue
            stored = self._stored(fact.predicate, fact.args, fact.positive, fact.scope)
            return CorrectOutcome(before, stored, reason, delta.seq, delta.at)
        raise Conflict("the fact was changed by other requests again and again")

    def replace_value(self, old: Atom, new: Fact) -> AssertOutcome:
        """Store a fact and end a stored one when the new one begins, in one change.

        Other values of a declared `@key` of the new fact end too. Both facts are in the scope of
        `new`, which begins now without `valid_from`. The old fact keeps its beginning and its
        evidence and stays in the history. Raises NotFound if it is not stored, and InvalidInput if
        it does not begin before the new one.
        """
        self._check_writable(new.scope)
        args = tuple(arg for arg in old.args if isinstance(arg, str))
        if (old.predicate, args, old.positive) == (new.predicate, new.args, new.positive):
            raise InvalidInput.at("replaces", "is the same fact")
        if self._services.predicates is not None and new.positive:
            self._services.predicates.check_new([(new.predicate, len(new.args))])
        yield_now = self._services.yield_now
        self._check_intervals([new], yield_now)
        (new,) = self._with_evidence([new])
        ended = EndedFact(old.predicate, args, old.positive, new.scope, new.valid_from)

        def commit(changes: tuple[Change, ...], check_rivals: Callable[[], None] | None) -> Delta:
            before = self._stored(old.predicate, args, old.positive, new.scope)
            start = self._services.clock.now_ms() if new.valid_from is None else new.valid_from
            if before["validFrom"] >= start:
                raise InvalidInput.at(
                    "since",
                    f"must be after the beginning of {print_atom(old)}, which is"
                    f" {time_text(before['validFrom'])}",
                )
            unchanged = self._unchanged(old, args, new.scope, before)

            def check() -> None:
                unchanged()
                if check_rivals is not None:
                    check_rivals()

            return self._commit((EndFacts((ended,)), *changes), check)

        delta = self._resolver("NEWEST_WINS", (), yield_now).write([new], commit)
        return AssertOutcome(delta.asserted, delta.updated, delta.at, delta.discarded)

    def purge(
        self,
        target: PurgeTarget,
        *,
        dry_run: bool = False,
        wait: bool = True,
        limit: int = DEFAULT_LISTED,
        request_limits: RequestLimits | None = None,
    ) -> PurgeRemovals:
        """Remove facts and episodes, and their text from the log and the snapshots.

        Facts that keep other evidence stay when their episodes go. A value that ended when a fact
        of the episode or speaker began holds again, up to the next newer value; what is removed for
        another reason was not wrong, and restores nothing. Standing goals that mention the subject
        end. Rules are never removed, only listed; scopes whose names mention the subject
        are dropped if the target says so. A purge that finds nothing is carried out too, because
        the log may have facts about the subject that were retracted before. Without `wait`, the
        text is removed from log and snapshots in the background; `purges` says when that is done.
        At most `limit` facts and conclusions are listed. With `dry_run` nothing changes. Raises
        InvalidInput, BudgetExceeded before any change.
        """
        self._check_upkeep(None)
        self._services.refuse_on_follower()
        plan = PurgePlan()
        rows: list[Row] = []
        parts: list[tuple[Any, ...]] = []
        names: list[RetractFact] = []

        goals = self._goals_to_purge()

        def select(tenant: Tenant, budget: Budget) -> None:
            nonlocal plan
            plan = plan_purge(tenant, target, budget, goals)
            rows[:] = plan.rows(tenant, limit)
            parts[:] = purge_records(tenant, plan, budget)
            names[:] = _retractions(parts, budget) if plan.fact_count <= MAX_PREVIEWED else []

        self._evaluated(select, request_limits)
        preview = TruthPreview(truncated=plan.fact_count > len(names))
        if names:
            preview = self.preview(
                Proposal(retractions=tuple(names)),
                limit=limit + len(names),
                request_limits=request_limits,
            )
        derived = [each for each in preview.becomes_false if not each.stored]
        outcome = PurgeRemovals(
            rows,
            plan.fact_count,
            derived[:limit],
            max(0, preview.counts.becomes_false - sum(e.stored for e in preview.becomes_false)),
            plan.episodes,
            plan.rules,
            plan.goals,
            plan.scopes,
            plan.similar,
            [],
            preview.truncated,
            dry_run,
            limit,
            timestamp=self._services.clock.now_ms(),
        )
        if dry_run:
            self._given_back(target, parts, outcome, request_limits)
        else:
            if self._services.find_tenant(self.database, self.tenant) is not None:
                self._purge(target, parts, outcome, request_limits)
            # Also for a tenant that does not exist: its deletion may not have been erased yet.
            if wait:
                outcome.erased = self._services.erase(self.database, self.tenant)
            else:
                self._services.erase_later()
            outcome.undo_from = self.undo_from()
        return outcome

    def undo_from(self) -> int:
        """Return the number before which no change can be undone, because it was purged or is no
        longer in the log.
        """
        tenant = self._read_tenant()
        with tenant.lock.read():
            purged = tenant.purges.last_seq()
        return max(purged, self._services.erasure(self.database, self.tenant).erased) + 1

    def purges(self) -> list[PurgeProgress]:
        """Return the purges of the tenant, oldest first."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            records = tenant.purges.all()
        erasure = self._services.erasure(self.database, self.tenant)
        return [
            PurgeProgress(record, True, None)
            if record.seq <= erasure.erased
            else PurgeProgress(record, False, erasure.waits_for)
            for record in records
        ]

    def undo(
        self,
        *,
        seq: int | None = None,
        request: str | None = None,
        request_limits: RequestLimits | None = None,
    ) -> UndoneChange:
        """Undo one committed change: restore the facts, rules and scopes that it changed.

        The change is given by its number in the log, or by the idempotency key of its request or
        the id of its transaction. The earlier state is rebuilt from a snapshot and the log, so a
        change before the oldest snapshot that is kept cannot be undone. Episodes that it stored
        stay.

        Raises NotFound; Conflict with the later changes in its details if they concern the same
        facts or rules, with `reason: compacted` if the log does not go back far enough, and with
        `reason: purged` for a purge; Forbidden if it concerns labels that this handle may not
        change; BudgetExceeded.
        """
        if (seq is None) == (request is None):
            raise InvalidInput(
                "name a change either by commitSeq or by requestId",
                {"fields": {"commitSeq": ["commitSeq or requestId"]}},
            )
        self._check_upkeep(None)
        self._services.refuse_on_follower()
        with self._budget(request_limits) as budget:
            replay = LogReplay(
                self._services.log(self.database, self.tenant),
                self._services.scratch(),
                (self.database, self.tenant),
                budget,
            )
            if seq is None:
                caller = None if self.actor is None else self.actor.name
                seq = replay.find(request or "", caller)
            self._check_not_purged(seq)
            undone = replay.undone(seq)
            self._check_may_change(undone.labels)
            for _ in range(MAX_ATTEMPTS):
                replay.check_later(undone)
                self._check_not_purged(seq)
                try:
                    delta = self._commit(
                        undone.inverse, self._nothing_since(undone.seq_seen), undoes=seq
                    )
                except Outdated:
                    continue
                return UndoneChange(seq, delta.seq, delta.at, undone)
        raise Conflict("the tenant was changed by other requests again and again")

    # -- inside ------------------------------------------------------------------------------------

    def _check_not_purged(self, seq: int) -> None:
        """Raise Conflict if a purge follows a change: undoing it could bring purged text back."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            purged = tenant.purges.last_seq()
        if seq <= purged:
            raise Conflict(
                f"changes up to {purged} cannot be undone: the tenant was purged after them",
                {"reason": "purged", "commitSeq": seq, "first": purged + 1},
            )

    def _purge(
        self,
        target: PurgeTarget,
        parts: list[tuple[Any, ...]],
        outcome: PurgeRemovals,
        request_limits: RequestLimits | None,
    ) -> None:
        outcome.id = f"purge-{secrets.token_hex(8)}"
        episodes = tuple(episode.id for episode in outcome.episodes)
        goals = tuple(goal.id for goal in outcome.goals)
        dropped: tuple[Change, ...] = tuple(
            DropScope(each.scope) for each in outcome.scopes if each.dropped
        )
        for number, part in enumerate(parts):
            purged = PurgeMemory(outcome.id, target.by, part, episodes, goals)
            changes: tuple[Change, ...] = (purged, *dropped)
            if number:
                delta = self._commit(changes)
            else:
                delta = self._commit_given_back(target, parts, outcome, changes, request_limits)
            episodes, dropped = (), ()
            outcome.timestamp = delta.at
        self._end_goals(goals)

    def _commit_given_back(
        self,
        target: PurgeTarget,
        parts: list[tuple[Any, ...]],
        outcome: PurgeRemovals,
        changes: tuple[Change, ...],
        request_limits: RequestLimits | None,
    ) -> Delta:
        """Commit a purge, and give others the time back that the removed facts had taken."""
        for _ in range(MAX_ATTEMPTS):
            restored, seq = self._given_back(target, parts, outcome, request_limits)
            if not restored:
                return self._commit(changes)
            try:
                return self._commit((*changes, RestoreFacts(restored)), self._nothing_since(seq))
            except Outdated:
                continue
        raise Conflict("the tenant was changed by other requests again and again")

    def _given_back(
        self,
        target: PurgeTarget,
        parts: list[tuple[Any, ...]],
        outcome: PurgeRemovals,
        request_limits: RequestLimits | None,
    ) -> tuple[tuple[RestoredFact, ...], int]:
        """Return the facts that hold again after a purge, which the outcome lists, and the number
        of the change after which they are as they are.
        """
        if target.by not in (EPISODE, SPEAKER):
            return (), 0
        removed = [rows for part in parts for rows in part]
        episodes = frozenset(episode.id for episode in outcome.episodes)

        def evaluate(tenant: Tenant, budget: Budget) -> tuple[tuple[RestoredFact, ...], int]:
            return given_back(tenant, removed, episodes, budget), tenant.seq

        restored, seq = self._evaluated(evaluate, request_limits)
        outcome.restored = [_row(each) for each in restored[: outcome.limit]]
        return restored, seq

    def _stored(
        self, predicate: str, args: Sequence[str], positive: bool, scope: str | None
    ) -> Row:
        """Return a stored fact that has not expired; raise NotFound."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            partition = tenant.partition(scope)
            schema = RelationSchema(predicate, len(args), positive)
            stored = None if partition is None else partition.get(schema)
            symbols = array("I", [tenant.engine.find(arg) for arg in args])
            if stored is not None and 0 not in symbols:
                ids = stored.relation.locate(symbols, 1)
                if ids[0] != NO_ROW and tuple(symbols) not in stored.expired:
                    return stored.rows(tenant.engine, symbols, ids)[0]
        raise NotFound(
            f"{print_atom(Atom(predicate, tuple(args), positive))} is not stored",
            {"predicate": predicate, "args": list(args), "scope": scope},
        )

    def _labels_of(self, old: Atom, args: Sequence[str], scope: str | None) -> Labels:
        """Return the labels of a stored fact; raise Conflict if it is stored with several."""
        tenant = self._stored_tenant()
        dimensions = tenant.rules.dimensions()
        with tenant.lock.read():
            partition = tenant.partition(scope)
            schema = RelationSchema(old.predicate, len(args), old.positive)
            stored = None if partition is None else partition.get(schema)
            row = tuple(tenant.engine.find(arg) for arg in args)
            if stored is None:
                return NO_LABELS
            known = stored.stacked.get(row) or (stored.labels.get(row),)
        seen = [each for each in known if admits(self.view, each, dimensions)]
        if len(seen) > 1:
            raise Conflict(
                f"{print_atom(old)} is stored with several labels: retract it and store the"
                " right fact with each of them"
            )
        return seen[0] if seen else NO_LABELS

    def _check_may_change(self, items: Iterable[Labels]) -> None:
        """Raise Forbidden, which names the dimension, for labels of items that what this handle
        writes may not change.
        """
        dimensions = self._stored_tenant().rules.dimensions()
        for labels in items:
            for own in self.labels:
                if not dominates((own,), labels, dimensions):
                    raise Forbidden(
                        f"what has other labels may not be changed with this {own[0]}",
                        {"dimension": own[0]},
                    )

    def _nothing_since(self, seq: int) -> Callable[[], None]:
        def check() -> None:
            tenant = self._read_tenant()
            with tenant.lock.read():
                if tenant.seq > seq:
                    raise Outdated("the tenant has changed")

        return check

    def _unchanged(
        self, old: Atom, args: Sequence[str], scope: str | None, before: Row
    ) -> Callable[[], None]:
        def check() -> None:
            if self._stored(old.predicate, args, old.positive, scope) != before:
                raise Outdated("the fact has changed")

        return check


def _row(fact: RestoredFact) -> Row:
    """Return a restored fact in its external form."""
    standing = fact.standing
    row = {
        **conclusion(fact.predicate, standing.positive, list(fact.args), fact.scope),
        "metadata": dict(without_reserved(standing.metadata)),
        "createdAt": standing.created_at,
        "validFrom": standing.valid_from,
        "validUntil": standing.valid_until,
        "ttl": fact.ttl,
        "confidence": standing.confidence,
    }
    spans = evidence_of(standing.metadata)
    return {**row, "evidence": spans} if spans else row


def _retractions(parts: Sequence[tuple[Any, ...]], budget: Budget) -> list[RetractFact]:
    return [
        RetractFact(rows.predicate, fact.args, rows.positive, rows.scope)
        for part in parts
        for rows in part
        for fact in map(rows.fact, budget.paced(range(len(rows)), FACTS_PER_YIELD))
    ]
