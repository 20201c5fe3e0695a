"""Results of the memory of an agent about a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbtypes.records import TIME, Json, Record, member
from kbtypes.values import Row
from kbtypes.windows import Entry


@dataclass(frozen=True, slots=True)
class AddedMessages(Record):
    """Messages that were stored: the ids of their episodes, and the facts that were read in them.

    `facts` are in the rule language, `asserted` counts those that are new, the texts of messages
    included, and `discarded` those that lost against stored ones. `warning` says why a language
    model could not read the messages; their texts are stored all the same. `forgotten` counts the
    messages that were sent again after they were forgotten; they are not stored.
    """

    episodes: tuple[str, ...] = field(
        metadata=member("episodeIds", about="Of new messages only; a long one may have several.")
    )
    facts: tuple[str, ...] = field(
        metadata=member(about="Facts that were read in the messages, in the rule language.")
    )
    asserted: int = field(
        metadata=member(about="Facts that are new, the texts of the messages included.")
    )
    discarded: int = field(metadata=member(about="Facts that lost against stored ones."))
    warning: str | None = field(
        default=None, metadata=member(about="Why a language model could not read the messages.")
    )
    forgotten: int = field(
        default=0,
        metadata=member(about="Messages that were left out because they had been forgotten."),
    )


@dataclass(frozen=True, slots=True)
class MemorySearch:
    """Memories that match a question: the text for a prompt, its entries and its sources.

    `text` has `tokens` tokens; it is empty if nothing is known. The numbers in brackets in it are
    those of `sources`, the cited passages. `index_progress` is the share of the facts in which the
    words were searched, 0 to 1, and `vectors_missing` the number of facts without a vector, None if
    there is nothing to say.
    """

    text: str
    entries: tuple[Entry, ...]
    sources: Sequence[Mapping[str, Any]]
    tokens: int
    index_progress: float | None = None
    vectors_missing: int | None = None

    @classmethod
    def of(cls, answer: Json) -> MemorySearch:
        """Return the result that an answer describes."""
        return cls(
            answer["text"],
            tuple(map(Entry.of, answer["entries"])),
            answer["sources"],
            answer["tokens"],
            answer.get("indexProgress"),
            answer.get("vectorsMissing"),
        )


@dataclass(frozen=True, slots=True)
class BelievedFact(Record):
    """A stored fact that is valid now, with the passages that it is based on.

    `fact` is its text in the rule language. It is valid from `since` (epoch milliseconds) on;
    `confidence` is 0 to 1, None if unknown. A source has `episode`, `speaker`, `at` and `text`.
    """

    fact: str
    predicate: str
    args: tuple[str, ...]
    negated: bool
    since: int = field(metadata=TIME)
    confidence: float | None
    sources: list[Row]


@dataclass(frozen=True, slots=True)
class BelievedFacts(Record):
    """A page of what is believed now, and the number of all facts."""

    facts: tuple[BelievedFact, ...]
    total: int = field(metadata=member("totalFacts"))


@dataclass(frozen=True, slots=True)
class ForgottenFact(Record):
    """A fact to forget, in the rule language, and why: it was `asked`, only a text that goes was
    its `evidence`, or it is a `summary` of such facts.
    """

    fact: str
    why: str


@dataclass(frozen=True, slots=True)
class ForgottenText(Record):
    """A text to forget: the id of its episode, who said it, and when (epoch milliseconds)."""

    episode: str
    speaker: str
    at: int = field(metadata=TIME)
    text: str


@dataclass(frozen=True, slots=True)
class Forgotten(Record):
    """Facts and texts that were forgotten, or would be if `dry_run`.

    The lists are cut at the limit of the request, the counts are complete. `conclusions` no longer
    hold without them. `erased` is True if no byte of them is left in the log and the snapshots.
    """

    dry_run: bool
    facts: tuple[ForgottenFact, ...] = field(metadata=member(about="At most `limit`."))
    fact_count: int
    texts: tuple[ForgottenText, ...] = field(
        metadata=member(about="Messages that go, at most `limit`.")
    )
    text_count: int
    conclusions: tuple[str, ...] = field(
        metadata=member(about="Conclusions that no longer hold; at most `limit`.")
    )
    conclusion_count: int
    erased: bool
    timestamp: int = field(metadata=TIME)
