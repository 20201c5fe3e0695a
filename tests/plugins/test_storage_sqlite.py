"""The log in a SQLite file meets the contract and has one process."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace

import pytest
from support.encryption import encrypted

from kbcore.config import Config
from kbcore.errors import ConfigError, StorageBusy, StorageFull
from kbcore.plug.conformance import LogStoreConformance, LogStoreFaultConformance
from kbcore.plug.ports import LogStore
from kbplugins import storage_sqlite
from kbplugins.storage_sqlite import SqliteStore


class TestSqlite(LogStoreConformance):
    def make_store(self, config: Config) -> LogStore:
        return SqliteStore(config)


class TestSqliteFaults(LogStoreFaultConformance):
    syncs_unseen = "SQLite calls the system itself; tests/durability covers it"

    def make_store(self, config: Config) -> LogStore:
        return SqliteStore(config)


class TestSqliteEncrypted(LogStoreConformance):
    def make_store(self, config: Config) -> LogStore:
        return encrypted(SqliteStore, config)


class TestSqliteEncryptedFaults(LogStoreFaultConformance):
    syncs_unseen = "SQLite calls the system itself; tests/durability covers it"

    def make_store(self, config: Config) -> LogStore:
        return encrypted(SqliteStore, config)


class TestSqliteInterval(LogStoreConformance):
    def make_store(self, config: Config) -> LogStore:
        return SqliteStore(replace(config, fsync_policy="interval", fsync_interval_ms=3_600_000))

    @pytest.mark.skip(reason="interval syncs later")
    def test_sync_makes_the_head_durable(self, config: Config) -> None: ...


def opened(path, **settings) -> SqliteStore:
    return SqliteStore(
        Config(storage_url=f"sqlite:{path}", storage_backend="sqlite", min_free_mb=0, **settings)
    )


def test_the_hook_offers_sqlite() -> None:
    assert storage_sqlite.kb_storage_backends(config=Config()) == {"sqlite": SqliteStore}


def test_the_file_is_where_the_url_says_and_only_its_owner_reads_it(tmp_path) -> None:
    opened(tmp_path / "deep" / "kb.sqlite").close()
    assert stat.S_IMODE(os.stat(tmp_path / "deep" / "kb.sqlite").st_mode) == 0o600
    SqliteStore(Config(storage_dir=str(tmp_path), min_free_mb=0)).close()
    assert (tmp_path / "kbcore.sqlite").exists()


def test_another_process_is_named(tmp_path) -> None:
    path = tmp_path / "kb.sqlite"
    code = (
        "import sys; from kbcore.config import Config; from kbplugins.storage_sqlite import SqliteStore\n"
        f"store = SqliteStore(Config(storage_url='sqlite:{path}', min_free_mb=0))\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StorageBusy, match=f"kb.sqlite is in use by pid {other.pid} on "):
            opened(path)
        other.kill()
        other.wait()
        opened(path).close()


def test_another_program_that_reads_the_file_is_detected(tmp_path) -> None:
    opened(tmp_path / "kb.sqlite").close()
    other = sqlite3.connect(tmp_path / "kb.sqlite", isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageBusy, match="another program"):
            opened(tmp_path / "kb.sqlite")
    finally:
        other.close()
    opened(tmp_path / "kb.sqlite").close()


def test_a_database_of_another_program_is_refused_and_unchanged(tmp_path) -> None:
    path = tmp_path / "theirs.sqlite"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE t (x)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="not a storage file"):
        opened(path)
    assert path.read_bytes() == before


def test_a_newer_format_is_refused(tmp_path) -> None:
    path = tmp_path / "kb.sqlite"
    store = opened(path)
    meta = store._file.meta
    store.close()
    import struct
    import zlib

    crc = zlib.crc32(struct.pack("<I16sIQQ", 3, meta.log_id, meta.epoch, meta.first, meta.head))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET format = 3, crc = ?", (crc,))
    db.close()
    with pytest.raises(ConfigError, match="format 3"):
        opened(path)


def test_a_full_disk_is_refused_and_recovered_from(tmp_path) -> None:
    store = opened(tmp_path / "kb.sqlite")
    store.append([(1, 1, b"first")])
    pages = store._file._db.execute("PRAGMA page_count").fetchone()[0]
    store._file._db.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(StorageFull, match="is full") as caught:
        store.append([(1, 1, bytes(1 << 20))])
    assert (caught.value.details or {})["neededBytes"] == 1 << 20
    assert store.status().head == 1
    assert store.append([(1, 1, b"small")]) == 2
    with pytest.raises(StorageFull):
        store.save_snapshot(2, [bytes(1 << 20)])
    assert store.load_snapshot() is None
    store._file._db.execute("PRAGMA max_page_count=1000000")
    assert store.append([(1, 1, bytes(1 << 20))]) == 3
    store.save_snapshot(3, [bytes(1 << 20)])
    store.close()
    store = opened(tmp_path / "kb.sqlite")
    assert [len(record.payload) for record in store.read(0)] == [5, 5, 1 << 20]
    store.close()


def test_too_little_free_space_is_refused_early(tmp_path) -> None:
    config = Config(storage_url=f"sqlite:{tmp_path / 'kb.sqlite'}", min_free_mb=1 << 20)
    store = SqliteStore(config)
    with pytest.raises(StorageFull, match="nearly full"):
        store.append([(1, 1, b"x")])
    assert not store.status().writable
    store.close()


@pytest.mark.parametrize(
    ("policy", "journal", "level"),
    [("always", "persist", 2), ("interval", "wal", 1), ("never", "wal", 1)],
)
def test_the_policy_decides_the_journal(tmp_path, policy, journal, level) -> None:
    for _ in range(2):
        store = opened(tmp_path / "kb.sqlite", fsync_policy=policy)
        store.append([(1, 1, b"x")])
        assert store._file._db.execute("PRAGMA journal_mode").fetchone() == (journal,)
        assert store._file._db.execute("PRAGMA synchronous").fetchone() == (level,)
        store.close()


def test_one_file_can_be_opened_with_each_policy_in_turn(tmp_path) -> None:
    for number, policy in enumerate(("always", "interval", "never", "always"), 1):
        store = opened(tmp_path / "kb.sqlite", fsync_policy=policy, fsync_interval_ms=5)
        assert store.append([(1, 1, b"%d" % number)]) == number
        store.sync()
        store.close(clean=number % 2 == 0)
    store = opened(tmp_path / "kb.sqlite")
    assert [record.payload for record in store.read(0)] == [b"1", b"2", b"3", b"4"]
    store.close()
