"""One SQLite file with the tables of a log: creation, opening, writing, and translation of errors.

FSYNC_POLICY=always uses a rollback journal (PERSIST) with synchronous=FULL: every acknowledged
record is in the main file, protected by its checksum. SQLite's write-ahead log needs one sync per
commit instead of three, but SQLite takes a damaged frame for the end of that log, so later commits
would be lost without an error. `interval` and `never` use the write-ahead log with
synchronous=NORMAL: a power loss can remove its last commits but cannot corrupt the file.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from typing import Any
from urllib.parse import quote
from zlib import crc32

from kbcore.errors import (
    ConfigError,
    KBError,
    LogCorrupted,
    StorageBusy,
    StorageFailed,
    StorageFull,
)
from kbplanner.syntax.diagnostics import counted
from kbplugins.storage_wal.files import Disk
from kbplugins.table_log import FORMAT, ConnectionLock, LogMeta, SnapshotRow, Tables, corrupted

APPLICATION = 0x6B62_6C67
"""SQLite's application id in the file header, which identifies a file of kbcore."""

ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors of the library. It raises UnicodeDecodeError if its own message would quote damaged
text.
"""

TABLES = """
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER, log_id BLOB, epoch INTEGER, first INTEGER, head INTEGER,
    crc INTEGER
);
CREATE TABLE log (seq INTEGER PRIMARY KEY, type INTEGER, version INTEGER, crc INTEGER, payload BLOB);
CREATE TABLE snapshots (
    id INTEGER PRIMARY KEY, seq INTEGER, chunks INTEGER, size INTEGER, crc INTEGER, "check" INTEGER, whole INTEGER
);
CREATE TABLE chunks (snapshot INTEGER, number INTEGER, crc INTEGER, data BLOB, PRIMARY KEY (snapshot, number));
"""

_META = struct.Struct("<I16sIQQ")


class SqliteFile(Tables):
    """The open file: one connection and the lock that guards it."""

    def __init__(self, disk: Disk, name: str, policy: str, log_id: bytes) -> None:
        self.location = disk.path(name)
        self.lock = ConnectionLock()
        if name not in disk.names():
            self._make(disk, name, log_id)
        try:
            self._db = _connect(self.location)
        except ERRORS as error:
            raise self.refusal(error) from error
        try:
            self._prepare(
                "PERSIST" if policy == "always" else "WAL",
                "FULL" if policy == "always" else "NORMAL",
            )
            self.meta = self._read_meta()
            self._files = {path: os.stat(path) for path in self._paths(policy)}
        except ERRORS as error:
            self._db.close()
            raise self.refusal(error) from error
        except BaseException:
            self._db.close()
            raise

    # -- reading -------------------------------------------------------------

    def query(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.lock:
            try:
                return self._db.execute(text, values).fetchall()
            except (*ERRORS, OverflowError) as error:
                raise self.refusal(error) from error

    def first(self) -> int:
        """Return the number of the lowest stored record."""
        return self.meta.first

    def snapshots(self) -> Sequence[SnapshotRow]:
        """Return the finished snapshots, oldest first."""
        columns = 'SELECT id, seq, chunks, size, crc, "check" '
        rows = self.query(columns + "FROM snapshots WHERE whole = 1 ORDER BY id")
        snapshots = [SnapshotRow(*row) for row in rows]
        if not all(isinstance(row.seq, int) for row in snapshots):
            raise corrupted(self.location, "snapshots", self.meta.head, "values of another type")
        return snapshots

    # -- writing -------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction. Raises StorageFull (nothing is changed),
        StorageFailed.
        """
        with self.lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except ERRORS as error:
                raise self._write_failure(error) from error
            except BaseException:
                self._roll_back()
                raise

    def save_meta(self, **changes: Any) -> LogMeta:
        """Change the row of `meta` inside a transaction; assign the result to `meta` after the
        commit.
        """
        changed = replace(self.meta, **changes)
        _write_meta(self._db, changed)
        return changed

    def delete_in_parts(self, query: str, *values: Any) -> None:
        """Repeat a DELETE with a row limit until no row is left, so that appends wait only
        briefly.
        """
        while True:
            with self.transaction() as db:
                if db.execute(query, values).rowcount <= 0:
                    return

    def checkpoint(self) -> None:
        """Move the write-ahead log to the main file and sync; no effect with a rollback journal."""
        with self.lock:
            try:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except ERRORS as error:
                raise self._unknown_state(error) from error

    def rewrite(self) -> None:
        """Rewrite the file without unused pages, and empty SQLite's journals; appends wait."""
        with self.lock:
            try:
                self._db.execute("VACUUM")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                journal = self.location + "-journal"
                if os.path.exists(journal):  # kept with its old content by journal_mode=PERSIST
                    self._db.execute("PRAGMA journal_size_limit=0")
                    with self.transaction() as db:
                        db.execute("UPDATE meta SET one = 1")
                    self._db.execute("PRAGMA journal_size_limit=-1")
            except ERRORS as error:
                raise self._write_failure(error) from error

    def load_erased(self) -> int:
        """Return the number that `save_erased` stored, 0 if it never did."""
        if not self.query("SELECT 1 FROM sqlite_master WHERE name = 'erased'"):
            return 0
        return int(self.query("SELECT seq FROM erased")[0][0])

    def save_erased(self, seq: int) -> None:
        """Store up to which record nothing is in the file any more."""
        with self.transaction() as db:
            db.execute("CREATE TABLE IF NOT EXISTS erased (one INTEGER PRIMARY KEY, seq INTEGER)")
            db.execute("INSERT OR REPLACE INTO erased VALUES (1, ?)", (seq,))

    def check_files(self) -> None:
        """Raise StorageFailed if the file, or SQLite's write-ahead log, was removed or replaced.

        Commits succeed then, and are lost.
        """
        for path, known in self._files.items():
            try:
                is_same = os.path.samestat(known, os.stat(path))
            except FileNotFoundError:
                is_same = False
            except OSError as error:
                raise self._unknown_state(error) from error
            if not is_same:
                raise StorageFailed(
                    f"{path} was removed or replaced by another program; nothing more is acknowledged",
                    {"file": path},
                )

    def close(self) -> None:
        """Close the file; an error is ignored because every acknowledged write was committed
        before.
        """
        with self.lock, suppress(sqlite3.Error):
            self._db.close()

    # -- inside --------------------------------------------------------------

    def _paths(self, policy: str) -> list[str]:
        """Return the files that have the acknowledged records."""
        return [self.location] if policy == "always" else [self.location, f"{self.location}-wal"]

    def _make(self, disk: Disk, name: str, log_id: bytes) -> None:
        """Create a file under a temporary name, so that its own name never holds an incomplete
        file.
        """
        aside = name + ".new"
        disk.discard(aside)
        os.close(os.open(disk.path(aside), os.O_RDWR | os.O_CREAT, 0o600))
        try:
            db = _connect(disk.path(aside))
            try:
                db.execute("PRAGMA journal_mode=MEMORY")
                db.execute("PRAGMA synchronous=FULL")
                db.execute(f"PRAGMA application_id={APPLICATION}")
                db.executescript(f"BEGIN; {TABLES}")
                _write_meta(db, LogMeta(log_id, epoch=1, first=1, head=0))
                db.execute("COMMIT")
            finally:
                db.close()
        except ERRORS as error:
            disk.discard(aside)
            raise self.refusal(error) from error
        disk.rename(aside, name)
        disk.sync_folder()

    def _prepare(self, journal: str, synchronous: str) -> None:
        if os.path.getsize(self.location) == 0:
            raise corrupted(self.location, "meta", 1, "an empty file")
        self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
        if self._db.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise ConfigError(f"{self.location} is not a storage file of kbcore")
        self._db.execute(f"PRAGMA journal_mode={journal}").fetchone()
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.execute("PRAGMA cell_size_check=ON")
        self._db.execute("PRAGMA trusted_schema=OFF")
        # Another program that has the file open, or a read-only file, is an error now and not at
        # the first write.
        self._db.execute("BEGIN EXCLUSIVE")
        self._db.execute("UPDATE meta SET one = 1")
        self._db.execute("COMMIT")

    def _read_meta(self) -> LogMeta:
        rows = self._db.execute(
            "SELECT format, log_id, epoch, first, head, crc FROM meta"
        ).fetchall()
        if len(rows) != 1:
            raise corrupted(self.location, "meta", 1, counted(len(rows), "row"))
        number, *fields, crc = rows[0]
        try:
            is_intact = crc32(_META.pack(number, *fields)) == crc and len(fields[0]) == 16
        except (struct.error, TypeError):
            is_intact = False
        if not is_intact:
            raise corrupted(self.location, "meta", 1, "a wrong checksum")
        if number > FORMAT:
            raise ConfigError(
                f"{self.location} has format {number}; this version reads format {FORMAT}"
            )
        return LogMeta(*fields)

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except ERRORS as error:
            raise self._unknown_state(error) from error

    def _write_failure(self, error: Exception) -> KBError:
        self._roll_back()
        if "is full" in str(error):
            return StorageFull(f"no room on the disk of {self.location}: {error}")
        return self._unknown_state(error)

    def _unknown_state(self, error: Exception) -> StorageFailed:
        return StorageFailed(
            f"{self.location}: {error}; what is on the disk is unknown", {"file": self.location}
        )

    def refusal(self, error: BaseException) -> KBError:
        """Translate an error of opening or reading."""
        text = str(error)
        if "locked" in text:
            return StorageBusy(
                f"{self.location} is in use by another program", {"file": self.location}
            )
        if "is full" in text:
            return StorageFull(f"no room on the disk of {self.location}: {text}")
        read_only = "readonly" in text and not os.access(self.location, os.W_OK)
        if read_only or "unable to open" in text or "closed database" in text:
            return StorageFailed(f"{self.location}: {text}")
        return LogCorrupted(
            f"{self.location}: {text}. Restore a backup",
            directory=self.location,
            segment="",
            offset=0,
            found=text,
        )


def _write_meta(db: sqlite3.Connection, meta: LogMeta) -> None:
    fields = (FORMAT, *astuple(meta))
    row = (1, *fields, crc32(_META.pack(*fields)))
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(path)}?mode=rw",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
    )
