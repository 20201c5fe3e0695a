"""Evidence of facts: spans of episodes, stored beside the metadata of a fact.

The evidence of a stored fact is one entry of its metadata, under a key that no client can use. It
therefore follows metadata everywhere: into snapshots, copies, merges and transactions. Rows show
it as a member of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbcore.state.intervals import EVIDENCE_KEY, united, without_reserved

MAX_EVIDENCE = 1000
"""Maximum number of spans that support one stored fact."""

Span = dict[str, Any]
"""A span as JSON: `episode`, and `start` and `end` unless it is the whole episode."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A span of an episode, in characters from `start` up to, not including, `end`.

    Without `start` and `end` it is the whole episode.
    """

    episode: str
    start: int | None = None
    end: int | None = None

    def to_json(self) -> Span:
        """Return the span as JSON."""
        span: Span = {"episode": self.episode}
        if self.start is not None:
            span["start"] = self.start
        if self.end is not None:
            span["end"] = self.end
        return span


def evidence_from_json(span: Mapping[str, Any]) -> Evidence:
    """Return the span that `Evidence.to_json` wrote."""
    return Evidence(span["episode"], span.get("start"), span.get("end"))


def evidence_of(metadata: Mapping[str, Any]) -> list[Span]:
    """Return the evidence in stored metadata."""
    spans: list[Span] = metadata.get(EVIDENCE_KEY, [])
    return spans


def without_evidence(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return stored metadata as the client gave them."""
    return without_reserved(metadata)


def with_evidence(metadata: Mapping[str, Any], spans: Sequence[Span]) -> Mapping[str, Any]:
    """Return metadata with exactly this evidence, as they are stored."""
    bare = {key: value for key, value in metadata.items() if key != EVIDENCE_KEY}
    return {**bare, EVIDENCE_KEY: list(spans)} if spans else bare


def union(first: Iterable[Span], second: Iterable[Span]) -> list[Span]:
    """Return the spans of both, each once, in order."""
    spans = {(each["episode"], each.get("start"), each.get("end")): each for each in first}
    for each in second:
        spans.setdefault((each["episode"], each.get("start"), each.get("end")), each)
    return list(spans.values())


def combined(target: Mapping[str, Any], source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of two facts that become one: the source wins a key that both have.

    Their evidence is united.
    """
    spans = union(evidence_of(target), evidence_of(source))
    return with_evidence(united(target, source), spans)
