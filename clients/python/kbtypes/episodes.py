"""Episodes, evidence, and results of correcting, undoing and purging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kbtypes.errors import InvalidInput
from kbtypes.records import TIME, Json, Record, member
from kbtypes.values import Row

Evidences = Sequence[str | tuple[str, int, int]]
"""Evidence of a fact: ids of episodes, or spans `(id, start, end)` of them, in characters."""


def spans_of(name: str, evidence: Evidences) -> list[dict[str, Any]]:
    """Return evidence as JSON; raise InvalidInput that names the argument."""
    if isinstance(evidence, str):
        raise InvalidInput.at(name, "must be a list of spans")
    spans: list[dict[str, Any]] = []
    for index, span in enumerate(evidence):
        if isinstance(span, str):
            spans.append({"episode": span})
        elif len(span) == 3:
            spans.append({"episode": span[0], "start": span[1], "end": span[2]})
        else:
            raise InvalidInput.at(
                f"{name}[{index}]", "must be the id of an episode, or (id, start, end)"
            )
    return spans


@dataclass(frozen=True, slots=True)
class Episode:
    """A text that `speaker` said at `at` (epoch milliseconds), perhaps in a session.

    `sha256` is the hash of the text in UTF-8, in hexadecimal digits. `is_new` is False if
    it was stored before. `agent` names the agent whose conversation it is from, if known.
    """

    id: str
    speaker: str
    text: str
    at: int
    session: str | None
    sha256: str
    is_new: bool = False
    agent: str | None = None

    @property
    def length(self) -> int:
        """Number of characters of the text."""
        return len(self.text)

    @classmethod
    def of(cls, answer: Json, *, is_new: bool = False) -> Episode:
        """Return the episode that an answer describes."""
        return cls(
            answer["id"],
            answer["speaker"],
            answer["text"],
            answer["at"],
            answer["session"],
            answer["sha256"],
            is_new,
            answer.get("agent"),
        )


@dataclass(frozen=True, slots=True)
class EpisodeFacts:
    """An episode with a page of the stored facts that it supports, and the number of all of
    them.
    """

    episode: Episode
    facts: list[Row]
    total: int

    @classmethod
    def of(cls, answer: Json) -> EpisodeFacts:
        """Return the episode and facts that an answer describes."""
        return cls(Episode.of(answer), answer["facts"], answer["totalFacts"])


@dataclass(frozen=True, slots=True)
class EpisodePage:
    """A page of episodes, in the order in which they were stored, and the number of all that
    match.
    """

    episodes: list[Episode]
    total: int

    @classmethod
    def of(cls, answer: Json) -> EpisodePage:
        """Return the page that an answer describes."""
        return cls([Episode.of(each) for each in answer["episodes"]], answer["total"])


@dataclass(frozen=True, slots=True)
class CorrectOutcome(Record):
    """A correction: the fact that was replaced, as it was, and the one that is stored now.

    `seq` is the number of the change in the log, 0 in a transaction.
    """

    old: Row = field(metadata=member(about="The fact as it was."))
    new: Row = field(
        metadata=member(
            about="The fact with the evidence of the old one, and the metadata `corrects`."
        )
    )
    reason: str
    seq: int = field(
        metadata=member("commitSeq", about="Number of the change; 0 in a transaction.")
    )
    timestamp: int = field(metadata=TIME)


@dataclass(frozen=True, slots=True)
class UndoOutcome(Record):
    """The numbers of the change that was undone and of the one that undid it, and what that did."""

    undone: int = field(metadata=member("undoneSeq"))
    seq: int = field(metadata=member("commitSeq"))
    retracted: int
    restored: int
    rules_changed: int
    timestamp: int = field(metadata=TIME)


@dataclass(frozen=True, slots=True)
class PurgeOutcome:
    """Facts, episodes and conclusions that a purge removed, or would remove.

    The lists are cut at the limit of the request; the counts are complete, except that of
    conclusions if `truncated`. `rules` mention the subject and stay. `scopes` have names that
    mention it: objects with `scope`, `factCount` and `dropped`. `similar` are names of which the
    subject is only a part. `restored` are facts that a removed one had ended, as they hold without
    it. `erased` is True if no byte of the text is left in the log and the
    snapshots of the server. Changes before the number `undo_from` cannot be undone any more.
    """

    id: str | None
    facts: list[Row]
    fact_count: int
    conclusions: list[str]
    conclusion_count: int
    episodes: list[dict[str, Any]]
    episode_count: int
    rules: list[str]
    truncated: bool
    dry_run: bool
    erased: bool
    timestamp: int
    scopes: list[dict[str, Any]]
    similar: list[str]
    undo_from: int | None
    restored: list[Row]

    @classmethod
    def of(cls, answer: Json) -> PurgeOutcome:
        """Return the outcome that an answer describes."""
        return cls(
            answer["purgeId"],
            answer["facts"],
            answer["factCount"],
            [each["text"] for each in answer["conclusions"]],
            answer["conclusionCount"],
            answer["episodes"],
            answer["episodeCount"],
            [each["text"] for each in answer["rules"]],
            answer["truncated"],
            answer["dryRun"],
            answer["erased"],
            answer["timestamp"],
            answer.get("scopes", []),
            answer.get("similar", []),
            answer.get("undoFrom"),
            answer.get("restored", []),
        )


@dataclass(frozen=True, slots=True)
class PurgeState(Record):
    """A purge of the past: what it selected by, how much it removed, and if the text is erased.

    `waits_for` says why it is not: `work` (it is done soon), `followers`, `retry` or `storage`.
    """

    id: str = field(metadata=member("purgeId"))
    by: str
    at: int = field(metadata=TIME)
    facts: int
    episodes: int
    erased: bool
    waits_for: str | None


@dataclass(frozen=True, slots=True)
class FactEvent(Record):
    """An event in the history of a fact: it was `asserted`, `replaced` or `retracted`.

    `cause` says by what, `before` and `after` are the rows of the fact before and after it, None
    where it was not stored. A `purged` event has neither; its `count` is the number of removed
    facts, of any predicate. `at` is in epoch milliseconds, `seq` the number of the change in the
    log. `request` is the idempotency key, `key` the id of the API key; None if the record has none.
    `reason` is that of a correction, `undoes` the number of the change that an undo undid.
    """

    event: str
    cause: str
    at: int = field(metadata=TIME)
    seq: int = field(metadata=member("commitSeq"))
    before: Row | None = field(
        default=None, metadata=member(about="The fact before the event; null if it was not stored.")
    )
    after: Row | None = field(
        default=None, metadata=member(about="The fact after the event; null if it is not stored.")
    )
    request: str | None = field(
        default=None, metadata=member("requestId", about="The idempotency key of the request.")
    )
    transaction: str | None = field(
        default=None, metadata=member(about="The id of the transaction.")
    )
    key: str | None = field(
        default=None, metadata=member(about="The id of the API key that the change was made with.")
    )
    count: int | None = field(
        default=None,
        metadata=member(about="Of a purge: the facts that it removed, of any predicate."),
    )
    reason: str | None = field(default=None, metadata=member(about="Of a correction: its reason."))
    undoes: int | None = field(
        default=None, metadata=member(about="Of an undo: the commit that it undid.")
    )


@dataclass(frozen=True, slots=True)
class FactHistory(Record):
    """A page of the history of facts, and the number of all events.

    The history is complete from `start_at` (epoch milliseconds) on, after the commit `start_seq`.
    """

    events: list[FactEvent]
    total: int = field(metadata=member("totalEvents"))
    start_seq: int
    start_at: int = field(metadata=TIME)
