"""The text of spans of episodes, and their numbers as sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kbcore.state.episodes.episodes import StoredEpisodes
from kbtypes.episodes import Episode

MAX_QUOTED_CHARS = 2000
"""Maximum length of the quotation of a span; a longer span is cut and marked as `truncated`."""

MAX_QUOTED_CHARS_OF_FACT = 20_000
"""Maximum length of all quotations of a fact; those after it are marked as `truncated` too."""

Quotation = dict[str, Any]
"""A span as JSON with its text: `episode`, `start`, `end`, `text`, `speaker` and `at`."""


def quoted(
    span: Mapping[str, Any], episode: Episode, max_chars: int = MAX_QUOTED_CHARS
) -> Quotation:
    """Return a span with its text of at most `max_chars` characters, its speaker and its time
    (epoch milliseconds).
    """
    start, end = span.get("start", 0), span.get("end", episode.length)
    stop = min(end, start + max_chars)
    quotation: Quotation = {
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


def quoted_all(spans: Iterable[Mapping[str, Any]], episodes: StoredEpisodes) -> list[Quotation]:
    """Return the spans of a fact with their text, without those of episodes that do not exist any
    more.
    """
    quotations: list[Quotation] = []
    left = MAX_QUOTED_CHARS_OF_FACT
    for span in spans:
        episode = episodes.get(span["episode"])
        if episode is not None:
            quotations.append(quoted(span, episode, min(left, MAX_QUOTED_CHARS)))
            left -= len(quotations[-1]["text"])
    return quotations


class Sources:
    """Spans that are cited, each once, numbered from 1 in order of their first citation."""

    def __init__(self, find: Callable[[str], Episode | None]) -> None:
        self._find = find
        self._numbers: dict[tuple[str, int, int], int] = {}
        self.listed: list[Quotation] = []

    def cite(self, spans: Iterable[Mapping[str, Any]]) -> list[int]:
        """Return the numbers of spans, in order."""
        numbers: list[int] = []
        for span in spans:
            episode = self._find(span["episode"])
            if episode is None:
                continue
            quotation = quoted(span, episode)
            key = episode.id, quotation["start"], quotation["end"]
            number = self._numbers.setdefault(key, len(self._numbers) + 1)
            if number > len(self.listed):
                self.listed.append({"number": number, **quotation})
            if number not in numbers:
                numbers.append(number)
        return numbers


def marks(numbers: Iterable[int]) -> str:
    """Return citations as they are written: ` [1][2]`; empty without numbers."""
    text = "".join(f"[{number}]" for number in numbers)
    return f" {text}" if text else ""
