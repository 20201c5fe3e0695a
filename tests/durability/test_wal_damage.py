"""A damaged log is complete, or cut where nothing was acknowledged, or refused; never wrong."""

from __future__ import annotations

import json
import logging
import random
from dataclasses import asdict
from zlib import crc32

import pytest
from support.faulty_files import FaultyFiles
from support.log_model import Books, open_wal, snapshot_of

from kbcore.durable.records import VERSION
from kbcore.errors import ConfigError, LogCorrupted, StorageFull
from kbplugins.storage_wal import frame, manifest, segment, snapshots

FIRST = segment.name_of(1)


def log_of(count, *, clean=True, batch=1, size=20):
    """`count` synced batches; returns the files and the payloads."""
    files = FaultyFiles()
    store = open_wal(files)
    payloads = []
    for number in range(count):
        records = [b"%d.%d" % (number, n) + b"x" * size for n in range(batch)]
        store.append([(1, 1, payload) for payload in records])
        store.sync()
        payloads += records
    store.close(clean=clean)
    return files.killed(), payloads


def read_all(files):
    store = open_wal(files)
    try:
        return [record.payload for record in store.read(0)], store.status()
    finally:
        store.close()


def opened(files):
    try:
        return *read_all(files), None
    except LogCorrupted as refusal:
        return None, None, refusal


def content(files, name):
    return files.names[name].data


def segments(files):
    return sorted(name for name in files.names if segment.first_of(name) is not None)


@pytest.mark.parametrize("tear", ["cut", "zeros", "garbage"])
def test_a_torn_last_record_is_cut_at_every_length(tear, caplog) -> None:
    whole, payloads = log_of(5, clean=False)
    end = 64 + sum(frame.HEADER_BYTES + len(payload) for payload in payloads)
    start = end - frame.HEADER_BYTES - len(payloads[-1])
    for at in range(start, end):
        files = whole.copy()
        data = content(files, FIRST)
        if tear == "cut":
            del data[at:]
        elif tear == "zeros":
            data[at:] = bytes(len(data) - at)
        else:
            data[at:end] = bytes(byte ^ 0x5A for byte in data[at:end])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found, status = read_all(files)
        assert found == payloads[:-1]
        assert bool(status.tail_bytes_dropped) == (at > start or tear == "garbage")
        warned = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warned) == bool(status.tail_bytes_dropped)
        if warned:
            assert FIRST in warned[0].getMessage()
            assert f"byte {start} " in warned[0].getMessage()


def test_after_a_clean_close_no_torn_tail_is_accepted() -> None:
    whole, payloads = log_of(5)
    end = 64 + sum(frame.HEADER_BYTES + len(payload) for payload in payloads)
    for at in range(64, end):
        files = whole.copy()
        content(files, FIRST)[at:] = bytes(len(content(files, FIRST)) - at)
        with pytest.raises(LogCorrupted, match=r"closed cleanly|was synced"):
            open_wal(files)


@pytest.mark.parametrize("clean", [True, False])
def test_every_flipped_byte_is_detected(clean) -> None:
    whole, payloads = log_of(25, clean=clean, batch=2, size=60)
    names = segments(whole)
    assert len(names) >= 3
    for name in (*names, manifest.NAME):
        data = content(whole, name)
        step = 1 if name in (names[-1], manifest.NAME) else 3
        for at in range(0, len(data), step):
            files = whole.copy()
            content(files, name)[at] ^= 1 << (at % 8)
            before = bytes(content(files, name))
            found, status, refusal = opened(files)
            if refusal is not None:
                assert refusal.segment == name
                assert refusal.directory == "/data"
                assert 0 <= refusal.offset <= at
                assert content(files, name) == before, "a refused folder was changed"
                continue
            # Accepted: then it is whole, or the log was not closed cleanly and only the last batch
            # is missing, which after an unclean stop cannot be told from a write that was torn
            # before its sync.
            assert name == names[-1]
            assert not clean
            assert found in (payloads, payloads[:-1], payloads[:-2])
            assert status.tail_bytes_dropped


def test_a_refusal_has_all_details() -> None:
    files, payloads = log_of(6)
    offset = 64 + 2 * (frame.HEADER_BYTES + len(payloads[0]))
    content(files, FIRST)[offset + 40] ^= 1
    with pytest.raises(LogCorrupted, match=r"restore.*salvage") as caught:
        open_wal(files)
    assert caught.value.details == {
        "directory": "/data",
        "segment": FIRST,
        "offset": offset,
        "expectedSeq": 3,
        "found": "a record with a wrong checksum",
        "validAfter": 3,
    }
    assert files.names["LOCK"].holder is None


def test_a_gap_before_records_known_to_be_synced_is_corruption() -> None:
    for lost in range(4):
        files, payloads = log_of(6, clean=False)
        size = frame.HEADER_BYTES + len(payloads[0])
        content(files, FIRST)[64 + lost * size : 64 + (lost + 1) * size] = bytes(size)
        with pytest.raises(
            LogCorrupted, match=f"a later record says that record {5} was synced"
        ) as caught:
            open_wal(files)
        assert caught.value.offset == 64 + lost * size


def test_an_unsynced_batch_written_out_of_order_is_cut_completely() -> None:
    files = FaultyFiles()
    store = open_wal(files)
    store.append([(1, 1, b"synced")])
    store.sync()
    end = 64 + 38
    store.append([(1, 1, b"a" * 40), (1, 1, b"b" * 40), (1, 1, b"c" * 40)])
    store.close(clean=False)
    content(files, FIRST)[end + 33] ^= 1  # the first of the batch is bad, the others are sound
    found, status = read_all(files.killed())
    assert found == [b"synced"]
    assert status.tail_bytes_dropped == 3 * 72


@pytest.mark.parametrize("where", ["middle", "last"])
def test_a_missing_segment_is_detected(where) -> None:
    files, _ = log_of(25, clean=False, batch=2, size=60)
    name = segments(files)[1 if where == "middle" else -1]
    del files.names[name]
    with pytest.raises(LogCorrupted, match="MANIFEST names the segment") as caught:
        open_wal(files)
    assert caught.value.segment == name


def test_a_missing_manifest_is_detected() -> None:
    files, _ = log_of(2)
    del files.names[manifest.NAME]
    with pytest.raises(LogCorrupted) as caught:
        open_wal(files)
    assert caught.value.segment == manifest.NAME


def test_a_segment_of_another_log_is_refused() -> None:
    files, _ = log_of(2)
    data = content(files, FIRST)
    header = segment.SegmentHeader.decode(bytes(data[:64]))
    data[:64] = segment.SegmentHeader(b"another log's id", header.epoch, 1, 0, 0).encode()
    with pytest.raises(LogCorrupted, match="a segment of log"):
        open_wal(files)


def test_a_newer_format_is_refused_by_name() -> None:
    files, _ = log_of(2)
    text = (
        bytes(content(files, manifest.NAME))
        .rsplit(b"\n", 2)[0]
        .replace(b"KBMANIFEST 2", b"KBMANIFEST 3")
        + b"\n"
    )
    files.names[manifest.NAME].data[:] = text + b"%08x\n" % crc32(text)
    with pytest.raises(ConfigError, match=r"log format 3.*up to 2"):
        open_wal(files)


def test_payloads_of_a_newer_version_are_refused_also_after_a_clean_stop() -> None:
    files, _ = log_of(2)
    newer = b'"content":%d' % (VERSION + 1)
    text = bytes(content(files, manifest.NAME)).rsplit(b"\n", 2)[0] + b"\n"
    assert b'"clean":true,"content":%d' % VERSION in text
    text = text.replace(b'"content":%d' % VERSION, newer)
    files.names[manifest.NAME].data[:] = text + b"%08x\n" % crc32(text)
    before = {name: bytes(inode.data) for name, inode in files.names.items() if name != "LOCK"}
    with pytest.raises(ConfigError, match="written by a newer version"):
        open_wal(files)
    assert before == {n: bytes(inode.data) for n, inode in files.names.items() if n != "LOCK"}


def test_an_earlier_format_opens_and_is_raised() -> None:
    """An older version must not open the folder again: it reads no higher format."""
    files, payloads = log_of(2)
    old = manifest.decode(bytes(content(files, manifest.NAME)), "/data")
    fields = {key: value for key, value in asdict(old).items() if key != "content"}
    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    text = b"KBMANIFEST 1\n%s\n" % body
    files.names[manifest.NAME].data[:] = text + b"%08x\n" % crc32(text)
    assert read_all(files)[0] == payloads
    assert bytes(content(files, manifest.NAME)).startswith(b"KBMANIFEST 2\n")


def test_an_empty_newer_segment_is_removed_and_one_with_records_is_kept() -> None:
    files, payloads = log_of(25, clean=False, batch=2, size=60)
    names = segments(files)
    old = manifest.decode(bytes(content(files, manifest.NAME)), "/data")
    shorter = manifest.Manifest(old.log_id, old.epoch, old.segments[:-1], (), old.segments[-2] - 1)
    content(files, manifest.NAME)[:] = manifest.encode(shorter)
    stray = segment.SegmentHeader(bytes(16), 1, len(payloads) + 1, 0, 0).encode() + bytes(500)
    files.names[segment.name_of(len(payloads) + 1)] = type(files.names[FIRST])(bytearray(stray))
    found, _ = read_all(files)
    assert found == payloads
    assert segments(files) == names


def test_older_segments_and_half_written_files_are_removed() -> None:
    files, _ = log_of(2)
    inode = type(files.names[FIRST])
    for name in (
        "MANIFEST.tmp",
        "wal-00000000000000000009.log.tmp",
        snapshots.name_of(1),
        segment.name_of(0),
    ):
        files.names[name] = inode(bytearray(b"rest"))
    read_all(files)
    assert sorted(files.names) == ["LOCK", "MANIFEST", "reserve", FIRST]


# -- snapshots ---------------------------------------------------------------


def with_snapshots():
    files = FaultyFiles()
    books = Books()
    store = open_wal(files)
    rng = random.Random(3)
    for _ in range(2):
        for _ in range(4):
            books.write(store, rng)
        books.save(store)
    books.write(store, rng)
    store.sync()
    books.acknowledged = len(books.accepted)
    old, new = store._manifest.snapshots
    store.close()
    return files.killed(), books, old, new


def test_every_flipped_byte_of_the_newest_snapshot_falls_back() -> None:
    whole, books, old, new = with_snapshots()
    name = snapshots.name_of(new)
    for at in range(len(content(whole, name))):
        files = whole.copy()
        content(files, name)[at] ^= 0x40
        store = open_wal(files)
        status = store.status()
        assert (status.snapshot, status.snapshots_damaged, status.snapshot_lost) == (old, 1, True)
        assert list(store.load_snapshot()[1]) == snapshot_of(old)
        assert [r.payload for r in store.read(old)] == [
            payload for _, _, payload in books.accepted[old:]
        ]
        store.close()
        assert name not in files.names


@pytest.mark.parametrize("change", ["cut", "longer", "missing"])
def test_a_snapshot_of_another_length_falls_back(change) -> None:
    files, _, old, new = with_snapshots()
    name = snapshots.name_of(new)
    if change == "cut":
        del content(files, name)[-1]
    elif change == "longer":
        content(files, name).append(0)
    else:
        del files.names[name]
    store = open_wal(files)
    assert store.status().snapshot == old
    store.close()


def test_without_the_log_since_the_older_snapshot_a_bad_one_is_corruption() -> None:
    files, _, old, new = with_snapshots()
    content(files, snapshots.name_of(old))[70] ^= 1
    content(files, snapshots.name_of(new))[70] ^= 1
    known = manifest.decode(bytes(content(files, manifest.NAME)), "/data")
    if known.segments[0] == 1:  # the whole log is there: nothing is lost
        store = open_wal(files)
        assert store.status().snapshot == 0
        store.close()
    else:
        with pytest.raises(
            LogCorrupted, match=f"the log before record {known.segments[0]} was dropped"
        ):
            open_wal(files)
    assert known.segments[0] > 1


def test_a_chunk_damaged_at_run_time_is_detected() -> None:
    files, _, _, new = with_snapshots()
    store = open_wal(files)
    content(files, snapshots.name_of(new))[75] ^= 1
    _, chunks = store.load_snapshot()
    with pytest.raises(LogCorrupted):
        list(chunks)
    store.close()


def test_a_record_damaged_at_run_time_is_detected() -> None:
    files, _ = log_of(6)
    store = open_wal(files)
    content(files, FIRST)[150] ^= 1
    with pytest.raises(LogCorrupted) as caught:
        list(store.read(0))
    assert caught.value.segment == FIRST
    store.close()


# -- what only MANIFEST or the cut knows ----------------------------------------


def test_zeros_over_records_that_manifest_names_as_synced_are_corruption() -> None:
    files, payloads = log_of(5, clean=False)
    open_wal(files).close(clean=False)  # a start writes down how much is durable
    size = frame.HEADER_BYTES + len(payloads[0])
    data = content(files, FIRST)
    data[64 + 3 * size :] = bytes(len(data) - 64 - 3 * size)
    with pytest.raises(
        LogCorrupted, match="record 5 was synced when MANIFEST was written"
    ) as caught:
        open_wal(files.killed())
    assert caught.value.offset == 64 + 3 * size


def test_an_open_log_is_not_marked_clean() -> None:
    files, payloads = log_of(3)
    store = open_wal(files)
    store.append([(1, 1, b"more")])
    store.sync()
    found, _ = read_all(files.killed())  # killed: never closed
    assert found == [*payloads, b"more"]


def test_a_refused_batch_does_not_return_after_a_power_loss() -> None:
    for seed in range(40):
        files = FaultyFiles()
        store = open_wal(files)
        store.append([(1, 1, b"kept")])
        store.sync()
        files.at, files.fault = files.calls + 1, "short"
        with pytest.raises(StorageFull):
            store.append([(1, 1, b"refused"), (1, 1, b"refused too" * 30)])
        found, _ = read_all(files.power_cut(random.Random(seed)))
        assert found == [b"kept"]
