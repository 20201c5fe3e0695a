"""Recovery of the state from the newest snapshot and the log after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from kbcore.durable.replay import Replay
from kbcore.durable.snapshot import Restorer
from kbcore.plug.ports import LogRecord
from kbcore.state.catalog import Catalog


class ReadableLog(Protocol):
    """The part of a log that a recovery reads, as in `LogStore`."""

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot with its sequence number, None without a snapshot."""

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return the records with a sequence number over `after`, in order."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of a recovery.

    The snapshot's sequence number (0: none), replayed records, and the latest logged time.
    """

    snapshot: int
    records: int
    last_time: int

    @property
    def head(self) -> int:
        """Sequence number of the last record of the state."""
        return self.snapshot + self.records


def recover(store: ReadableLog, catalog: Catalog) -> Recovered:
    """Bring an empty catalog to the end of the log; raise LogCorrupted."""
    with _without_collection():
        return _recover(store, catalog)


def catch_up(store: ReadableLog, catalog: Catalog, before: Recovered) -> Recovered:
    """Bring a recovered catalog to the present end of its log; raise LogCorrupted, LogTruncated."""
    with _without_collection():
        records, last = _replay(store, catalog, before.head)
    return Recovered(before.snapshot, before.records + records, max(before.last_time, last))


@contextmanager
def _without_collection() -> Iterator[None]:
    """Turn garbage collection off: it would take a third of the time for millions of long-lived
    objects without cycles.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _replay(store: ReadableLog, catalog: Catalog, after: int) -> tuple[int, int]:
    """Apply the records after a number; return how many, and their latest time."""
    last = records = 0
    replay = Replay(catalog)
    for record in store.read(after):
        last = max(last, replay.take(record))
        records += 1
    replay.finish()
    return records, last


def _recover(store: ReadableLog, catalog: Catalog) -> Recovered:
    restorer = Restorer(catalog)
    after = 0
    snapshot = store.load_snapshot()
    if snapshot is not None:
        after, chunks = snapshot
        for chunk in chunks:
            restorer.feed(chunk)
        for tenant in catalog.tenants():
            tenant.seq = tenant.seq or after  # older snapshots have no sequence number per tenant
    records, last = _replay(store, catalog, after)
    return Recovered(after, records, max(restorer.last, last))
