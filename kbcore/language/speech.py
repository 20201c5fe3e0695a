"""The passages of a text as a prompt shows them: who said what on which day, and what was said
before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain, islice

from kbcore.language.messages import ROLES, Passage, Span, Transcript

MAX_EARLIER_TURNS = 3
"""Turns before a chunk of text that its prompt shows as context."""

MAX_PEOPLE = 30
"""Names of people in a prompt."""

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last time that have a day with four digits of the year."""

MAX_EARLIER_CHARS = 600
"""Maximum length of an earlier turn in a prompt; a longer one is cut."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Words of one speaker (None: unknown) at a time in epoch milliseconds (None: unknown)."""

    speaker: str | None
    at: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a statement: its speaker and time, as in a turn, its episode, and its span of
    the text that the model reads.
    """

    speaker: str | None
    at: int | None
    episode: str
    span: Span


class Speech:
    """The text that a model reads as passages of a transcript.

    `spans` maps a span of the text to spans of the transcript, and `episode_of` a span of the
    transcript to the id of its episode. A speaker without a time of its own spoke at `now` (epoch
    milliseconds). `earlier` are turns before the transcript, `people` known names of people.
    """

    def __init__(
        self,
        transcript: Transcript,
        spans: Callable[[int, int], Iterable[Span]],
        episode_of: Callable[[Span], str],
        now: int,
        earlier: Sequence[Turn] = (),
        people: Sequence[str] = (),
    ) -> None:
        self.now = now
        self._transcript = transcript
        self._spans = spans
        self._episode_of = episode_of
        self._earlier = earlier
        passages = transcript.passages
        self._starts = [passage.start for passage in passages]
        named = (each.speaker for each in passages if each.is_named and each.speaker not in ROLES)
        self.people = list(islice(dict.fromkeys(chain(named, people)), MAX_PEOPLE))

    def turns(self, start: int, end: int) -> list[Turn]:
        """Return the turns in a span of the text."""
        turns: list[Turn] = []
        last: Passage | None = None
        for low, high in self._spans(start, end):
            for passage in self._passages(low, high):
                words = self._words(passage, low, high)
                if passage is last and turns:
                    words, _ = f"{turns[-1].text}\n{words}", turns.pop()
                last = passage
                turns.append(Turn(*self._speaker(passage), words))
        return [turn for turn in turns if turn.text.strip()]

    def before(self, start: int, end: int) -> list[Turn]:
        """Return the last turns before a span of the text, shortened."""
        position = next(iter(self._spans(start, end)), (0, 0))[0]
        index = max(bisect_right(self._starts, position) - 1, 0)
        passages = self._transcript.passages[max(index - MAX_EARLIER_TURNS, 0) : index]
        turns = [
            Turn(*self._speaker(each), self._words(each, each.start, each.end)) for each in passages
        ]
        return [
            Turn(turn.speaker, turn.at, _shortened(turn.text))
            for turn in [*self._earlier, *turns][-MAX_EARLIER_TURNS:]
            if turn.text.strip()
        ]

    def origin(self, span: Span) -> Origin:
        """Return the origin of a statement with a span of the text; a span of several speakers has
        an unknown one.
        """
        parts = list(self._spans(*span)) or [(0, 1)]
        passages = [each for part in parts for each in self._passages(*part)]
        speaker, at = self._speaker(self._transcript.passage(parts[0][0]))
        if any(self._speaker(each)[0] != speaker for each in passages):
            speaker = None
        return Origin(speaker, at, self._episode_of(parts[0]), span)

    def time(self, spans: Iterable[Span]) -> int | None:
        """Return the earliest given time of spans of the text, None if none is given."""
        return self._transcript.time(part for span in spans for part in self._spans(*span))

    def _passages(self, low: int, high: int) -> Iterable[Passage]:
        first = max(bisect_right(self._starts, low) - 1, 0)
        for index in range(first, len(self._starts)):
            if self._starts[index] >= high:
                return
            yield self._transcript.passages[index]

    def _words(self, passage: Passage, low: int, high: int) -> str:
        """Return the words of a passage between two offsets, without the name before them."""
        return self._transcript.text[max(low, passage.words) : min(high, passage.end)]

    def _speaker(self, passage: Passage) -> tuple[str | None, int | None]:
        at = passage.at if passage.at is None or has_day(passage.at) else None
        if not passage.is_named:
            return None, at
        return passage.speaker, self.now if passage.at is None else at


def has_day(at: int) -> bool:
    """Return True if a time in epoch milliseconds is in the years 1 to 9999."""
    return FIRST_MS <= at <= LAST_MS


def day_of(at: int) -> str:
    """Return the day of a time in epoch milliseconds that has one, in UTC, as `2026-09-08`."""
    return _utc(at).date().isoformat()


def day_in_words(at: int) -> str:
    """Return a day for a prompt: `2026-09-08, a Tuesday`."""
    return f"{day_of(at)}, a {WEEKDAYS[_utc(at).weekday()]}"


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _utc(at: int) -> datetime:
    return datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=at)


def _shortened(text: str) -> str:
    if len(text) <= MAX_EARLIER_CHARS:
        return text
    return text[: MAX_EARLIER_CHARS - 3].rstrip() + "..."
