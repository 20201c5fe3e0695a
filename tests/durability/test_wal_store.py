"""Rotation, syncing, a full disk, snapshots and reading of the durable log, call by call."""

from __future__ import annotations

import errno
import threading

import pytest
from support.faulty_files import FaultyFiles
from support.log_model import CONFIG, SEGMENT, open_wal

from kbcore.clock import ManualClock
from kbcore.errors import (
    LogCorrupted,
    LogTruncated,
    SnapshotFailed,
    StorageBusy,
    StorageFailed,
    StorageFull,
    TooLarge,
)
from kbplugins.storage_wal import WalStore, manifest, segment, snapshots
from kbplugins.storage_wal.files import Disk


def fill(store, count, size=100):
    for _ in range(count):
        store.append([(1, 1, b"r" * size)])
    store.sync()


def segments(files):
    return sorted(name for name in files.names if segment.first_of(name) is not None)


NAMES_CHECKED = [f"stat {segment.name_of(1)}", "stat"]
"""The last segment and the folder, before records are acknowledged."""


def calls(files, since):
    skipped = "fstat", "statvfs", "lock"
    return [call for call in files.trace[since:] if not call.startswith(skipped)]


# -- one write a batch, one sync a commit -------------------------------------


def test_a_batch_is_one_write_and_a_commit_one_sync() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    since = len(files.trace)
    store.append([(1, 1, b"x")] * 20)
    store.sync()
    assert calls(files, since) == ["write", "fdatasync", *NAMES_CHECKED, "listdir"]
    since = len(files.trace)
    store.sync()  # nothing new: nothing to do
    assert calls(files, since) == NAMES_CHECKED
    store.close()


def test_the_order_of_a_rotation() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    fill(store, 10)
    since = len(files.trace)
    store.append([(1, 1, b"r" * 200)])
    assert calls(files, since) == [
        "fdatasync",
        f"stat {segment.name_of(1)}",
        "open-new wal-00000000000000000011.log.tmp",
        "allocate",
        "write",
        "fsync",
        "rename wal-00000000000000000011.log.tmp",
        "open",
        "fsync",
        "close",
        "open-new MANIFEST.tmp",
        "write",
        "fsync",
        "close",
        "rename MANIFEST.tmp",
        "open",
        "fsync",
        "close",
        "close",
        "write",
    ]
    assert store.status().durable == 10
    store.close()


def test_the_order_of_a_snapshot() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    fill(store, 2)
    since = len(files.trace)
    store.save_snapshot(2, [b"state"])
    steps = [call for call in calls(files, since) if call not in ("open", "close")]
    name = snapshots.name_of(2)
    assert steps[:4] == [f"open-new {name}.tmp", "write", "write", "fsync"]
    middle = steps.index(f"rename {name}.tmp")
    assert set(steps[4:middle]) == {f"open {name}.tmp", "read"}
    assert steps[middle + 1 :] == [
        "fsync",
        "open-new MANIFEST.tmp",
        "write",
        "fsync",
        "rename MANIFEST.tmp",
        "fsync",
    ]
    store.close()


def test_a_batch_larger_than_a_segment_gets_one_of_its_size() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    fill(store, 1, size=5 * SEGMENT)  # replaces the first, still empty
    fill(store, 1, size=5 * SEGMENT)
    fill(store, 1)
    assert segments(files) == [segment.name_of(1), segment.name_of(2), segment.name_of(3)]
    assert [len(record.payload) for record in store.read(0)] == [5 * SEGMENT, 5 * SEGMENT, 100]
    store.close()
    store = open_wal(files)
    assert store.status().head == 3
    store.close()


def test_reading_starts_near_the_end_and_goes_on_while_records_are_added() -> None:
    files = FaultyFiles()
    store = WalStore(CONFIG, fs=files, clock=ManualClock(), segment_bytes=1 << 20)
    for _ in range(100):
        store.append([(1, 1, bytes(4000) + b"x")])
    reading = store.read(0)
    assert next(reading).seq == 1
    store.append([(1, 1, b"later")])
    assert [record.seq for record in reading] == list(range(2, 101))  # up to the head when it began
    since = len(files.trace)
    assert [record.payload for record in store.read(100)] == [b"later"]
    assert files.trace[since:].count("read") == 1
    store.close()
    assert files.open_files() == 0


def test_segments_that_vanish_under_a_reader_are_reported_as_dropped() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    fill(store, 40)
    reading = store.read(0)
    next(reading)
    store.save_snapshot(38, [])
    store.save_snapshot(40, [])
    store.drop_before(40)
    with pytest.raises(LogTruncated, match=r"no longer kept|were dropped"):
        list(reading)
    store.close()


# -- policies -----------------------------------------------------------------


def test_never_leaves_syncing_to_the_kernel() -> None:
    files = FaultyFiles()
    store = open_wal(files, fsync_policy="never")
    since = len(files.trace)
    fill(store, 3)
    assert "fdatasync" not in files.trace[since:]
    assert store.status().durable == 0
    store.close()
    store = open_wal(files)
    assert store.status().durable == 3
    store.close()


def test_interval_syncs_only_after_a_write() -> None:
    synced = threading.Semaphore(0)

    class Watched(FaultyFiles):
        def fdatasync(self, fd):
            super().fdatasync(fd)
            synced.release()

    files = Watched()
    store = open_wal(files, fsync_policy="interval", fsync_interval_ms=1)
    for _ in range(3):
        fill(store, 2)
        assert synced.acquire(timeout=20)
    store.close()
    assert files.trace.count("fdatasync") <= 7
    assert not [thread for thread in threading.enumerate() if thread.name == "kb-wal-flush"]


def test_a_failed_interval_sync_stops_the_store() -> None:
    failed = threading.Event()

    class Failing(FaultyFiles):
        def fdatasync(self, fd):
            failed.set()
            raise OSError(errno.EIO, "gone")

    store = open_wal(Failing(), fsync_policy="interval", fsync_interval_ms=1)
    fill(store, 1)
    assert failed.wait(timeout=20)
    store._flusher._thread.join(timeout=20)
    assert not store.status().writable
    with pytest.raises(StorageFailed):
        store.append([(1, 1, b"x")])
    store.close()


# -- failures -----------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_any_sync_error_stops_the_store(code) -> None:
    files = FaultyFiles()
    store = open_wal(files)
    store.append([(1, 1, b"x")])
    files.at, files.fault = files.calls + 1, errno.errorcode[code]
    with pytest.raises(StorageFailed, match="what is on the disk is unknown") as caught:
        store.sync()
    assert caught.value.details == {"call": "fdatasync", "file": segment.name_of(1), "errno": code}
    assert store.status().durable == 0
    assert not store.status().writable
    since = files.calls
    for use in (
        lambda: store.append([(1, 1, b"x")]),
        store.sync,
        lambda: store.read(0),
        store.load_snapshot,
    ):
        with pytest.raises(StorageFailed):
            use()
    store.close()
    assert files.trace[since:] == [
        "close",
        "close",
    ]  # no sync is tried again, nothing is marked clean


def test_a_full_disk_refuses_writes_and_accepts_them_later_without_a_restart() -> None:
    clock = ManualClock()
    files = FaultyFiles()
    store = WalStore(CONFIG, fs=files, clock=clock, segment_bytes=SEGMENT)
    fill(store, 3)
    files.room = 4000
    with pytest.raises(StorageFull) as caught:
        fill(store, 100)
    written = store.status().head
    assert written > 3
    assert caught.value.details["neededBytes"] == 132
    assert caught.value.details["freeBytes"] >= 0
    store.sync()
    status = store.status()
    assert (status.head, status.durable) == (written, written)
    assert len(list(store.read(0))) == written
    files.room += 10
    assert not store.look_for_room()
    with pytest.raises(StorageFull):
        store.append([(1, 1, b"r" * 100)])
    assert not store.status().writable
    files.room += 100_000
    assert store.look_for_room()
    assert store.status().writable
    assert store.append([(1, 1, b"r" * 100)]) == written + 1
    store.close()
    store = open_wal(files.killed())
    assert store.status().head == written + 1
    store.close()


def test_writes_stop_early_and_resume_with_a_margin() -> None:
    clock = ManualClock()
    files = FaultyFiles()
    files.room = 100 << 20
    store = WalStore(
        CONFIG.updated({"MIN_FREE_MB": "64"}),
        fs=files,
        clock=clock,
        random_bytes=bytes,
        segment_bytes=SEGMENT,
        reserve_bytes=0,
    )
    fill(store, 1)
    files.room = 63 << 20
    fill(store, 1)  # the room is looked at once a second
    clock.advance(1000)
    with pytest.raises(StorageFull, match="nearly full"):
        fill(store, 1)
    files.room = 65 << 20
    assert not store.look_for_room()
    files.room = 73 << 20
    assert store.look_for_room()
    fill(store, 1)
    assert store.status().head == 3
    store.close()


def test_a_short_write_leaves_no_part_of_the_batch() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    fill(store, 2)
    end = 64 + 2 * 132
    files.at, files.fault = files.calls + 1, "short"
    with pytest.raises(StorageFull, match="66 of 132 bytes were written"):
        store.append([(1, 1, b"r" * 100)])
    assert len(files.names[segment.name_of(1)].data) == end
    assert store.append([(9, 1, b"next")]) == 3
    assert [record.type for record in store.read(0)] == [1, 1, 9]
    store.close()


def test_a_disk_without_preallocation_is_fine() -> None:
    class Plain(FaultyFiles):
        def allocate(self, fd, size):
            raise OSError(errno.EOPNOTSUPP, "not here")

    files = Plain()
    store = open_wal(files)
    fill(store, 30)
    store.close()
    assert len(segments(files)) > 1
    store = open_wal(files)
    assert len(list(store.read(0))) == 30
    store.close()


def test_a_small_disk_gets_a_smaller_segment() -> None:
    files = FaultyFiles()
    files.room = 2000
    store = WalStore(CONFIG, fs=files, clock=ManualClock(), segment_bytes=16 << 20)
    fill(store, 1)
    assert len(files.names[segment.name_of(1)].data) < 2000
    store.close()


def test_a_snapshot_that_fails_harms_nothing() -> None:
    for fault, error in (("EIO", SnapshotFailed), ("ENOSPC", StorageFull)):
        files = FaultyFiles()
        store = open_wal(files)
        fill(store, 3)
        files.at, files.fault = files.calls + 2, fault
        with pytest.raises(error):
            store.save_snapshot(3, [b"state"])
        assert not [name for name in files.names if name.startswith("snap-")]
        fill(store, 1)
        store.save_snapshot(3, [b"state"])
        assert store.status().snapshot == 3
        store.close()


def test_a_snapshot_that_fails_verification_is_not_stored() -> None:
    class Lying(FaultyFiles):
        lies = False

        def pwrite(self, fd, data, offset):
            if self.lies and len(data) > 64:
                data = data[:70] + bytes([data[70] ^ 1]) + data[71:]
            return super().pwrite(fd, data, offset)

    files = Lying()
    store = open_wal(files)
    fill(store, 3)
    files.lies = True
    with pytest.raises(SnapshotFailed, match="read back"):
        store.save_snapshot(3, [b"state"])
    files.lies = False
    assert store.load_snapshot() is None
    store.close()


def test_a_snapshot_chunk_has_a_limit() -> None:
    store = open_wal(FaultyFiles())
    with pytest.raises(TooLarge):
        store.save_snapshot(0, [bytes((64 << 20) + 1)])
    store.close()


def test_two_snapshots_are_kept() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    for seq in range(1, 6):
        fill(store, 1)
        store.save_snapshot(seq, [])
    assert [name for name in sorted(files.names) if name.startswith("snap-")] == [
        snapshots.name_of(4),
        snapshots.name_of(5),
    ]
    store.close()


def test_a_manifest_that_cannot_be_marked_clean_does_not_fail_the_close() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    fill(store, 1)
    files.at, files.fault, files.sticky = files.calls + 1, "ENOSPC", True
    store.close()
    assert files.open_files() == 0
    assert not manifest.load(Disk(files.copy(), "/data")).clean


def test_a_failed_start_releases_the_folder() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    with pytest.raises(StorageBusy, match="in use by pid"):
        open_wal(files)
    fill(store, 1)
    store.close()
    files.names[manifest.NAME].data[20] ^= 1
    for _ in range(2):
        with pytest.raises(LogCorrupted):
            open_wal(files)
    assert files.open_files() == 0
