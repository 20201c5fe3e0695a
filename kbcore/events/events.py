"""Events for clients, made from change sets, and filters that select events.

An event is a JSON object with `type`, `eventId`, `timestamp` (epoch milliseconds of the log),
`scope`, and either `atom` (a row as everywhere) or `rule`, depending on the type. The event id
consists of a mark of the log, a sequence number, and a number within the change set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.events.feed import CommitFeed, Committed, Feeds
from kbcore.state.changes import (
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    AssertRules,
    CatalogAction,
    Change,
    Delta,
    DeployRuleSet,
    DropScope,
    EndedFact,
    EndFacts,
    EvictFacts,
    EvictReason,
    ForkScope,
    MergeScope,
    Parted,
    PurgeMemory,
    RemovedFacts,
    RestoredFact,
    RestoreFacts,
    RetractFact,
    RetractPattern,
    RetractRule,
    RuleForms,
    SetPriority,
    UseLabels,
)
from kbcore.state.episodes.evidence import (
    evidence_from_json,
    evidence_of,
)
from kbcore.state.facts import Fact, Row
from kbcore.state.intervals import without_reserved
from kbcore.state.labels import NO_LABELS, Labels, admits, is_declared
from kbcore.state.rulebook import ParsedRule
from kbcore.state.tenant import Tenant
from kbplanner.syntax.jsonwriter import rule_to_json

KINDS = (
    "fact_asserted",
    "fact_retracted",
    "rule_asserted",
    "rule_retracted",
    "fact_expired",
    "consolidation",
    "scope_changed",
)
"""Names of the event types."""

EVERY_SCOPE = "*"

_ID = re.compile(r"([0-9a-f]{8})\.([0-9]{1,18})(?:\.([0-9]{1,9}))?")
_LAST = 10**9
_SUMMARY = "_consolidated"
_CATALOG = {
    CatalogAction.NUKE_DATABASE: "nuke",
    CatalogAction.NUKE_TENANT: "nuke",
    CatalogAction.DROP_DATABASE: "drop",
    CatalogAction.DROP_TENANT: "drop",
}


@dataclass(frozen=True, slots=True)
class Written:
    """The labels of what was stored: a view that admits them sees the event."""

    labels: Labels = NO_LABELS

    def through(self, event: ChangeEvent, is_seen: IsSeen) -> ChangeEvent | None:
        """Return the event as a view shows it, None if it does not."""
        return event if is_seen(self.labels) else None


@dataclass(frozen=True, slots=True)
class Gone:
    """What a fact had with its labels, and with which it still holds: a view sees that the newest
    details that it admits are gone, and the fact as well if it admits no others. What has ended
    is still shown, as ended.
    """

    parted: Parted
    has_ended: bool = False

    def is_seen(self, is_seen: IsSeen) -> bool:
        """Return True if a view admits the newest details that it shows are gone."""
        admitted = [labels for labels, _ in self.parted.before if is_seen(labels)]
        return bool(admitted) and admitted[-1] not in self.parted.left

    def through(self, event: ChangeEvent, is_seen: IsSeen) -> ChangeEvent | None:
        """Return the event as a view shows it, None if it does not."""
        if not self.is_seen(is_seen):
            return None
        admitted = [(labels, row) for labels, row in self.parted.before if is_seen(labels)]
        for labels, own in () if self.has_ended else reversed(admitted):
            if labels in self.parted.left:
                more = {"updated": True, "atom": own}
                return replace(event, kind="fact_asserted", more=more)
        shown = event.more["atom"]
        details = shown if shown["createdAt"] is None else admitted[-1][1]
        return replace(event, more={**event.more, "atom": details})


@dataclass(frozen=True, slots=True)
class Ruled:
    """The forms of a rule that were added or removed, with their labels: a view sees it that shows
    one of them, and the rule with no other labels.
    """

    forms: RuleForms
    left: tuple[Labels, ...]

    def through(self, event: ChangeEvent, is_seen: IsSeen) -> ChangeEvent | None:
        """Return the event as a view shows it, None if it does not."""
        if not self.is_seen(is_seen):
            return None
        form = next(form for labels, form in self.forms if is_seen(labels))
        return replace(event, more={"rule": _rule_shape(form)})

    def is_seen(self, is_seen: IsSeen) -> bool:
        """Return True if a view admits one of the forms, and no other labels of the rule."""
        return any(is_seen(each) for each, _ in self.forms) and not any(map(is_seen, self.left))


_STORING = (
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    DeployRuleSet,
    RestoreFacts,
)
"""Changes that concern only what has their labels."""


def _removed(group: RemovedFacts, row: Row) -> Fact:
    schema = group.schema
    return Fact(schema.predicate, tuple(row["args"]), schema.positive, group.scope)


def _ended(fact: EndedFact) -> Fact:
    return Fact(fact.predicate, fact.args, fact.positive, fact.scope)


IsSeen = Callable[[Labels], bool]
Seen = Written | Gone | Ruled
ANYBODY = Written()


@dataclass(frozen=True, slots=True)
class EventView:
    """A view of the events of a tenant: those of a knowledge base of what it admits."""

    view: Labels
    tenant: Tenant

    def event(self, event: ChangeEvent) -> ChangeEvent | None:
        """Return an event as the view shows it, None if it does not."""
        seen = event.seen.through(event, self.admits)
        if seen is None:
            return None
        atom = seen.more.get("atom")
        spans = () if atom is None else atom.get("evidence", ())
        known = [span for span in spans if self._shows_episode(span["episode"])]
        if atom is None or len(known) == len(spans):
            return seen
        rest = {key: value for key, value in atom.items() if key != "evidence"}
        shown = {**rest, "evidence": known} if known else rest
        return replace(seen, more={**seen.more, "atom": shown})

    def admits(self, labels: Labels) -> bool:
        """Return True for labels that the view admits, of none if it is not declared any more."""
        dimensions = self.tenant.rules.dimensions()
        return is_declared(self.view, dimensions) and admits(self.view, labels, dimensions)

    def changes(self, committed: Committed) -> list[Change]:
        """Return those of the changes of a change set that change something in the view."""
        shown: list[Change] = []
        delta, labels = committed.delta, committed.changes.labels
        gone: dict[int, list[RemovedFacts]] = {}
        for group in delta.removed:
            gone.setdefault(group.change, []).append(group)
        rules = any(
            self._shows_rule(delta, name, index)
            for name, rules in (
                ("rules_removed", delta.rules_removed),
                ("rules_added", delta.rules_added),
            )
            for index in range(len(rules))
        )
        for number, change in enumerate(committed.changes.changes):
            if isinstance(change, UseLabels):
                labels = change.labels
            elif isinstance(change, _STORING):
                if self.admits(labels):
                    shown.append(change)
            elif isinstance(change, AssertRules | RetractRule):
                if rules or delta.declarations_removed:
                    shown.append(change)
            elif isinstance(change, EvictFacts):
                rows = [
                    each
                    for each in change.rows
                    if any(self._shows(delta, number, each.fact(i)) for i in range(len(each)))
                ]
                if rows:
                    shown.append(EvictFacts(tuple(rows), change.reason))
            elif isinstance(change, EndFacts):
                ended = [change.facts[index] for at, index in delta.ended if at == number]
                ended = [each for each in ended if self._shows(delta, number, _ended(each))]
                if ended:
                    shown.append(EndFacts(tuple(ended)))
            elif isinstance(change, RetractFact | RetractPattern):
                groups = gone.get(number, ())
                facts = (_removed(group, row) for group in groups for row in group.rows)
                if any(self._shows(delta, number, fact) for fact in facts):
                    shown.append(change)
            elif isinstance(change, SetPriority):
                noted = [each for (at, _), each in delta.parted.items() if at == number]
                if not noted or any(Gone(each).is_seen(self.admits) for each in noted):
                    shown.append(change)
            elif isinstance(change, PurgeMemory):
                groups = gone.get(number, ())
                facts = (_removed(group, row) for group in groups for row in group.rows)
                if any(map(self.admits, delta.purged_episodes)) or any(
                    self._shows(delta, number, fact) for fact in facts
                ):
                    shown.append(change)
            else:
                shown.append(change)
        return shown

    def _shows(self, delta: Delta, number: int, fact: Fact) -> bool:
        parted = delta.parted.get((number, (fact.scope, fact.schema, fact.args)))
        return parted is None or Gone(parted).is_seen(self.admits)

    def _shows_rule(self, delta: Delta, name: str, index: int) -> bool:
        labels = delta.rule_labels.get((name, index))
        return labels is None or Ruled(*labels).is_seen(self.admits)

    def _shows_episode(self, id: str) -> bool:
        labels = self.tenant.episode_labels.get(id, NO_LABELS)
        return id in self.tenant.episodes and self.admits(labels)


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """One event; `number` counts within its change set.

    `predicate` is None if the event may concern any predicate. `seen` says who sees it.
    """

    kind: str
    number: int
    scope: str | None
    predicate: str | None
    more: Mapping[str, Any]
    seen: Seen = ANYBODY

    def shape(self, log: str, committed: Committed) -> dict[str, Any]:
        """Return the event as JSON; `log` is the mark of its log."""
        head = {
            "type": self.kind,
            "eventId": Place(log, committed.seq, self.number).text,
            "timestamp": committed.at,
        }
        return {**head, "scope": self.scope, **self.more}


@dataclass(frozen=True, slots=True)
class Place:
    """Position after an event or, without `number`, after all events of a change set."""

    log: str
    seq: int
    number: int = _LAST

    @property
    def text(self) -> str:
        """The position as an event id."""
        return f"{self.log}.{self.seq}" if self.is_whole else f"{self.log}.{self.seq}.{self.number}"

    @property
    def is_whole(self) -> bool:
        """True for a position after all events of a change set."""
        return self.number == _LAST

    @classmethod
    def read(cls, text: str) -> Place | None:
        """Return the position that an event id names, or None for any other text."""
        match = _ID.fullmatch(text)
        return match and cls(match[1], int(match[2]), int(match[3]) if match[3] else _LAST)


def mark_of(log_id: str) -> str:
    """Return the mark of a log in event ids, which tells positions of different logs apart."""
    return hashlib.blake2s(log_id.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Event filter: by predicate (exact, or a prefix that ends in `*`), types, scope and view.

    A rule without a scope holds in every scope, so its events match any scope filter. Events about
    whole scopes may concern any predicate, so they match any predicate filter.
    """

    predicate: str | None = None
    kinds: frozenset[str] | None = None
    scope: str | None = None
    view: EventView | None = None

    @classmethod
    def of(
        cls,
        predicate: str | None = None,
        kinds: Iterable[str] | None = None,
        scope: str | None = None,
        view: EventView | None = None,
    ) -> Wanted:
        """Return a checked filter; raises InvalidInput."""
        selected = None if kinds is None else frozenset(kinds)
        for kind in sorted(selected or ()):
            if kind not in KINDS:
                raise InvalidInput.at("events", f"{kind[:64]!r} is not one of {', '.join(KINDS)}")
        if predicate is not None and not predicate:
            raise InvalidInput.at("predicate", "must not be empty")
        return cls(predicate, selected, scope, view)

    def select(self, event: ChangeEvent) -> ChangeEvent | None:
        """Return an event as the view shows it if the filter selects it, else None."""
        seen = event if self.view is None else self.view.event(event)
        return seen if seen is not None and self._takes(seen) else None

    def _takes(self, event: ChangeEvent) -> bool:
        if self.kinds is not None and event.kind not in self.kinds:
            return False
        if self.scope != event.scope and EVERY_SCOPE not in (self.scope, event.scope):
            return event.scope is None and event.kind.startswith("rule_") and self._names(event)
        return self._names(event)

    def _names(self, event: ChangeEvent) -> bool:
        pattern, name = self.predicate, event.predicate
        if pattern is None or name is None:
            return True
        return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def listen(
    feed: CommitFeed | Feeds,
    log: str,
    database: str,
    tenant: str,
    event_filter: Wanted,
    listener: Callable[[dict[str, Any]], None],
) -> Callable[[], None]:
    """Call `listener` with each selected event of a tenant; return a function that unsubscribes.

    The rules for listeners of `CommitFeed` apply.
    """

    def hear(committed: Committed) -> None:
        for event in events_of(committed):
            if (selected := event_filter.select(event)) is not None:
                listener(selected.shape(log, committed))

    return feed.subscribe(hear, database, tenant)


def events_of(committed: Committed) -> Iterator[ChangeEvent]:
    """Yield the events of a change set, in the order of its changes; rules come last."""
    for number, (kind, scope, predicate, more, seen) in enumerate(_event_parts(committed)):
        yield ChangeEvent(kind, number, scope, predicate, more, seen)


_EventParts = tuple[str, "str | None", "str | None", Mapping[str, Any], Seen]


def _event_parts(committed: Committed) -> Iterator[_EventParts]:
    delta, at = committed.delta, committed.at
    if committed.catalog_action is not None:
        if happened := _CATALOG.get(committed.catalog_action):
            yield "scope_changed", EVERY_SCOPE, None, {"change": happened}, ANYBODY
        return
    removed: dict[int, list[RemovedFacts]] = {}
    for gone in delta.removed:
        removed.setdefault(gone.change, []).append(gone)
    ended = set(delta.ended)
    own = Written(committed.changes.labels)

    def seen(number: int, fact: Fact) -> Seen:
        parted = delta.parted.get((number, (fact.scope, fact.schema, fact.args)))
        return ANYBODY if parted is None else Gone(parted)

    for number, change in enumerate(committed.changes.changes):
        if isinstance(change, UseLabels):
            own = Written(change.labels)
        for gone in removed.get(number, ()):
            for row in gone.rows:
                fact = _removed(gone, row)
                detail = {"reason": "retracted", "atom": row}
                yield "fact_retracted", gone.scope, fact.predicate, detail, seen(number, fact)
        if isinstance(change, AssertFacts | AssertRows | RestoreFacts):
            yield from _assertions(change, at, delta.retold, own)
        elif isinstance(change, EvictFacts):
            for rows in change.rows:
                for index in range(len(rows)):
                    fact = rows.fact(index)
                    yield _eviction(fact, change.reason, seen(number, fact))
        elif isinstance(change, EndFacts):
            for index, over in enumerate(change.facts):
                if (number, index) in ended:
                    fact = _ended(over)
                    detail = {"reason": "superseded", "atom": _row(fact, None, None)}
                    by = seen(number, fact)
                    by = Gone(by.parted, has_ended=True) if isinstance(by, Gone) else by
                    yield "fact_retracted", fact.scope, fact.predicate, detail, by
        elif isinstance(change, ForkScope | MergeScope):
            happened = "fork" if isinstance(change, ForkScope) else "merge"
            joined = {"change": happened, "sourceScope": change.source}
            yield "scope_changed", change.target, None, joined, ANYBODY
        elif isinstance(change, DropScope):
            yield "scope_changed", change.scope, None, {"change": "drop"}, ANYBODY
    for kind, name, rules in (
        ("rule_retracted", "rules_removed", delta.rules_removed),
        ("rule_asserted", "rules_added", delta.rules_added),
    ):
        for index, stored in enumerate(rules):
            labels = delta.rule_labels.get((name, index))
            seen_by = ANYBODY if labels is None else Ruled(*labels)
            detail = {"rule": _rule_shape(stored)}
            yield kind, stored.scope, stored.rule.head.predicate, detail, seen_by


def _assertions(
    change: AssertFacts | AssertRows | RestoreFacts,
    at: int,
    retold: Mapping[Any, int] | None,
    own: Written,
) -> Iterator[_EventParts]:
    if isinstance(change, AssertFacts):
        for fact in change.facts:
            yield _assertion(fact, at, retold, own)
    elif isinstance(change, AssertRows):
        for rows in change.rows:
            for index in range(len(rows)):
                yield _assertion(rows.fact(index), at, retold, own)
    else:
        for restored in change.facts:
            yield (*_restoration(restored), own)


def _assertion(fact: Fact, at: int, retold: Mapping[Any, int] | None, own: Written) -> _EventParts:
    created = (retold or {}).get((own.labels, fact.key))
    atom = _row(fact, at if created is None else created, at)
    is_summary = fact.predicate.endswith(_SUMMARY) and fact.metadata.get("consolidated") is True
    kind = "consolidation" if is_summary else "fact_asserted"
    detail = {"updated": created is not None, "atom": atom}
    return kind, fact.scope, fact.predicate, detail, own


def _restoration(restored: RestoredFact) -> tuple[str, str | None, str, Mapping[str, Any]]:
    before = restored.standing
    spans = evidence_of(before.metadata)
    fact = Fact(
        restored.predicate,
        restored.args,
        before.positive,
        restored.scope,
        None,
        before.valid_from,
        before.valid_until,
        before.confidence,
        without_reserved(before.metadata),
        tuple(map(evidence_from_json, spans)),
    )
    atom = _row(fact, before.created_at, None)
    return "fact_asserted", fact.scope, fact.predicate, {"updated": False, "atom": atom}


def _row(fact: Fact, created: int | None, asserted: int | None) -> Row:
    until = fact.valid_until
    if fact.ttl is not None and asserted is not None:
        until = asserted + fact.ttl if until is None else min(until, asserted + fact.ttl)
    return {
        "predicate": fact.predicate,
        "args": list(fact.args),
        "negated": not fact.positive,
        "scope": fact.scope,
        "metadata": dict(fact.metadata),
        "createdAt": created,
        "validFrom": created if fact.valid_from is None else fact.valid_from,
        "validUntil": until,
        "ttl": fact.ttl,
        "confidence": fact.confidence,
        **({"evidence": [span.to_json() for span in fact.evidence]} if fact.evidence else {}),
    }


def _eviction(fact: Fact, reason: EvictReason, seen: Seen) -> _EventParts:
    kind = "fact_expired" if reason is EvictReason.EXPIRED else "fact_retracted"
    detail = {"reason": reason.value, "atom": _row(fact, None, None)}
    return kind, fact.scope, fact.predicate, detail, seen


def _rule_shape(stored: ParsedRule) -> Mapping[str, Any]:
    shape = rule_to_json(stored.rule)
    return {
        "id": stored.id,
        "text": stored.text,
        "head": shape["head"],
        "body": shape["body"],
        "scope": stored.scope,
    }
