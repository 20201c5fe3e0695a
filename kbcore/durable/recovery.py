"""Recovery of the state from the newest snapshot and the log after it."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from kbcore.durable.replay import Replay
from kbcore.durable.snapshot import Restorer
from kbcore.plug.ports import LogStore
from kbcore.state.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of a recovery.

    The snapshot's sequence number (0: none), replayed records, and the latest logged time.
    """

    snapshot: int
    records: int
    last_time: int


def recover(store: LogStore, catalog: Catalog) -> Recovered:
    """Bring an empty catalog to the end of the log; raise LogCorrupted."""
    collecting = gc.isenabled()
    gc.disable()  # millions of long-lived objects without cycles: collection would take a third of the time
    try:
        return _recover(store, catalog)
    finally:
        if collecting:
            gc.enable()


def _recover(store: LogStore, catalog: Catalog) -> Recovered:
    restorer = Restorer(catalog)
    after = 0
    snapshot = store.load_snapshot()
    if snapshot is not None:
        after, chunks = snapshot
        for chunk in chunks:
            restorer.feed(chunk)
        for tenant in catalog.tenants():
            tenant.seq = tenant.seq or after  # older snapshots have no sequence number per tenant
    last, records = restorer.last, 0
    replay = Replay(catalog)
    for record in store.read(after):
        last = max(last, replay.take(record))
        records += 1
    replay.finish()
    return Recovered(after, records, last)
