"""Episodes of a tenant: texts that someone said, on which facts are based."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from kbcore.state.episodes.text_sizes import entry_bytes
from kbcore.state.labels import NO_LABELS, Labels, to_json
from kbplanner.pacing import YieldNow, go_on, paced
from kbtypes.episodes import Episode

ID_DIGITS = 24
"""Hexadecimal digits of the content hash that are the default id of an episode."""

ID_PREFIX = "ep-"

MAX_SPEAKER_CHARS = 256

EPISODES_PER_YIELD = 200
"""Episodes removed between two calls of `yield_now`: less than a millisecond."""


def episode_bytes(episode: Episode) -> int:
    """Return the approximate size of an episode in bytes, for the quota of the tenant."""
    return entry_bytes(episode.id, episode.speaker, episode.text, episode.session, episode.agent)


@dataclass(frozen=True, slots=True)
class NewEpisode:
    """An episode to be stored; without `at` it is dated when it is stored. `agent` is the agent
    whose conversation it is from.
    """

    id: str
    speaker: str
    text: str
    at: int | None = None
    session: str | None = None
    agent: str | None = None

    @property
    def bytes(self) -> int:
        """Approximate size in bytes, for the quota of the tenant."""
        return entry_bytes(self.id, self.speaker, self.text, self.session, self.agent)

    def dated(self, at: int) -> Episode:
        """Return the episode as it is stored at `at` (epoch milliseconds)."""
        digest = hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()
        when = at if self.at is None else self.at
        return Episode(
            self.id, self.speaker, self.text, when, self.session, digest, agent=self.agent
        )

    def is_same(self, episode: Episode | NewEpisode) -> bool:
        """Return True if another episode has this content, and this time if it is given."""
        return (
            self.speaker == episode.speaker
            and self.text == episode.text
            and self.session == episode.session
            and self.agent == episode.agent
            and self.at in (None, episode.at)
        )


def episode_id(
    speaker: str,
    text: str,
    at: int | None,
    session: str | None,
    number: int | None = None,
    agent: str | None = None,
    labels: Labels = NO_LABELS,
) -> str:
    """Return the default id of an episode: a prefix of the hash of its content and its labels.

    `number` tells equal messages of one time apart. Equal texts with other labels have other ids:
    no writer sees in an id that another writer has stored the text.
    """
    more: list[object] = [each for each in (number, agent) if each is not None]
    if labels:
        more.append({"labels": to_json(labels)})
    content = orjson.dumps([speaker, text, at, session, *more])
    return ID_PREFIX + hashlib.sha256(content).hexdigest()[:ID_DIGITS]


class StoredEpisodes:
    """The episodes of a tenant by id, in the order in which they were stored.

    `below` are those of the tenant that an overlay shows; the overlay adds its own.
    """

    def __init__(self, below: StoredEpisodes | None = None) -> None:
        self._known: dict[str, Episode] = {}
        self._below = below
        self._order: _Order | None = None
        self._speakers: Counter[str] = Counter()
        self._bytes = 0
        self.version = 0
        """Increases when an episode is stored or removed."""

    def __len__(self) -> int:
        return len(self._known) + (0 if self._below is None else len(self._below))

    @property
    def bytes(self) -> int:
        """Approximate size of all episodes in bytes."""
        return self._bytes + (0 if self._below is None else self._below.bytes)

    def __iter__(self) -> Iterator[Episode]:
        if self._below is not None:
            yield from self._below
        yield from self._known.values()

    def __contains__(self, id: object) -> bool:
        return id in self._known or (self._below is not None and id in self._below)

    def get(self, id: str) -> Episode | None:
        """Return an episode, None if it does not exist."""
        known = self._known.get(id)
        return self._below.get(id) if known is None and self._below is not None else known

    def add(self, episode: Episode) -> bool:
        """Store an episode unless its id is known; return True if it is new."""
        if episode.id in self:
            return False
        self._known[episode.id] = episode
        self._bytes += episode_bytes(episode)
        self._speakers[episode.speaker] += 1
        if self._order is not None:
            self._order.add(episode)
        self.version += 1
        return True

    def remove(self, ids: Iterable[str], yield_now: YieldNow = go_on) -> list[Episode]:
        """Remove episodes and return those that existed."""
        popped = (self._known.pop(id, None) for id in paced(ids, yield_now, EPISODES_PER_YIELD))
        removed = [episode for episode in popped if episode is not None]
        self.version += len(removed)
        self._bytes -= sum(map(episode_bytes, paced(removed, yield_now, EPISODES_PER_YIELD)))
        self._speakers -= Counter(episode.speaker for episode in paced(removed, yield_now))
        if removed:
            self._order = None  # made again when it is needed: episodes are seldom removed
        return removed

    def is_speaker(self, name: str) -> bool:
        """Return True if an episode was said by this speaker."""
        return name in self._speakers or (self._below is not None and self._below.is_speaker(name))

    def speakers(self, count: int) -> list[str]:
        """Return the at most `count` speakers of the most episodes."""
        of_all = self._counted_speakers()
        return [name for name, _ in of_all.most_common(count)]

    def last_in_session(self, session: str, count: int) -> list[Episode]:
        """Return the last episodes of a session, at most `count`, in the order in which they were
        stored.

        The caller holds the read lock. The first call reads all episodes.
        """
        total = self._count(session)
        ids = self._slice(session, max(total - count, 0), total)
        return [known for id in ids if (known := self.get(id)) is not None]

    def prepare(self) -> None:
        """Read all episodes for `in_session` and `around`; the caller holds the read lock."""
        self._in_order()

    def in_session(self, session: str) -> Iterator[Episode]:
        """Yield the episodes of a session in the order in which they were stored.

        The caller holds the read lock. The first call reads all episodes unless they
        are prepared.
        """
        if self._below is not None:
            yield from self._below.in_session(session)
        for id in self._in_order().sessions.get(session, ()):
            yield self._known[id]

    def of_agent(self, agent: str) -> Iterator[Episode]:
        """Yield the episodes of the conversations of an agent, in the order of `in_session`."""
        if self._below is not None:
            yield from self._below.of_agent(agent)
        for id in self._in_order().agents.get(agent, ()):
            yield self._known[id]

    def around(self, episode: Episode, distance: int) -> list[tuple[int, Episode]]:
        """Return the episodes of the same session that were stored up to `distance` places before
        and after a stored episode, each with its distance, which is below 0 before it.

        The caller holds the read lock. The first call reads all episodes unless they are prepared.
        """
        if episode.session is None:
            return []
        own = self._index(episode)
        first = max(own - distance, 0)
        ids = self._slice(episode.session, first, own + distance + 1)
        return [
            (index - own, known)
            for index, id in enumerate(ids, first)
            if index != own and (known := self.get(id)) is not None
        ]

    def _counted_speakers(self) -> Counter[str]:
        below = Counter[str]() if self._below is None else self._below._counted_speakers()
        return below + self._speakers

    def _in_order(self) -> _Order:
        if self._order is None:
            order = _Order()
            for each in self._known.values():
                order.add(each)
            self._order = order  # another reader may have made an equal one in between
        return self._order

    def _index(self, episode: Episode) -> int:
        """Return how many episodes of its session were stored before an episode."""
        if episode.id in self._known:
            return self._count_below(str(episode.session)) + self._in_order().indexes[episode.id]
        return 0 if self._below is None else self._below._index(episode)

    def _count(self, session: str) -> int:
        return self._count_below(session) + len(self._in_order().sessions.get(session, ()))

    def _count_below(self, session: str) -> int:
        return 0 if self._below is None else self._below._count(session)

    def _slice(self, session: str, start: int, end: int) -> list[str]:
        """Return the ids from index `start` up to, not including, `end` of a session."""
        below = self._count_below(session)
        ids = self._in_order().sessions.get(session, [])[
            max(start - below, 0) : max(end - below, 0)
        ]
        if self._below is not None and start < below:
            return [*self._below._slice(session, start, end), *ids]
        return ids


class _Order:
    """The ids of the episodes of each session and of each agent, in the order in which they were
    stored, and the index of each in its session.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, list[str]] = {}
        self.agents: dict[str, list[str]] = {}
        self.indexes: dict[str, int] = {}

    def add(self, episode: Episode) -> None:
        """Add an episode after all others of its session and its agent."""
        if episode.agent is not None:
            self.agents.setdefault(episode.agent, []).append(episode.id)
        if episode.session is not None:
            ids = self.sessions.setdefault(episode.session, [])
            self.indexes[episode.id] = len(ids)
            ids.append(episode.id)
