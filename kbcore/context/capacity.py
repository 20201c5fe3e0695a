"""Capacity of a window: accepted facts, and the remaining limits on facts, tokens and
predicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from kbcore.context.request import WindowRequest
from kbcore.context.salience import Ranked
from kbcore.context.text.draft import Draft, Item, Quote, TemplatesOf, no_templates, set_notes
from kbcore.context.text.drafts import draft_for
from kbcore.context.text.tokens import TokenCounter
from kbcore.state.facts import Row
from kbplanner.syntax.printer import print_row
from kbtypes.windows import MATCH, Entry, GoalNote, Provenance, RuleInSet, SpanKey

DIGITS = 6
"""Decimal places of salience in an entry."""

MAX_INHERITED = 20
"""Spans of evidence that a conclusion has from the facts it depends on."""

RULE_SHARE = 0.25
"""Part of `maxTokens` that facts leave to rules when rules are asked for."""

FactKey = tuple[str | None, str, bool, tuple[str, ...]]
"""The identity of a fact: scope, predicate, sign and arguments."""


class Excerpt(NamedTuple):
    """The part of a text that a window shows, and its spans in the episode."""

    text: str
    spans: tuple[SpanKey, ...]


@dataclass(slots=True, eq=False)
class RankedCandidate:
    """A candidate for a window: a stored fact, `ranked`, or a conclusion with provenance.

    `salience` is that of the stored fact, or of the least salient stored fact that a conclusion
    depends on. `lexical` is the match with the query. When the fact is accepted, `reason` records
    why, and `goal` the goal that depends on it, if any. `contradicted` is True if the opposite is
    known too. `excerpt` is the part of a text that is written, None for all of it.
    """

    row: Row
    salience: float
    created_at: int
    ranked: Ranked | None = None
    provenance: Provenance | None = None
    lexical: float = 0.0
    relevance: float = 0.0
    bases: Sequence[RankedCandidate] = ()
    category: str = ""
    reason: str = ""
    goal: bool = False
    contradicted: bool = False
    excerpt: Excerpt | None = None
    text: str = field(init=False)
    key: FactKey = field(init=False)

    def __post_init__(self) -> None:
        row = self.row
        self.text = print_row(row["predicate"], row["args"], row["negated"])
        self.key = (row["scope"], row["predicate"], row["negated"], tuple(row["args"]))

    @property
    def predicate(self) -> str:
        """Predicate of the fact."""
        name: str = self.row["predicate"]
        return name


class Room:
    """A window that is being filled, within the request's limits on facts, text and facts per
    predicate.

    `quote` returns the footnotes of the text, if it has citations.
    `draft` is the text of the accepted items. `reserve` is the part of the text, in units of
    `counter`, that is kept free for rules, and `keep` the number of facts that are kept free for
    violations of constraints.
    """

    def __init__(
        self,
        request: WindowRequest,
        counter: TokenCounter,
        templates: TemplatesOf = no_templates,
        quote: Quote | None = None,
    ) -> None:
        self._request = request
        self._quote = quote
        self._templates = templates
        self._counter = counter
        self._max_units: int | None = None
        if request.max_tokens is not None:
            # a draft counts a line break after the last line, which is not sent
            self._max_units = counter.limit(request.max_tokens) + (1 if counter.exact else 0)
        self.draft = self._empty_draft()
        self._alike: Counter[str] = Counter()
        self.reserve = 0
        self.keep = 0
        self.taken: dict[FactKey, RankedCandidate] = {}
        self.rules: list[str] = []
        self.rule_sets: list[RuleInSet] = []
        self.notes: list[GoalNote] = []
        self.repeats = 0
        self.cut: Counter[str] = Counter()

    @property
    def left(self) -> int:
        """Return the number of further facts that fit, ignoring text and predicate limits."""
        return self._request.max_facts - len(self.taken) - self.keep

    @property
    def facts(self) -> Iterable[RankedCandidate]:
        """Return the accepted facts in order."""
        return self.taken.values()

    def alike_left(self, predicate: str) -> int:
        """Return the number of further facts of a predicate that fit."""
        most = self._request.max_per_predicate
        return self.left if most is None else min(self.left, most - self._alike[predicate])

    def reserve_for(self, rules: Iterable[str]) -> None:
        """Reserve text for rules: as much as the rules need, at most RULE_SHARE of the budget."""
        if self._max_units is None:
            return
        most, draft = int(self._max_units * RULE_SHARE), self._empty_draft()
        for rule in rules:
            draft.add(rule)
            if draft.size >= most:
                break
        self.reserve = min(draft.size, most)

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """Limit the facts, one at least, and the text to a share of the budget while a block
        runs.
        """
        keep, reserve = self.keep, self.reserve
        most = self._request.max_facts
        self.keep = max(keep, most - max(int(most * share), 1))
        if self._max_units is not None:
            self.reserve = max(reserve, self._max_units - int(self._max_units * share))
        try:
            yield
        finally:
            self.keep, self.reserve = keep, reserve

    def is_long(self, fact: RankedCandidate, share: float) -> bool:
        """Return whether a fact alone takes more than a share of the text."""
        if self._max_units is None:
            return False
        draft = self._empty_draft()
        draft.add(entry_of(fact))
        return draft.size > self._max_units * share

    def refusal(
        self, facts: Sequence[RankedCandidate], goal: str | None = None, role: str = MATCH
    ) -> str | None:
        """Return the limit that facts exceed together, or None if all of them fit.

        The limit is `maxFacts`, `maxFactsPerPredicate` or `maxTokens`. Facts already in the window
        take no capacity. `goal` is the text of the goal that the facts are accepted for, `role` the
        role of facts without a goal.
        """
        new = {fact.key: fact for fact in facts if fact.key not in self.taken}
        if (limit := self._count_refusal(list(new.values()))) is not None:
            return limit
        entries = [entry_of(fact, goal, role) for fact in new.values()]
        return None if self._fits(entries) else "maxTokens"

    def offer(
        self,
        fact: RankedCandidate,
        category: str,
        reason: str,
        role: str = MATCH,
    ) -> str | None:
        """Add a fact that is not in the window unless it exceeds a limit, which is returned.

        This is `refusal` and `take` for a fact without a goal, which write its line only once.
        """
        if (limit := self._count_refusal([fact])) is not None:
            return limit
        before = fact.category
        fact.category = category
        if not self._fits([entry_of(fact, None, role)], keep=True):
            fact.category = before
            return "maxTokens"
        self._note_taken(fact, reason)
        return None

    def take(
        self,
        fact: RankedCandidate,
        category: str,
        reason: str,
        goal: str | None = None,
        role: str = MATCH,
    ) -> bool:
        """Add a fact that fits. Return False for a fact already in the window, counted as a
        repetition.
        """
        if fact.key in self.taken:
            self.repeats += 1
            return False
        fact.category = category
        self.draft.add(entry_of(fact, goal, role))
        self._note_taken(fact, reason)
        return True

    def take_notes(self, notes: Iterable[GoalNote]) -> None:
        """Add the notes about goals that fit. A window without facts has none."""
        for note in notes:
            if self.taken and self._fits([note]):
                self.draft.add(note)
                self.notes.append(note)

    def take_query_note(self, note: GoalNote) -> None:
        """Add the note about the query if it fits, also to a window without facts."""
        if self._fits([note]):
            self.draft.add(note)
            self.notes.append(note)

    def take_rules(self, rules: Iterable[str], rule_sets: list[RuleInSet]) -> None:
        """Add the rules that fit, using the reserve; count the other rules as cut by
        `maxTokens`. The text names their rule sets.
        """
        self.reserve = 0
        self.rule_sets = rule_sets
        self.draft.rule_sets = set_notes(rule_sets)
        for rule in rules:
            if self._fits([rule]):
                self.draft.add(rule)
                self.rules.append(rule)
            else:
                self.cut["maxTokens"] += 1

    def shrink(self) -> list[RankedCandidate]:
        """Remove the items added last until the text fits, and return the removed facts.

        This is needed only with a tokenizer, whose count of a text can exceed the sum over its
        pieces. At most an eighth of the items is removed before the text is counted again, so that
        few items are removed needlessly.
        """
        dropped: list[RankedCandidate] = []
        if self._request.max_tokens is None or self._counter.exact:
            return dropped
        while (
            over := self._counter.count(self.draft.text()) - self._request.max_tokens
        ) > 0 and self.draft.items:
            target, most = self.draft.size - over, max(1, len(self.draft.items) // 8)
            for _ in range(most):
                if self.draft.size <= target:
                    break
                item = self.draft.pop()
                if isinstance(item, GoalNote):
                    self.notes.pop()
                    continue
                self.cut["maxTokens"] += 1
                if isinstance(item, str):
                    self.rules.pop()
                    continue
                fact = self.taken.pop((item.scope, item.predicate, item.negated, item.args))
                self._alike[fact.predicate] -= 1
                dropped.append(fact)
        return dropped

    def _empty_draft(self) -> Draft:
        request = self._request
        return draft_for(
            request.format,
            self._counter.units,
            goal_driven=bool(request.goals),
            templates=self._templates,
            quote=self._quote,
            times=request.times,
        )

    def _count_refusal(self, new: Sequence[RankedCandidate]) -> str | None:
        """Return the limit on the count of facts that new facts exceed together."""
        if len(new) > self.left:
            return "maxFacts"
        if self._request.max_per_predicate is not None:
            alike = Counter(fact.predicate for fact in new)
            if any(count > self.alike_left(predicate) for predicate, count in alike.items()):
                return "maxFactsPerPredicate"
        return None

    def _note_taken(self, fact: RankedCandidate, reason: str) -> None:
        fact.reason = reason
        self.taken[fact.key] = fact
        self._alike[fact.predicate] += 1

    def _fits(self, items: Sequence[Item], *, keep: bool = False) -> bool:
        """Return True if items fit; with `keep`, they are in the draft then."""
        if self._max_units is None:
            if keep:
                for item in items:
                    self.draft.add(item)
            return True
        if self._counter.exact and len(items) == 1 and isinstance(entry := items[0], Entry):
            at_least = self.draft.size + self.draft.min_size(entry)
            if at_least + self.reserve > self._max_units:
                return False
        for item in items:
            self.draft.add(item)
        fits = self.draft.size + self.reserve <= self._max_units
        if not (fits and keep):
            for _ in items:
                self.draft.pop()
        return fits


def entry_of(fact: RankedCandidate, goal: str | None = None, role: str = MATCH) -> Entry:
    """Return the window entry for a fact; `goal` is the goal it was accepted for, if any."""
    row = fact.row
    return Entry(
        predicate=row["predicate"],
        args=tuple(row["args"]),
        negated=row["negated"],
        scope=row["scope"],
        salience=round(fact.salience, DIGITS),
        category=fact.category,
        text=fact.text,
        created_at=fact.created_at,
        provenance=fact.provenance,
        valid_from=row["validFrom"],
        valid_until=row["validUntil"],
        metadata=row["metadata"],
        confidence=row["confidence"],
        contradicted=fact.contradicted,
        goal=goal,
        evidence=_evidence(fact),
        role=role,
        excerpt=None if fact.excerpt is None else fact.excerpt.text,
    )


def _evidence(fact: RankedCandidate) -> tuple[SpanKey, ...]:
    """Return the spans that support a fact, or the facts that a conclusion depends on.

    A conclusion has at most MAX_INHERITED, the first ones of each fact in turn.
    """
    if fact.excerpt is not None:
        return fact.excerpt.spans
    if not fact.bases:
        return _spans(fact.row)
    turns = zip_longest(*(_spans(base.row) for base in fact.bases))
    spans = dict.fromkeys(span for turn in turns for span in turn if span is not None)
    return tuple(spans)[:MAX_INHERITED]


def _spans(row: Row) -> tuple[SpanKey, ...]:
    return tuple(
        (span["episode"], span.get("start"), span.get("end")) for span in row.get("evidence", ())
    )


Said = dict[str, Any]
"""Part of what a window says about how it was made."""
