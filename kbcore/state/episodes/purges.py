"""Purges of a tenant, without what they removed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

KEPT_PURGES = 1000
"""Maximum number of purges that a tenant remembers; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class PurgeRecord:
    """A purge: when it was made, by what it selected (`subject`, `episode`, `speaker` or `before`),
    and how much it removed.

    The purged text may be in the log up to the record `seq`, whose position in the chain of the
    tenant is `position`, 0 if it is not in the chain.
    """

    id: str
    by: str
    at: int
    seq: int
    facts: int
    episodes: int
    position: int = 0


class Purges:
    """The purges of a tenant, oldest first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, PurgeRecord] = OrderedDict()

    def note(self, record: PurgeRecord) -> None:
        """Add a purge, or a further part of one that is known."""
        before = self._known.get(record.id)
        if before is not None:
            facts, episodes = record.facts + before.facts, record.episodes + before.episodes
            record = replace(record, facts=facts, episodes=episodes)
        self._known[record.id] = record
        while len(self._known) > KEPT_PURGES:
            self._known.popitem(last=False)

    def all(self) -> list[PurgeRecord]:
        """Return every purge, oldest first."""
        return list(self._known.values())

    def last_seq(self) -> int:
        """Return the sequence number of the last purge, 0 if there was none."""
        return max((record.seq for record in self._known.values()), default=0)

    def restore(self, known: Iterable[list[object]]) -> None:
        """Load what `to_json` returned."""
        for id, by, *numbers in known:
            # Older snapshots have no position.
            self._known[str(id)] = PurgeRecord(str(id), str(by), *(int(str(n)) for n in numbers))

    def to_json(self) -> list[list[object]]:
        """Return every purge as JSON."""
        return [
            [each.id, each.by, each.at, each.seq, each.facts, each.episodes, each.position]
            for each in self._known.values()
        ]
