"""The facts that episodes support, and the text of spans."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbcore.reason.budget import Budget
from kbcore.state.facts import Row
from kbcore.state.memory.episodes import Episode, Episodes
from kbcore.state.memory.evidence import Span, evidence_of
from kbcore.state.partition import RowKey, StoredRelation
from kbcore.state.tenant import Tenant

MAX_QUOTED_CHARS = 2000
"""Maximum length of the quotation of a span; a longer span is cut and marked as `truncated`."""


@dataclass(frozen=True, slots=True)
class Supported:
    """A stored fact with evidence, by its relation and symbols."""

    stored: StoredRelation
    row: RowKey
    spans: list[Span]


def supported(tenant: Tenant, episodes: Container[str], budget: Budget) -> Iterator[Supported]:
    """Yield the stored facts with evidence in any of these episodes; the caller holds the lock."""
    for _, stored in tenant.stored():
        for row, metadata in budget.paced(list(stored.metadata.items())):
            spans = evidence_of(metadata)
            if any(span["episode"] in episodes for span in spans):
                yield Supported(stored, row, spans)


def quoted(span: Mapping[str, Any], episode: Episode) -> dict[str, Any]:
    """Return a span with its text, who said it and when (epoch milliseconds)."""
    start, end = span.get("start", 0), span.get("end", episode.length)
    stop = min(end, start + MAX_QUOTED_CHARS)
    quotation: dict[str, Any] = {
        "episode": episode.id,
        "start": start,
        "end": end,
        "text": episode.text[start:stop],
        "speaker": episode.speaker,
        "at": episode.at,
    }
    if stop < end:
        quotation["truncated"] = True
    return quotation


def quoted_all(row: Row, episodes: Episodes) -> list[dict[str, Any]]:
    """Return the evidence of a row with its text; empty for a row without evidence."""
    quotations = []
    for span in row.get("evidence", ()):
        episode = episodes.get(span["episode"])
        if episode is not None:
            quotations.append(quoted(span, episode))
    return quotations


def numbered(
    rows: Iterable[Sequence[Span]], find: Callable[[str], Episode | None]
) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """Assign numbers to the spans of rows in the order in which they occur, each span once.

    Return the numbers of each row, and the sources with `number` and text.
    """
    known: dict[tuple[str, int, int], int] = {}
    sources: list[dict[str, Any]] = []
    numbers: list[list[int]] = []
    for spans in rows:
        own: list[int] = []
        for span in spans:
            episode = find(span["episode"])
            if episode is None:
                continue
            quotation = quoted(span, episode)
            key = episode.id, quotation["start"], quotation["end"]
            number = known.setdefault(key, len(known) + 1)
            if number > len(sources):
                sources.append({"number": number, **quotation})
            own.append(number)
        numbers.append(own)
    return numbers, sources
