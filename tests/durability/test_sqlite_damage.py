"""A damaged SQLite file is read completely or refused; no record is changed or lost silently."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from kbcore.config import Config
from kbcore.errors import ConfigError, LogCorrupted
from kbplugins.storage_sqlite import SqliteStore

PAYLOADS = [b"record %d " % number * (1 + number % 40) for number in range(1, 121)]
CHUNKS = [b"a" * 3000, b"", b"b" * 70_000]


def opened(path: Path) -> SqliteStore:
    return SqliteStore(Config(storage_url=f"sqlite:{path}", min_free_mb=0))


def make(path: Path, *, snapshot: bool = False) -> bytes:
    store = opened(path)
    for payload in PAYLOADS:
        store.append([(1, 1, payload)])
    if snapshot:
        store.save_snapshot(60, CHUNKS)
    store.close(clean=False)
    return path.read_bytes()


def read(path: Path):
    """The snapshot and the records after it, as a start reads them; None where the start is
    refused.
    """
    try:
        store = opened(path)
    except (LogCorrupted, ConfigError):
        return None
    try:
        loaded = store.load_snapshot()
        found = (0, []) if loaded is None else (loaded[0], list(loaded[1]))
        return *found, [record.payload for record in store.read(found[0])]
    except LogCorrupted:
        return None
    finally:
        store.close()


@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "log and snapshot"])
def test_a_flipped_bit_is_detected_or_harmless(tmp_path, snapshot) -> None:
    whole = make(tmp_path / "kb.sqlite", snapshot=snapshot)
    # With a damaged snapshot the log before it is still there; both ways lead to the same state.
    right = [(0, [], PAYLOADS), (60, CHUNKS, PAYLOADS[60:])]
    chance = random.Random(7)
    refused = 0
    places = [*range(100), *chance.sample(range(100, len(whole)), 250)]
    for number, place in enumerate(places):
        path = tmp_path / f"{number}.sqlite"
        data = bytearray(whole)
        data[place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        found = read(path)
        assert found is None or found in right, place
        refused += found is None
        for left in tmp_path.glob(f"{number}.sqlite*"):
            left.unlink()
    assert refused > 50


def test_every_damaged_schema_is_refused(tmp_path) -> None:
    whole = make(tmp_path / "kb.sqlite")
    start = whole.index(b"CREATE TABLE meta")
    for place in range(start, start + 60, 3):
        (tmp_path / "kb.sqlite").write_bytes(whole[:place] + b"\xcb" + whole[place + 1 :])
        found = read(tmp_path / "kb.sqlite")
        assert found in (None, (0, [], PAYLOADS)), place


def test_every_byte_of_a_payload_is_checked(tmp_path) -> None:
    whole = make(tmp_path / "kb.sqlite")
    start = whole.index(PAYLOADS[9])
    for place in range(start, start + len(PAYLOADS[9]), 7):
        data = bytearray(whole)
        data[place] ^= 0x10
        (tmp_path / "kb.sqlite").write_bytes(data)
        store = opened(tmp_path / "kb.sqlite")
        with pytest.raises(LogCorrupted, match="expected record 10, found a wrong checksum"):
            list(store.read(0))
        store.close()


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.7, 0.95, 0.999])
def test_a_truncated_file_is_refused(tmp_path, part) -> None:
    whole = make(tmp_path / "kb.sqlite")
    (tmp_path / "kb.sqlite").write_bytes(whole[: int(len(whole) * part)])
    assert read(tmp_path / "kb.sqlite") is None


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM log WHERE seq = 1",
        "DELETE FROM log WHERE seq = 70",
        "DELETE FROM log WHERE seq = 120",
        "DELETE FROM log",
        "UPDATE log SET payload = 'text' WHERE seq = 70",
        "UPDATE log SET payload = NULL WHERE seq = 70",
        "UPDATE log SET type = 'x' WHERE seq = 70",
        "UPDATE log SET seq = 121 WHERE seq = 70",
        "INSERT INTO log VALUES (121, 1, 1, 0, x'00')",
        "UPDATE meta SET head = 119",
        "UPDATE meta SET log_id = x'00'",
        "UPDATE meta SET first = NULL",
        "DELETE FROM meta",
        "DROP TABLE log",
    ],
)
def test_rows_that_changed_are_refused(tmp_path, damage) -> None:
    make(tmp_path / "kb.sqlite")
    db = sqlite3.connect(tmp_path / "kb.sqlite")
    with db:
        db.execute(damage)
    db.close()
    assert read(tmp_path / "kb.sqlite") is None


def test_a_damaged_snapshot_is_skipped_only_with_a_complete_log(tmp_path) -> None:
    path = tmp_path / "kb.sqlite"
    make(path, snapshot=True)
    spoil = "UPDATE chunks SET data = x'00' WHERE number = 2 AND snapshot = (SELECT max(snapshot) FROM chunks)"
    for expected in ((0, [], PAYLOADS), (60, CHUNKS, PAYLOADS[60:])):
        if expected[0]:
            store = opened(path)
            store.save_snapshot(60, CHUNKS)
            store.save_snapshot(100, CHUNKS)
            store.drop_before(100)
            store.close()
        db = sqlite3.connect(path)
        with db:
            db.execute(spoil)
        db.close()
        assert read(path) == expected
    store = opened(path)
    store.save_snapshot(100, CHUNKS)
    store.drop_before(100)
    store.close()
    db = sqlite3.connect(path)
    with db:
        db.execute("UPDATE chunks SET data = x'00' WHERE number = 2")
    db.close()
    assert read(path) is None


def test_a_torn_commit_is_rolled_back(tmp_path) -> None:
    """A journal that was left behind, and the half-written file it belongs to, are what a power cut
    leaves.
    """
    path = tmp_path / "kb.sqlite"
    make(path)
    store = opened(path)
    db = store._file._db
    db.execute("PRAGMA cache_size=1")
    db.execute("PRAGMA cache_spill=1")
    db.execute("BEGIN IMMEDIATE")
    rows = [(121 + n, 1, 1, 0, bytes(5000)) for n in range(50)]
    db.executemany(
        "INSERT INTO log VALUES (?, ?, ?, ?, ?)", rows
    )  # more than the cache holds: pages are in the file
    db.execute("UPDATE log SET payload = zeroblob(length(payload))")
    torn, journal = path.read_bytes(), (tmp_path / "kb.sqlite-journal").read_bytes()
    db.execute("ROLLBACK")
    store.close()
    there = tmp_path / "there"
    there.mkdir()
    (there / "kb.sqlite").write_bytes(torn)
    (there / "kb.sqlite-journal").write_bytes(journal)
    assert PAYLOADS[100] not in torn
    assert read(there / "kb.sqlite") == (0, [], PAYLOADS)
