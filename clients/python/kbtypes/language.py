"""Results of extractions, of answers in words, and of goals for questions in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kbtypes.records import Json, Record, member


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


@dataclass(frozen=True, slots=True)
class SuggestedGoal(Record):
    """A goal that a question in words can mean, with its answers if it was run.

    `goal` is a text in the rule language, `variable` the one that the question asks for, None if it
    asks whether the goal holds. `answers` are the values of the variable, or `true` or `false` for
    a goal that holds or is denied; None if the goal was not run, or not to its end. `coverage` is
    the share of the words of the question that the goal has, 0 to 1; goals are ordered by `score`.
    """

    goal: str
    variable: str | None
    score: float = field(metadata=member(about="By which the goals are ordered; higher is better."))
    coverage: float = field(
        metadata=member(about="Share of the words of the question that the goal has, 0 to 1.")
    )
    answers: tuple[str, ...] | None = field(
        metadata=member(about="Null: the goal was not run, or not to its end.")
    )
    has_more: bool = field(
        default=False, metadata=member(about="There are more answers than the listed ones.")
    )


@dataclass(frozen=True, slots=True)
class GoalSuggestions(Record):
    """The goals that a question in words can mean, best first, and the answers of the best one.

    `goal` and `answers` are None and empty if no goal is certain enough; then `reason` is
    `noConstant`, `noGoal`, `noAnswer`, `disagree` or `unfinished`.
    """

    goal: str | None
    answers: tuple[str, ...]
    reason: str | None = field(
        metadata=member(
            about="Why there is no answer: `noConstant`, `noGoal`, `noAnswer`, `disagree` or "
            "`unfinished`."
        )
    )
    goals: tuple[SuggestedGoal, ...]
    as_of: int | None = field(
        default=None,
        metadata=member(
            about="Time of the answers in epoch milliseconds, the end of the period that the "
            "question names, such as `in 2024`; null if it names none."
        ),
    )
