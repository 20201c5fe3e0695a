"""State from the newest snapshot and the log after it."""

from __future__ import annotations

from dataclasses import dataclass

from kbcore.durable.records import decode_changes
from kbcore.durable.snapshot import Restorer
from kbcore.plug.ports import LogStore
from kbcore.state.apply import apply
from kbcore.state.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start found: the snapshot's sequence number (0: none), log records replayed, and the latest logged time."""

    snapshot: int
    records: int
    last_time: int


def recover(store: LogStore, catalog: Catalog) -> Recovered:
    """Bring an empty catalog to the end of the log; raises LogCorrupted."""
    restorer = Restorer(catalog)
    after = 0
    snapshot = store.load_snapshot()
    if snapshot is not None:
        after, chunks = snapshot
        for chunk in chunks:
            restorer.feed(chunk)
        for tenant in catalog.tenants():
            tenant.seq = tenant.seq or after  # older snapshots do not say
    last, records = restorer.last, 0
    for record in store.read(after):
        at, changes = decode_changes(record.type, record.version, record.payload)
        placed = catalog.place(changes, at, record.seq)
        if placed is not None:
            with placed.lock.write():
                apply(placed, changes, at, record.seq)
        last = max(last, at)
        records += 1
    return Recovered(after, records, last)
