"""Erased episodes, without what they said: a client that sends a whole conversation again must
neither bring them back nor store the others twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from kbcore.state.episodes.episodes import EPISODES_PER_YIELD, ID_DIGITS, ID_PREFIX
from kbplanner.pacing import YieldNow, go_on, paced
from kbtypes.episodes import Episode

KEPT_PLACES = 10_000
KEPT_IDS = 10_000
"""Maximum number of erased episodes that a tenant remembers, by their place in a session and by the
ids that clients gave them; the session, or the id, that was erased first is forgotten first.
"""

DIGEST_BYTES = 8
MAX_KEY_BYTES = 64

_DEFAULT_ID = re.compile(rf"{ID_PREFIX}[0-9a-f]{{{ID_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class ErasedEpisode:
    """The place of an erased episode: its time and its number of characters."""

    at: int
    chars: int


class ErasedEpisodes:
    """The places of erased episodes in their sessions, and the ids that clients gave them.

    Names of sessions and ids are kept as digests with a key of the tenant. Digests of texts are not
    kept, because who reads them can guess a short text. For the same reason default ids, which
    follow from the text, are not kept.
    """

    def __init__(self) -> None:
        self._key = ""
        self._places: dict[str, dict[int, ErasedEpisode]] = {}
        self._ids: dict[str, None] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._places or self._ids)

    def add(
        self,
        key: str,
        places: Mapping[str | None, Mapping[int, Episode]],
        yield_now: YieldNow = go_on,
    ) -> None:
        """Note episodes by session and by their index in it, which counts erased ones too.

        `key` is the key of the digests if the tenant has none yet.
        """
        self._key = self._key or key
        for session, episodes in paced(places.items(), yield_now, EPISODES_PER_YIELD):
            known = self._places.setdefault(self._digest(session or ""), {})
            for index, each in paced(episodes.items(), yield_now, EPISODES_PER_YIELD):
                known[index] = ErasedEpisode(each.at, len(each.text))
                self._count += 1
                if not is_default_id(each.id):
                    self._ids[self._digest(each.id)] = None
        while self._count > KEPT_PLACES:
            self._count -= len(self._places.pop(next(iter(self._places))))
        while len(self._ids) > KEPT_IDS:
            del self._ids[next(iter(self._ids))]

    def in_session(self, session: str | None) -> Mapping[int, ErasedEpisode]:
        """Return the erased episodes of a session, or of none, by index."""
        return self._places.get(self._digest(session or ""), {}) if self._places else {}

    def has_id(self, id: str) -> bool:
        """Return True if a client gave this id to an erased episode."""
        return bool(self._ids) and self._digest(id) in self._ids

    def restore(self, body: Mapping[str, Any]) -> None:
        """Load what `to_json` returned."""
        self._key = body["key"]
        for session, places in body["places"].items():
            self._places[session] = {index: ErasedEpisode(at, chars) for index, at, chars in places}
            self._count += len(places)
        self._ids = dict.fromkeys(body["ids"])

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        places = {
            session: [[index, each.at, each.chars] for index, each in known.items()]
            for session, known in self._places.items()
        }
        return {"key": self._key, "places": places, "ids": list(self._ids)}

    def _digest(self, name: str) -> str:
        key = self._key.encode()[:MAX_KEY_BYTES]
        return blake2b(name.encode(), digest_size=DIGEST_BYTES, key=key).hexdigest()


def is_default_id(id: str) -> bool:
    """Return True if an id has the form of those that follow from the content of an episode."""
    return _DEFAULT_ID.fullmatch(id) is not None


def with_erased(
    stored: Iterable[Episode], erased: Mapping[int, ErasedEpisode]
) -> Iterator[Episode | ErasedEpisode]:
    """Yield the episodes of a session in order, the erased ones at their index."""
    index = 0
    for episode in stored:
        while index in erased:
            yield erased[index]
            index += 1
        yield episode
        index += 1
    while index in erased:
        yield erased[index]
        index += 1
