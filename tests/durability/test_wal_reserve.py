"""A full disk: writes that free space use the reserve, and other writes resume later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.faulty_files import FaultyFiles
from support.log_model import CONFIG, open_wal

from kbcore.clock import ManualClock
from kbcore.errors import StorageFailed, StorageFull
from kbplugins.storage_wal import WalStore
from kbplugins.storage_wal.space import PROBE, RESERVE, RESERVE_BYTES

RECORD = (1, 1, b"r" * 100)


def opened(files, clock=None, **more):
    return WalStore(
        CONFIG,
        fs=files,
        clock=clock or ManualClock(),
        random_bytes=bytes,
        segment_bytes=1500,
        reserve_bytes=5000,
        **more,
    )


def taken(append):
    """How many records are taken before there is no more room."""
    for count in range(1000):
        try:
            append([RECORD])
        except StorageFull:
            return count
    raise AssertionError


def filled():
    """A store whose disk takes no more, its files and its clock."""
    files, clock = FaultyFiles(), ManualClock()
    files.room = 30_000
    store = opened(files, clock)
    assert taken(store.append) > 10
    store.sync()
    assert not store.status().writable
    return store, files, clock


def test_the_reserve_is_created_once_at_the_first_start() -> None:
    files = FaultyFiles()
    opened(files).close()
    assert len(files.names[RESERVE].data) == 5000
    before = files.calls
    opened(files).close()
    assert "allocate reserve" not in files.trace[before:]


def test_its_size_follows_the_setting() -> None:
    for mib, size in ((64, RESERVE_BYTES), (3, 3 << 20)):
        files = FaultyFiles()
        WalStore(
            replace(CONFIG, min_free_mb=mib), fs=files, clock=ManualClock(), segment_bytes=1500
        ).close()
        assert len(files.names[RESERVE].data) == size
    files = FaultyFiles()
    WalStore(
        replace(CONFIG, min_free_mb=0), fs=files, clock=ManualClock(), segment_bytes=1500
    ).close()
    assert RESERVE not in files.names


def test_a_disk_without_space_for_the_reserve_has_none() -> None:
    files = FaultyFiles()
    files.room = 4000
    store = opened(files)
    store.append([RECORD])
    store.sync()
    assert RESERVE not in files.names
    store.close()


def test_writes_that_free_space_are_accepted_on_a_full_disk() -> None:
    store, files, _ = filled()
    head = store.status().head
    assert RESERVE in files.names
    assert store.append_for_room([RECORD]) == head + 1
    store.sync()
    assert RESERVE not in files.names
    with pytest.raises(StorageFull):
        store.append([RECORD])
    assert (
        store.append_for_room([RECORD]) == head + 2
    )  # what the reserve left is there for more of them
    store.sync()
    store.close()
    store = open_wal(files.killed())
    assert store.status().head == head + 2
    store.close()


def test_no_write_is_accepted_when_the_reserve_is_used_up() -> None:
    store, _, _ = filled()
    assert 10 < taken(store.append_for_room) < 60
    assert len(list(store.read(0))) == store.status().head


def test_a_snapshot_on_a_full_disk_uses_the_reserve_and_frees_the_log() -> None:
    store, files, _ = filled()
    head = store.status().head
    store.save_snapshot(head - 1, [b"s" * 1000])
    store.append_for_room([RECORD])
    store.save_snapshot(head, [b"s" * 1000])
    assert RESERVE not in files.names
    store.drop_before(head)
    assert store.look_for_room()
    assert len(files.names[RESERVE].data) == 5000
    store.append([RECORD])
    store.close()


def test_writes_resume_only_after_a_successful_test_write() -> None:
    store, files, clock = filled()
    files.room += 10_000
    files.fault, files.at, files.sticky = (
        "ENOSPC",
        files.calls + 3,
        True,
    )  # the disk says there is room, and takes nothing
    assert not store.look_for_room()
    files.at = 0
    assert not store.look_for_room()  # tried once a second
    clock.advance(1000)
    assert store.look_for_room()
    assert PROBE not in files.names
    store.append([RECORD])
    store.close()


def test_a_failed_sync_of_the_test_write_stops_the_store() -> None:
    store, files, _ = filled()
    files.room += 10_000
    files.fault, files.sticky, files.at = "EIO", True, files.calls + 4
    with pytest.raises(StorageFailed):
        store.look_for_room()
    assert files.hit == "fsync"
    with pytest.raises(StorageFailed):
        store.append_for_room([RECORD])
