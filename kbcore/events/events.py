"""Events for clients, made from change sets, and filters that select events.

An event is a JSON object with `type`, `eventId`, `timestamp` (epoch milliseconds of the log),
`scope`, and either `atom` (a row as everywhere) or `rule`, depending on the type. The event id
consists of a mark of the log, a sequence number, and a number within the change set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.events.feed import CommitFeed, Committed, Feeds
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    CatalogAction,
    DropScope,
    EndedFact,
    EndFacts,
    EvictFacts,
    EvictReason,
    ForkScope,
    MergeScope,
    RemovedFacts,
    RestoredFact,
    RestoreFacts,
)
from kbcore.state.episodes.evidence import (
    evidence_from_json,
    evidence_of,
)
from kbcore.state.facts import Fact, FactRows, Row
from kbcore.state.intervals import without_reserved
from kbcore.state.rulebook import ParsedRule
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
class ChangeEvent:
    """One event; `number` counts within its change set.

    `predicate` is None if the event may concern any predicate.
    """

    kind: str
    number: int
    scope: str | None
    predicate: str | None
    more: Mapping[str, Any]

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
    """Event filter: by predicate (exact, or a prefix that ends in `*`), types and scope.

    A rule without a scope holds in every scope, so its events match any scope filter. Events about
    whole scopes may concern any predicate, so they match any predicate filter.
    """

    predicate: str | None = None
    kinds: frozenset[str] | None = None
    scope: str | None = None

    @classmethod
    def of(
        cls,
        predicate: str | None = None,
        kinds: Iterable[str] | None = None,
        scope: str | None = None,
    ) -> Wanted:
        """Return a checked filter; raises InvalidInput."""
        selected = None if kinds is None else frozenset(kinds)
        for kind in sorted(selected or ()):
            if kind not in KINDS:
                raise InvalidInput.at("events", f"{kind[:64]!r} is not one of {', '.join(KINDS)}")
        if predicate is not None and not predicate:
            raise InvalidInput.at("predicate", "must not be empty")
        return cls(predicate, selected, scope)

    def takes(self, event: ChangeEvent) -> bool:
        """Return true if the filter selects an event."""
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
            if event_filter.takes(event):
                listener(event.shape(log, committed))

    return feed.subscribe(hear, database, tenant)


def events_of(committed: Committed) -> Iterator[ChangeEvent]:
    """Yield the events of a change set, in the order of its changes; rules come last."""
    for number, (kind, scope, predicate, more) in enumerate(_event_parts(committed)):
        yield ChangeEvent(kind, number, scope, predicate, more)


_EventParts = tuple[str, "str | None", "str | None", Mapping[str, Any]]


def _event_parts(committed: Committed) -> Iterator[_EventParts]:
    delta, at = committed.delta, committed.at
    if committed.catalog_action is not None:
        if happened := _CATALOG.get(committed.catalog_action):
            yield "scope_changed", EVERY_SCOPE, None, {"change": happened}
        return
    removed: dict[int, list[RemovedFacts]] = {}
    for gone in delta.removed:
        removed.setdefault(gone.change, []).append(gone)
    ended = set(delta.ended)
    for number, change in enumerate(committed.changes.changes):
        for gone in removed.get(number, ()):
            for row in gone.rows:
                yield (
                    "fact_retracted",
                    gone.scope,
                    gone.schema.predicate,
                    {"reason": "retracted", "atom": row},
                )
        if isinstance(change, AssertFacts | AssertRows | RestoreFacts):
            yield from _assertions(change, at, delta.retold)
        elif isinstance(change, EvictFacts):
            for rows in change.rows:
                yield from _eviction(rows, change.reason)
        elif isinstance(change, EndFacts):
            for index, fact in enumerate(change.facts):
                if (number, index) in ended:
                    yield _superseded(fact)
        elif isinstance(change, ForkScope):
            yield (
                "scope_changed",
                change.target,
                None,
                {"change": "fork", "sourceScope": change.source},
            )
        elif isinstance(change, MergeScope):
            yield (
                "scope_changed",
                change.target,
                None,
                {"change": "merge", "sourceScope": change.source},
            )
        elif isinstance(change, DropScope):
            yield "scope_changed", change.scope, None, {"change": "drop"}
    for stored in delta.rules_removed:
        yield _rule_change("rule_retracted", stored)
    for stored in delta.rules_added:
        yield _rule_change("rule_asserted", stored)


def _assertions(
    change: AssertFacts | AssertRows | RestoreFacts, at: int, retold: Mapping[Any, int] | None
) -> Iterator[_EventParts]:
    if isinstance(change, AssertFacts):
        for fact in change.facts:
            yield _assertion(fact, at, retold)
    elif isinstance(change, AssertRows):
        for rows in change.rows:
            for index in range(len(rows)):
                yield _assertion(rows.fact(index), at, retold)
    else:
        for restored in change.facts:
            yield _restoration(restored)


def _assertion(fact: Fact, at: int, retold: Mapping[Any, int] | None) -> _EventParts:
    created = (retold or {}).get(fact.key)
    atom = _row(fact, at if created is None else created, at)
    if fact.predicate.endswith(_SUMMARY) and fact.metadata.get("consolidated") is True:
        return (
            "consolidation",
            fact.scope,
            fact.predicate,
            {"updated": created is not None, "atom": atom},
        )
    return (
        "fact_asserted",
        fact.scope,
        fact.predicate,
        {"updated": created is not None, "atom": atom},
    )


def _restoration(restored: RestoredFact) -> _EventParts:
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


def _eviction(rows: FactRows, reason: EvictReason) -> Iterator[_EventParts]:
    kind = "fact_expired" if reason is EvictReason.EXPIRED else "fact_retracted"
    for index in range(len(rows)):
        fact = rows.fact(index)
        yield (
            kind,
            fact.scope,
            fact.predicate,
            {"reason": reason.value, "atom": _row(fact, None, None)},
        )


def _superseded(ended: EndedFact) -> _EventParts:
    fact = Fact(ended.predicate, ended.args, ended.positive, ended.scope)
    detail = {"reason": "superseded", "atom": _row(fact, None, None)}
    return "fact_retracted", fact.scope, fact.predicate, detail


def _rule_change(kind: str, stored: ParsedRule) -> _EventParts:
    shape = rule_to_json(stored.rule)
    rule = {
        "id": stored.id,
        "text": stored.text,
        "head": shape["head"],
        "body": shape["body"],
        "scope": stored.scope,
    }
    return kind, stored.scope, stored.rule.head.predicate, {"rule": rule}
