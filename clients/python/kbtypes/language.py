"""Results of extractions and of answers in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kbtypes.records import Json


@dataclass(frozen=True, slots=True)
class Extracted:
    """Facts and rules that a language model found in a text.

    `facts` and `rules` are the objects of `POST /extract`. `asserted` counts the facts that were
    new and are stored, `known` those that were stored before. `contradictions` are facts whose
    opposite is known, `rejected` what could not be taken, `failures` the pieces of the text that
    the model could not read. `truncated` is True if there were more facts than the server takes.
    `episode_ids` are those of the text, if facts were stored. `discarded` counts the facts that a
    conflict strategy did not store.
    """

    facts: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    asserted: int
    known: int
    contradictions: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    truncated: bool
    provider: str
    model: str
    episode_ids: tuple[str, ...] = ()
    discarded: int = 0

    @classmethod
    def of(cls, answer: Json) -> Extracted:
        """Return the extraction that an answer describes."""
        return cls(
            answer["facts"],
            answer.get("rules", []),
            answer["asserted"],
            answer.get("known", 0),
            answer.get("contradictions", []),
            answer.get("rejected", []),
            answer.get("failures", []),
            bool(answer.get("truncated")),
            answer["provider"],
            answer["model"],
            tuple(answer.get("episodeIds", ())),
            answer.get("discarded", 0),
        )


@dataclass(frozen=True, slots=True)
class Synthesis:
    """An answer in words, and what it depends on.

    `derivation` are the facts behind it with their `type` and `rule`, `queries` the goals that were
    evaluated, `failed` those that could not be, with the reason. `confidence` is from 0 to 1, and 0
    if nothing was found. `sources` are the cited spans of episodes, if they were asked for.
    """

    answer: str
    confidence: float
    derivation: list[dict[str, Any]]
    queries: list[str]
    failed: list[dict[str, Any]]
    provider: str
    model: str
    sources: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, answer: Json) -> Synthesis:
        """Return the synthesis that an answer describes."""
        return cls(
            answer["answer"],
            answer["confidence"],
            answer["derivation"],
            answer["queriesExecuted"],
            answer.get("queriesFailed", []),
            answer["provider"],
            answer["model"],
            answer.get("sources", []),
        )
