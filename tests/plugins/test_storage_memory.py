"""The memory log meets the contract of a log, except for stored records."""

from __future__ import annotations

import pytest

from kbcore.config import Config
from kbcore.errors import LogTruncated
from kbcore.plug.conformance import LogStoreConformance
from kbcore.plug.ports import LogStore
from kbplugins import storage_memory
from kbplugins.storage_memory import MemoryStore


class TestMemory(LogStoreConformance):
    forgets = "this log is meant to forget"

    def make_store(self, config: Config) -> LogStore:
        return MemoryStore(config)


def test_the_hook_offers_memory() -> None:
    assert storage_memory.kb_storage_backends(config=Config()) == {"memory": MemoryStore}


def test_reading_records_raises_log_truncated() -> None:
    store = MemoryStore(Config())
    store.append([(1, 1, b"x")] * 3)
    with pytest.raises(LogTruncated) as caught:
        store.read(0)
    assert caught.value.details == {"first": 4}


def test_a_snapshot_costs_nothing() -> None:
    store = MemoryStore(Config())
    store.append([(1, 1, b"x")])
    store.save_snapshot(1, (pytest.fail("made") for _ in range(1)))
    store.drop_before(1)
    assert store.load_snapshot() is None
