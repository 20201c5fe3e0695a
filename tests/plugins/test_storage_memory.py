"""The memory log meets the contract of a log, except for what the next start reads."""

from __future__ import annotations

import pytest

from kbcore.config import Config
from kbcore.errors import LogTruncated
from kbcore.plug.conformance import LogStoreConformance
from kbcore.plug.ports import LogRecord, LogStore
from kbplugins import storage_memory
from kbplugins.storage_memory import MemoryStore


class TestMemory(LogStoreConformance):
    forgets = "this log is meant to forget"

    def make_store(self, config: Config) -> LogStore:
        return MemoryStore(config)


def test_the_hook_offers_memory() -> None:
    assert storage_memory.kb_storage_backends(config=Config()) == {"memory": MemoryStore}


RECORD = (1, 1, b"x")


def numbers(store: MemoryStore, after: int) -> list[int]:
    return [record.seq for record in store.read(after)]


def test_few_records_are_kept() -> None:
    store = MemoryStore(Config())
    store.append([RECORD] * 3)
    assert (numbers(store, 0), numbers(store, 2), numbers(store, 3)) == ([1, 2, 3], [3], [])
    assert next(store.read(1)) == LogRecord(2, *RECORD)
    assert store.erased() == 0


def test_many_records_are_all_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_memory, "KEPT_BYTES", 3 * (storage_memory.RECORD_BYTES + 1))
    store = MemoryStore(Config())
    store.append([RECORD] * 3)
    assert numbers(store, 0) == [1, 2, 3]
    store.append([RECORD])
    for head in (4, 5):
        with pytest.raises(LogTruncated) as caught:
            store.read(0)
        assert caught.value.details == {"first": head + 1}
        assert (numbers(store, head), store.erased()) == ([], head)
        store.append([RECORD])


def test_a_snapshot_costs_nothing() -> None:
    store = MemoryStore(Config())
    store.append([RECORD])
    store.save_snapshot(1, (pytest.fail("made") for _ in range(1)))
    store.drop_before(1)
    assert store.load_snapshot() is None
    assert numbers(store, 0) == [1]


def test_a_snapshot_is_kept_in_place_of_erased_records(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(Config())
    store.append([RECORD] * 3)
    for _ in range(2):
        store.begin_apart()
        store.save_snapshot(3, [b"old", b""])
        store.erase_before(2)
        assert (store.erased(), numbers(store, 2)) == (2, [3])
        known = store.load_snapshot()
        assert known is not None
        assert (known[0], list(known[1])) == (3, [b"old", b""])
    store.append([RECORD])
    store.begin_apart()
    store.save_snapshot(4, [b"new"])
    store.erase_before(4)
    assert (store.erased(), store.status().snapshot, numbers(store, 4)) == (4, 4, [])
    monkeypatch.setattr(storage_memory, "KEPT_BYTES", 2)
    store.append([RECORD])
    assert (store.erased(), store.load_snapshot()) == (5, None)


def test_a_log_that_begins_with_a_snapshot_keeps_nothing() -> None:
    store = MemoryStore(Config())
    store.begin_with(7, [b"state"])
    store.append([RECORD])
    assert (store.erased(), store.load_snapshot()) == (8, None)
