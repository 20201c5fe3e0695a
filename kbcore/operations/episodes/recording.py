"""The episodes of a submitted text, and the evidence of the facts that were read in it.

Each passage becomes an episode: a text of one speaker is one, messages are one each. Passages over
the limit of an episode are cut between lines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kbcore.language.messages import Passage, Span, Transcript
from kbcore.language.reading import SignedAtom, offsets_of
from kbcore.state.episodes.episodes import NewEpisode, episode_id
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact
from kbcore.state.labels import NO_LABELS, Labels
from kbplanner.pacing import YieldNow, lines_of, paced

FACTS_PER_YIELD = 100
EPISODES_PER_YIELD = 100
"""Facts given their evidence, and episodes made, between two calls of `yield_now`: about a
millisecond.
"""


class Recording:
    """The episodes of a transcript in a session of an agent, where these are known.

    Without a time given for a passage its episode is dated when it is stored, or at `now` (epoch
    milliseconds) if `now` is given. Then equal messages of a list have episodes of their own, and
    otherwise equal texts have the same one. `labels` are those of the episodes. `yield_now` is
    called about once a millisecond.
    """

    def __init__(
        self,
        transcript: Transcript,
        session: str | None,
        max_chars: int,
        now: int | None = None,
        *,
        agent: str | None = None,
        labels: Labels = NO_LABELS,
        yield_now: YieldNow,
    ) -> None:
        self._starts: list[int] = []
        self.episodes: list[NewEpisode] = []
        self.messages: list[int] = []
        """The number of the message of each episode."""
        self._yield_now = yield_now
        pieces: dict[int, int] = {}
        for passage in paced(transcript.passages, yield_now, EPISODES_PER_YIELD):
            own = transcript.messages[passage.message]
            for start, end in _pieces(transcript.text, passage, max_chars):
                number = pieces[passage.message] = pieces.get(passage.message, 0) + 1
                text = transcript.text[start:end]
                at = now if passage.at is None else passage.at
                if own.id is not None:
                    id = own.id if number == 1 else f"{own.id}.{number}"
                else:
                    repeat = None if passage.at is not None or now is None else passage.message
                    id = episode_id(passage.speaker, text, at, session, repeat, agent, labels)
                self._starts.append(start)
                self.messages.append(passage.message)
                self.episodes.append(NewEpisode(id, passage.speaker, text, at, session, agent))

    def evidence(self, spans: Iterable[Span]) -> tuple[Evidence, ...]:
        """Return the evidence of spans of the text: in each episode that they touch."""
        evidence: dict[Evidence, None] = {}
        for start, end in paced(spans, self._yield_now, FACTS_PER_YIELD):
            first = max(0, bisect_right(self._starts, start) - 1)
            for index in range(first, len(self._starts)):
                at, episode = self._starts[index], self.episodes[index]
                if at >= end:
                    break
                low, high = max(start - at, 0), min(end - at, len(episode.text))
                if low < high:
                    evidence[Evidence(episode.id, low, high)] = None
        return tuple(evidence)

    def episode_of(self, span: Span) -> str:
        """Return the id of the episode in which a span of the text begins."""
        index = max(0, bisect_right(self._starts, span[0]) - 1)
        return self.episodes[index].id

    def supported(self, facts: Iterable[Fact], spans: dict[SignedAtom, list[Span]]) -> list[Fact]:
        """Return facts with the evidence of their spans."""
        return [
            replace(
                fact,
                evidence=self.evidence(spans.get((fact.predicate, fact.args, fact.positive), ())),
            )
            for fact in paced(facts, self._yield_now, FACTS_PER_YIELD)
        ]

    def named(self, facts: Iterable[Fact]) -> list[NewEpisode]:
        """Return the episodes that the evidence of facts names, each once."""
        yield_now = self._yield_now
        names = {span.episode for fact in paced(facts, yield_now) for span in fact.evidence}
        return [each for each in paced(self.unique(), yield_now) if each.id in names]

    def unique(self) -> list[NewEpisode]:
        """Return the episodes, each once."""
        return list({each.id: each for each in paced(self.episodes, self._yield_now)}.values())


class ProseLines:
    """Lines of a text that were joined, and the way back to the places in the text."""

    def __init__(self, text: str, numbers: Sequence[int], yield_now: YieldNow) -> None:
        lines = lines_of(text, yield_now)
        offsets = offsets_of(lines, yield_now)
        chosen = [lines[number - 1] for number in paced(numbers, yield_now)]
        self.text = "\n".join(chosen)
        self._starts = offsets_of(chosen, yield_now)
        self._places = [offsets[number - 1] for number in paced(numbers, yield_now)]

    def spans(self, start: int, end: int) -> list[Span]:
        """Return the spans of the whole text for a span of the joined lines, line by line."""
        spans: list[Span] = []
        for index in range(max(bisect_right(self._starts, start) - 1, 0), len(self._places)):
            first, after = self._starts[index], self._starts[index + 1]
            if first >= end:
                break
            low, high = max(start, first), min(end, after - 1)
            if low < high:
                offset = self._places[index]
                spans.append((offset + low - first, offset + high - first))
        return spans


def _pieces(text: str, passage: Passage, max_chars: int) -> Iterable[Span]:
    """Yield the spans of the episodes of a passage, which is cut between lines if it is too
    long.
    """
    start = passage.start
    while passage.end - start > max_chars:
        cut = text.rfind("\n", start, start + max_chars) + 1 or start + max_chars
        yield from _filled(text, start, cut)
        start = cut
    yield from _filled(text, start, passage.end)


def _filled(text: str, start: int, end: int) -> Iterable[Span]:
    return [(start, end)] if text[start:end].strip() else []
