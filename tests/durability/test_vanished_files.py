"""Files that another program removes while the log is open, or between two starts."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.replicas import until
from support.servers import Server

from kbcore.config import Config
from kbcore.errors import LogCorrupted, StorageBusy, StorageFailed
from kbplugins.storage_sqlite import SqliteStore
from kbplugins.storage_wal import WalStore, manifest, segment, snapshots

RECORD = (1, 1, b"x" * 400)
POLICIES = ["always", "interval", "never"]


def opened(folder: Path, policy: str = "always") -> WalStore:
    config = Config(storage_dir=str(folder), fsync_policy=policy, min_free_mb=0)
    return WalStore(config, segment_bytes=4096)


def fill(store: WalStore, count: int) -> None:
    for _ in range(count):
        store.append([RECORD])
        store.sync()


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("wal-*.log"))


def tell(server: Server, name: str) -> int:
    return server.post("/tell", {"predicate": "p", "args": [name]})[0]


# -- a second process ----------------------------------------------------------


def test_a_second_process_is_refused_although_the_lock_file_was_removed(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        assert tell(server, "before") == 200
        (tmp_path / "LOCK").unlink()
        command = [
            sys.executable,
            "-m",
            "kbserver.cli",
            "serve",
            "--port",
            "0",
            "--storage-dir",
            str(tmp_path),
        ]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert second.returncode == 75, second.stderr
        assert "is in use by another process" in second.stderr
        assert tell(server, "after") == 200
        assert server.stop() == 0
    with Server(tmp_path) as server:
        assert server.post("/query", {"predicate": "p", "args": ["?x"]})[1].count(b'"p"') == 2


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("roll", [0, 20])
def test_the_log_itself_is_locked(tmp_path: Path, clean: bool, roll: int) -> None:
    store = opened(tmp_path)
    fill(store, 3)
    store.close(clean=clean)
    store = opened(tmp_path)
    fill(store, roll)
    (tmp_path / "LOCK").unlink()
    with pytest.raises(StorageBusy, match="another process"):
        opened(tmp_path)
    fill(store, 1)
    store.close()
    store = opened(tmp_path)
    assert store.status().head == 4 + roll
    store.close()


# -- while the log is open -------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_removed_segment_is_noticed_before_an_acknowledgement(
    tmp_path: Path, policy: str, replaced: bool
) -> None:
    store = opened(tmp_path, policy)
    fill(store, 3)
    [last] = segments(tmp_path)
    content = last.read_bytes()
    last.unlink()
    if replaced:
        last.write_bytes(content)
    store.append([RECORD])
    with pytest.raises(StorageFailed, match="was removed or replaced"):
        store.sync()
    with pytest.raises(StorageFailed, match="was removed or replaced"):
        store.append([RECORD])
    store.close()


def test_a_removed_segment_is_noticed_before_the_next_one_begins(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 3)
    segments(tmp_path)[0].unlink()
    with pytest.raises(StorageFailed, match="was removed or replaced"):
        store.append([RECORD] * 20)
    assert segments(tmp_path) == []
    store.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_removed_complete_segment_is_noticed(tmp_path: Path, policy: str) -> None:
    store = opened(tmp_path, policy)
    fill(store, 30)
    first = segments(tmp_path)[0]
    first.unlink()
    store.append([RECORD])
    with pytest.raises(StorageFailed, match=first.name):
        store.sync()
    store.close()


def test_a_complete_segment_that_a_snapshot_covers_is_no_loss(tmp_path: Path, caplog: Any) -> None:
    store = opened(tmp_path)
    fill(store, 30)
    store.save_snapshot(30, [b"state"])
    first, second = segments(tmp_path)[:2]
    second.unlink()
    fill(store, 1)
    assert second.name in caplog.text
    later = segment.first_of(segments(tmp_path)[1].name)
    assert [record.seq for record in store.read(later - 1)] == list(range(later, 32))
    store.close()
    store = opened(tmp_path)
    assert store.status().head == 31
    assert not first.exists(), "what comes before a missing segment cannot be read any more"
    store.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_removed_snapshot_is_noticed(tmp_path: Path, caplog: Any, lost: int) -> None:
    store = opened(tmp_path)
    for _ in range(2):
        fill(store, 20)
        store.save_snapshot(store.status().head, [b"state"])
    assert store.snapshot_numbers() == (20, 40)
    name = snapshots.name_of((20, 40)[lost])
    (tmp_path / name).unlink()
    fill(store, 1)
    assert name in caplog.text
    status = store.status()
    assert (status.snapshots_damaged, status.snapshot_lost) == (1, lost == 1)
    assert store.snapshot_numbers() == ((40, 20)[lost],)
    fill(store, 1)
    store.save_snapshot(42, [b"state"])
    assert not store.status().snapshot_lost
    store.close()
    store = opened(tmp_path)
    assert (store.status().head, store.status().snapshots_damaged) == (42, 0)
    store.close()


def test_without_any_snapshot_of_dropped_records_nothing_more_is_acknowledged(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    for _ in range(2):
        fill(store, 20)
        store.save_snapshot(store.status().head, [b"state"])
    store.drop_before(40)
    for path in tmp_path.glob("snap-*.kbs"):
        path.unlink()
    store.append([RECORD])
    with pytest.raises(StorageFailed, match=snapshots.name_of(40)):
        store.sync()
    store.close()


def test_a_removed_manifest_is_written_again(tmp_path: Path, caplog: Any) -> None:
    store = opened(tmp_path)
    fill(store, 30)
    (tmp_path / manifest.NAME).unlink()
    fill(store, 1)
    assert manifest.NAME in caplog.text
    store.close(clean=False)
    store = opened(tmp_path)
    assert store.status().head == 31
    store.close()


def test_files_that_the_store_drops_itself_are_not_missed(tmp_path: Path, caplog: Any) -> None:
    store = opened(tmp_path)
    for _ in range(3):
        fill(store, 20)
        head = store.status().head
        store.save_snapshot(head, [b"state"])
        store.drop_before(head)
        fill(store, 1)
    assert caplog.text == ""
    store.close()


def test_a_server_whose_log_was_removed_acknowledges_nothing_more(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        assert tell(server, "before") == 200
        segments(tmp_path)[0].unlink()
        with contextlib.suppress(OSError, http.client.HTTPException):  # it may have ended
            assert tell(server, "after") >= 500
        assert until(lambda: server.process.poll() is not None)
        assert server.process.returncode not in (0, None)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_removed_sqlite_file_is_noticed_before_an_acknowledgement(
    tmp_path: Path, policy: str, replaced: bool
) -> None:
    path = tmp_path / "kb.sqlite"
    store = SqliteStore(Config(storage_url=f"sqlite:{path}", fsync_policy=policy, min_free_mb=0))
    store.append([RECORD])
    store.sync()
    path.unlink()
    if replaced:
        path.write_bytes(b"")
    store.append([RECORD])
    with pytest.raises(StorageFailed, match="was removed or replaced"):
        store.sync()
    store.close()


# -- between two starts ----------------------------------------------------------


def stopped(folder: Path, snapshot: int, *, clean: bool = True) -> list[Path]:
    """Leave a log of 30 records with a snapshot; return its segments."""
    store = opened(folder)
    fill(store, snapshot)
    store.save_snapshot(snapshot, [b"state"])
    fill(store, 30 - snapshot)
    store.close(clean=clean)
    return segments(folder)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [0, 1])
def test_a_snapshot_stands_for_a_missing_segment(
    tmp_path: Path, caplog: Any, clean: bool, number: int
) -> None:
    files = stopped(tmp_path, 29, clean=clean)
    files[number].unlink()
    store = opened(tmp_path)
    assert files[number].name in caplog.text
    assert "the snapshot at record 29 has their records" in caplog.text
    assert (store.status().head, store.status().snapshot) == (30, 29)
    assert [record.seq for record in store.read(29)] == [30]
    fill(store, 1)
    store.close()
    caplog.clear()
    store = opened(tmp_path)
    assert store.status().head == 31
    assert caplog.text == ""
    store.close()


def test_a_snapshot_at_the_end_of_a_clean_log_stands_for_all_segments(
    tmp_path: Path, caplog: Any
) -> None:
    for path in stopped(tmp_path, 30):
        path.unlink()
    store = opened(tmp_path)
    assert "the snapshot at record 30 has their records" in caplog.text
    assert (store.status().head, store.status().durable) == (30, 30)
    fill(store, 20)
    assert [record.seq for record in store.read(30)] == list(range(31, 51))
    store.close(clean=False)
    store = opened(tmp_path)
    assert store.status().head == 50
    store.close()


@pytest.mark.parametrize(
    ("snapshot", "clean", "number"), [(5, True, 2), (29, True, -1), (30, False, -1)]
)
def test_a_missing_segment_whose_records_are_not_known_to_be_covered_is_refused(
    tmp_path: Path, snapshot: int, clean: bool, number: int
) -> None:
    files = stopped(tmp_path, snapshot, clean=clean)
    files[number].unlink()
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(
        LogCorrupted, match="no such file; 0 valid records found after it; MANIFEST"
    ):
        opened(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_damaged_snapshot_does_not_stand_for_a_missing_segment(tmp_path: Path) -> None:
    files = stopped(tmp_path, 29)
    files[0].unlink()
    damaged = tmp_path / snapshots.name_of(29)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(LogCorrupted):
        opened(tmp_path)
    assert files[1].exists()
