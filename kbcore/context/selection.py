"""Selection of the stored facts that fill a window after its goals: buckets in order, then by
rank.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import islice

from kbcore.context.capacity import Excerpt, RankedCandidate, Room
from kbcore.context.quotations import Quotations
from kbcore.context.ranking import Supply, admitted
from kbcore.context.request import WindowRequest
from kbcore.context.summaries import Summaries, is_summary
from kbcore.context.window import (
    ASSERTED,
    CONSOLIDATED,
    EPHEMERAL,
    GOAL_RELEVANT,
    INFERRED,
    OTHER,
    OVERFLOW,
    RECENT,
    VIOLATION,
)
from kbcore.reason.budget import Budget
from kbtypes.windows import MATCH, Bucket, BucketStats

RECENT_MS = 300_000
"""A fact told less than this long ago is recent."""

FACTS_PER_YIELD = 50
"""Facts added to a window between two calls of `yield_now`: a few milliseconds."""

MAX_REFUSALS = 256
"""Facts in a row that are too long for the rest of `maxTokens`; shorter ones are not searched for
after that.
"""

INSTRUCTION_SHARE = 0.25
"""Part of the facts and of the text of a window that standing instructions may take."""

LONG_SHARE = 0.5
"""Part of the text of a window above which a text is shortened rather than left out."""

MAX_PARTS = 3
"""Texts that are shortened for a window, or looked at for it: each takes some tenths of a
millisecond.
"""

EXAMPLES = 20
"""Facts that did not fit which are named, of those that were looked at."""


class Share:
    """A bucket that is being filled."""

    def __init__(self, bucket: Bucket, allocation: int) -> None:
        self.bucket = bucket
        self.allocation = allocation
        self.included: list[RankedCandidate] = []

    @property
    def left(self) -> int:
        """Return the number of facts that still fit."""
        return self.allocation - len(self.included)

    def admits(self, predicate: str) -> bool:
        """Return whether a fact of a predicate is accepted."""
        return self.left > 0 and (
            self.bucket.predicates is None or predicate in self.bucket.predicates
        )

    def stats(self) -> BucketStats:
        """Return the outcome of the bucket."""
        saliences = [fact.salience for fact in self.included] or [0.0]
        return BucketStats(len(self.included), self.allocation, min(saliences), max(saliences))


def shares(request: WindowRequest) -> list[Share]:
    """Return the buckets with their allocations by weight.

    Each allocation is at least 1, and their sum is at most the capacity of the window.
    """
    weights = sum(bucket.weight for bucket in request.buckets)
    left, result = request.max_facts, []
    for bucket in request.buckets:
        part = bucket.weight / weights if weights else 1 / len(request.buckets)
        allocation = min(max(1, int(part * request.max_facts)), left)
        left -= allocation
        result.append(Share(bucket, allocation))
    return result


class Selection:
    """The stored facts selected for a window; `room` holds them with category and reason."""

    def __init__(
        self,
        request: WindowRequest,
        room: Room,
        supply: Supply,
        loses: Callable[[RankedCandidate], bool],
        quotations: Quotations,
        budget: Budget,
    ) -> None:
        self._request = request
        self._room = room
        self._supply = supply
        self._loses_clash = loses
        self._budget = budget
        self._summaries = Summaries(supply)
        self._quotations = quotations
        self._now = (supply.present or supply.scores).now
        self._refused: set[tuple[object, str]] = set()
        self._parts = 0
        self.shares = shares(request)
        self.savings = 0
        self.left_out: list[tuple[str, str]] = []

    def take_relevant(self, fact: RankedCandidate, reason: str, goal: str) -> None:
        """Add a fact that a goal depends on and that fits, counting it in its bucket if that has
        capacity.
        """
        fact.goal = True
        self._take(fact, GOAL_RELEVANT, reason, goal)

    def take_violation(self, fact: RankedCandidate) -> None:
        """Add a violation of a constraint that fits and that a chosen fact takes part in."""
        reason = "a fact in the window violates a constraint"
        self._take(fact, GOAL_RELEVANT, reason, None, VIOLATION)

    def take_instructions(self, facts: Iterable[RankedCandidate], max_facts: int) -> None:
        """Add standing instructions of the asker that fit into their share of the window."""
        with self._room.within(INSTRUCTION_SHARE):
            for fact in islice(facts, max_facts):
                limit = self._room.refusal([fact])
                if limit is None:
                    self._take(fact, GOAL_RELEVANT, "a standing instruction of the asker", None)
                else:
                    self._room.cut[limit] += 1

    def take_partial(self, fact: RankedCandidate, reason: str, goal: str) -> None:
        """Add a fact that fits and matches part of a rule of a goal without answers."""
        self._take(fact, OVERFLOW if self.shares else category(fact, self._now), reason, goal)

    def _take(
        self,
        fact: RankedCandidate,
        otherwise: str,
        reason: str,
        goal: str | None,
        role: str = MATCH,
    ) -> None:
        share = next((share for share in self.shares if share.admits(fact.predicate)), None)
        name = otherwise if share is None else share.bucket.name
        if self._room.take(fact, name, reason, goal, role) and share is not None:
            share.included.append(fact)

    def give_back(self, facts: Iterable[RankedCandidate]) -> None:
        """Subtract facts that were removed from the window from the statistics of their buckets."""
        for fact in facts:
            for share in self.shares:
                if share.bucket.name == fact.category:
                    share.included.remove(fact)

    def fill(self) -> None:
        """Fill the buckets, then the rest of the window, by rank. Without `fill`, add query matches
        only.
        """
        asked = admitted(self._request, self._supply.partitions)
        for share in self.shares:
            names = share.bucket.predicates
            if names is not None and asked is not None:
                names = tuple(name for name in names if name in asked)
            self._fill(asked if names is None else names, share)
        self._fill(asked, None)

    def _fill(self, predicates: Container[str] | None, share: Share | None) -> None:
        room, request = self._room, self._request
        capped = request.max_per_predicate is not None
        most = room.left if share is None else min(room.left, share.left)
        full = (lambda predicate: room.alike_left(predicate) <= 0) if capped else None
        if most <= 0:
            return
        refused, asks = 0, bool(request.goals) or request.query is not None
        only_matches = not (
            request.fills_by_salience if share is None else request.fills_buckets_by_salience
        )
        ranked = self._supply.best(
            predicates, most + len(room.taken), full, only_matches=only_matches
        )
        for fact in self._budget.paced(ranked, FACTS_PER_YIELD):
            summary = self._summaries.of(fact)
            if summary is not None and (predicates is None or summary.predicate in predicates):
                fact = summary
            if fact.key in room.taken or self._loses(fact):
                continue
            if not self._quotations.shorten(fact, room.taken):
                self._leave_out(fact, "replaced")
                continue
            reason = "bucket" if share is not None else "query" if fact.relevance else "rank"
            role = OTHER if asks and not fact.relevance else MATCH
            refusal = room.offer(fact, self._category(fact, share), reason, role)
            if refusal == "maxTokens" and self._shorten(fact, role):
                refusal = room.offer(fact, self._category(fact, share), reason, role)
            if refusal is not None:
                self._leave_out(fact, refusal)
                refused = refused + 1 if refusal == "maxTokens" else 0
                if refused >= MAX_REFUSALS:
                    return
                continue
            refused = 0
            if is_summary(fact.row["metadata"]):
                self.savings += self._summaries.covered(fact)
            if share is not None:
                share.included.append(fact)
            if room.left <= 0 or (share is not None and share.left <= 0):
                return

    def _shorten(self, fact: RankedCandidate, role: str) -> bool:
        """Leave out of a text that no half of the window could hold what does not fit; return False
        if nothing would be left that has a word of the query.
        """
        room = self._room
        if role != MATCH or self._parts >= MAX_PARTS or not self._quotations.is_text(fact):
            return False
        if not room.is_long(fact, LONG_SHARE):
            return False
        self._parts += 1

        def fits(excerpt: Excerpt) -> bool:
            whole, fact.excerpt = fact.excerpt, excerpt
            try:
                return room.refusal([fact], None, role) is None
            finally:
                fact.excerpt = whole

        part = self._quotations.part_of(fact, fits)
        if part is None:
            return False
        fact.excerpt = part
        return True

    def _loses(self, fact: RankedCandidate) -> bool:
        if not self._loses_clash(fact) or not self._request.auto_resolve:
            return False
        self._leave_out(fact, "contradicted")
        return True

    def _leave_out(self, fact: RankedCandidate, reason: str) -> None:
        if (fact.key, reason) in self._refused:
            return
        self._refused.add((fact.key, reason))
        self._room.cut[reason] += 1
        if len(self.left_out) < EXAMPLES:
            self.left_out.append((fact.text, reason))

    def _category(self, fact: RankedCandidate, share: Share | None) -> str:
        if share is not None:
            return share.bucket.name
        if self.shares:
            return OVERFLOW
        return category(fact, self._now)


def category(fact: RankedCandidate, now: int) -> str:
    """Return the first category that applies to a fact at a time in epoch milliseconds."""
    if fact.ranked is None:
        return INFERRED
    if is_summary(fact.row["metadata"]):
        return CONSOLIDATED
    if fact.row["ttl"] is not None:
        return EPHEMERAL
    return RECENT if now - fact.created_at < RECENT_MS else ASSERTED
