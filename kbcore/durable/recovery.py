"""Recovery of the state from the newest snapshot and the log after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from kbcore.durable.replay import Replay
from kbcore.durable.snapshot import Restorer
from kbcore.errors import EngineFault, InvalidInput, LogCorrupted
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


@dataclass(slots=True)
class _Place:
    """The part of a log that is being read, for messages."""

    text: str = "the log"


@contextmanager
def _unreadable_as_damage() -> Iterator[_Place]:
    """Raise LogCorrupted for a part whose checksum is right and whose content is not that of a log.

    Such a part comes from a changed file or from another program.
    """
    part = _Place()
    try:
        yield part
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _unreadable(part) from error
    except (EngineFault, InvalidInput) as error:  # rows, rules or phrases that cannot be read
        raise _unreadable(part) from error


def _unreadable(part: _Place) -> LogCorrupted:
    return LogCorrupted(
        f"{part.text} has a right checksum and no content that this version can read",
        directory="",
        segment="",
        offset=0,
        found=part.text,
    )


def _replay(store: ReadableLog, catalog: Catalog, after: int) -> tuple[int, int]:
    """Apply the records after a number; return how many, and their latest time."""
    last = records = 0
    replay = Replay(catalog)
    with _unreadable_as_damage() as part:
        for record in store.read(after):
            part.text = f"record {record.seq}"
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
        with _unreadable_as_damage() as part:
            for number, chunk in enumerate(chunks, 1):
                part.text = f"part {number} of the snapshot at {after}"
                restorer.feed(chunk)
        for tenant in catalog.tenants():
            tenant.seq = tenant.seq or after  # older snapshots have no sequence number per tenant
    records, last = _replay(store, catalog, after)
    return Recovered(after, records, max(restorer.last, last))
