"""Which snapshots and records stay, so that states of the last days can be rebuilt.

Each snapshot is a whole state, so only a few of those in the kept time stay: one at its beginning
or before, and further ones at least an eighth of the time apart. Of the records, the last one that
the first of these snapshots includes stays, because it has the time of that state, and all later
ones.
"""

from __future__ import annotations

from typing import NamedTuple

from kbcore.durable.earlier_states import first_record
from kbcore.durable.known_states import time_of_payload
from kbcore.plug.ports import KeepsHistory, LogStore

DAY_MS = 24 * 3_600_000
PARTS = 8
"""Number of stretches of the kept time of which each has a snapshot, at most."""


class RetainedLog(NamedTuple):
    """The snapshots to keep, and whether records that the oldest of them includes may be
    dropped.
    """

    snapshots: tuple[int, ...]
    drops: bool

    def unneeded(self, upto: int) -> int:
        """Return the number up to which records may be dropped, at most `upto`; 0: none."""
        if not self.drops:
            return 0
        return min([upto, *(number - 1 for number in self.snapshots[:1])])


def kept_history(store: LogStore, now: int, days: int) -> RetainedLog:
    """Return what to keep of a log for this number of days before `now` (epoch milliseconds)."""
    if not days or not isinstance(store, KeepsHistory):
        return RetainedLog((), True)
    begin, apart = now - days * DAY_MS, days * DAY_MS // PARTS
    times = [(number, _time_of(store, number, now)) for number in store.snapshot_numbers()]
    before = [at for _, at in times if at <= begin][-1:]
    numbers: list[int] = []
    last: int | None = None
    # Apart from each other, not from `begin`, which moves: so each can become the first one.
    for number, at in times:
        if at in before or (at > begin and (last is None or at - last >= apart)):
            numbers.append(number)
            last = at
    return RetainedLog(tuple(numbers), bool(before))


def _time_of(store: LogStore, number: int, now: int) -> int:
    """Return the time of the last record of a snapshot, or of the next one if it is gone."""
    after = max(number - 1, first_record(store) - 1)
    record = next(iter(store.read(after)), None)
    return now if record is None else time_of_payload(record.payload)
