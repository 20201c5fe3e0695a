"""One SQLite file with the tables of a log: creation, opening, writing, and translation of errors.

Journal. Under FSYNC_POLICY=always it is a rollback journal (PERSIST) with synchronous=FULL: every acknowledged
record is in the file itself, where its checksum guards it. SQLite's write-ahead log syncs once a commit instead
of three times, but treats a damaged frame as its end: the commits after it would be lost silently. Under
`interval` and `never` it is the write-ahead log with synchronous=NORMAL, which a power loss cuts short but
cannot corrupt.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
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
from kbplugins.storage_wal.files import Disk
from kbplugins.table_log import FORMAT, SnapshotRow, corrupted

APPLICATION = 0x6B62_6C67
"""Marks the file as ours for `file` and for us."""

ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors of the library; the second where the message of the first would quote damaged text."""

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


@dataclass(frozen=True, slots=True)
class Meta:
    """The one row of meta: first and last record, log id, and term."""

    log_id: bytes
    epoch: int
    first: int
    head: int

    def crc(self) -> int:
        """Its checksum."""
        return crc32(_META.pack(FORMAT, self.log_id, self.epoch, self.first, self.head))

    def row(self) -> tuple[Any, ...]:
        """As it is stored."""
        return (1, FORMAT, self.log_id, self.epoch, self.first, self.head, self.crc())


class SqliteFile:
    """The open file; one connection, one lock around it. Implements `table_log.Tables`."""

    def __init__(self, disk: Disk, name: str, policy: str, log_id: bytes) -> None:
        self.place = disk.path(name)
        self.lock = threading.RLock()
        if name not in disk.names():
            self._make(disk, name, log_id)
        try:
            self._db = _connect(self.place)
        except ERRORS as error:
            raise self.refusal(error) from error
        try:
            self._prepare(
                "PERSIST" if policy == "always" else "WAL",
                "FULL" if policy == "always" else "NORMAL",
            )
            self.meta = self._read_meta()
        except ERRORS as error:
            self._db.close()
            raise self.refusal(error) from error
        except BaseException:
            self._db.close()
            raise

    # -- Tables --------------------------------------------------------------

    def first(self) -> int:
        """Return the lowest record that is kept."""
        return self.meta.first

    def bounds(self, first: int) -> tuple[int, int, int]:
        """Lowest and highest number, and count."""
        rows = self._read(
            "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0), count(*) FROM log WHERE seq >= ?",
            first,
        )
        return rows[0][0], rows[0][1], rows[0][2]

    def sizes(self, after: int, limit: int) -> Sequence[tuple[int, int]]:
        """Numbers and sizes of the next records."""
        return self._read(
            "SELECT seq, coalesce(length(payload), 0) FROM log WHERE seq > ? ORDER BY seq LIMIT ?",
            after,
            limit,
        )

    def rows(self, after: int, upto: int) -> Sequence[tuple[Any, ...]]:
        """Records, as they are stored."""
        query = "SELECT seq, type, version, crc, payload FROM log WHERE seq > ? AND seq <= ? ORDER BY seq"
        return self._read(query, after, upto)

    def snapshots(self) -> Sequence[SnapshotRow]:
        """Return the finished snapshots, oldest first."""
        query = (
            'SELECT id, seq, chunks, size, crc, "check" FROM snapshots WHERE whole = 1 ORDER BY id'
        )
        snapshots = [SnapshotRow(*row) for row in self._read(query)]
        if not all(isinstance(row.seq, int) for row in snapshots):
            raise corrupted(self.place, "snapshots", self.meta.head, "values of another type")
        return snapshots

    def chunk(self, snapshot: int, number: int) -> tuple[Any, Any] | None:
        """One chunk."""
        rows = self._read(
            "SELECT crc, data FROM chunks WHERE snapshot = ? AND number = ?", snapshot, number
        )
        return (rows[0][0], rows[0][1]) if rows else None

    # -- writing -------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Change rows, all or none. Raises StorageFull, after which everything is as before, or StorageFailed."""
        with self.lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except ERRORS as error:
                raise self._verdict(error) from error
            except BaseException:
                self._roll_back()
                raise

    def save_meta(self, **changes: Any) -> Meta:
        """Change the row of meta, inside a transaction; set `meta` to the result when that has succeeded."""
        changed = replace(self.meta, **changes)
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?, ?, ?, ?, ?)", changed.row())
        return changed

    def delete_in_parts(self, query: str, *values: Any) -> None:
        """Run a DELETE that takes a limited number of rows until none is left, so that no append waits for long."""
        while True:
            with self.transaction() as db:
                if db.execute(query, values).rowcount <= 0:
                    return

    def checkpoint(self) -> None:
        """Sync what the write-ahead log holds into the file; nothing to do with a rollback journal."""
        with self.lock:
            try:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except ERRORS as error:
                raise StorageFailed(
                    f"{self.place}: {error}; what is on the disk is unknown"
                ) from error

    def close(self) -> None:
        """Close the file. An error here is ignored, because all that counts was committed before."""
        with self.lock, suppress(sqlite3.Error):
            self._db.close()

    # -- inside --------------------------------------------------------------

    def _make(self, disk: Disk, name: str, log_id: bytes) -> None:
        """Create a file under a temporary name, so that its own name never holds an incomplete file."""
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
                db.execute(
                    "INSERT INTO meta VALUES (?, ?, ?, ?, ?, ?, ?)", Meta(log_id, 1, 1, 0).row()
                )
                db.execute("COMMIT")
            finally:
                db.close()
        except ERRORS as error:
            disk.discard(aside)
            raise self.refusal(error) from error
        disk.rename(aside, name)
        disk.sync_folder()

    def _prepare(self, journal: str, synchronous: str) -> None:
        if os.path.getsize(self.place) == 0:
            raise corrupted(self.place, "meta", 1, "an empty file")
        self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
        if self._db.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise ConfigError(f"{self.place} is not a storage file of kbcore")
        self._db.execute(f"PRAGMA journal_mode={journal}").fetchone()
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.execute("PRAGMA cell_size_check=ON")
        self._db.execute("PRAGMA trusted_schema=OFF")
        # Now, not at the first write: another program that has the file open, or a file that cannot be written.
        self._db.execute("BEGIN EXCLUSIVE")
        self._db.execute("UPDATE meta SET one = 1")
        self._db.execute("COMMIT")

    def _read_meta(self) -> Meta:
        rows = self._db.execute(
            "SELECT format, log_id, epoch, first, head, crc FROM meta"
        ).fetchall()
        if len(rows) != 1:
            raise corrupted(self.place, "meta", 1, f"{len(rows)} rows")
        number, log_id, epoch, first, head, crc = rows[0]
        try:
            meta = Meta(log_id, epoch, first, head)
            right = (
                crc32(_META.pack(number, log_id, epoch, first, head)) == crc and len(log_id) == 16
            )
        except (struct.error, TypeError):
            right = False
        if not right:
            raise corrupted(self.place, "meta", 1, "a wrong checksum")
        if number > FORMAT:
            raise ConfigError(
                f"{self.place} has format {number}; this version reads format {FORMAT}"
            )
        return meta

    def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.lock:
            try:
                return self._db.execute(query, values).fetchall()
            except (*ERRORS, OverflowError) as error:
                raise self.refusal(error) from error

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except ERRORS as error:
            raise StorageFailed(f"{self.place}: {error}; what is on the disk is unknown") from error

    def _verdict(self, error: Exception) -> KBError:
        self._roll_back()
        if "is full" in str(error):
            return StorageFull(f"no room on the disk of {self.place}: {error}")
        return StorageFailed(
            f"{self.place}: {error}; what is on the disk is unknown", {"file": self.place}
        )

    def refusal(self, error: BaseException) -> KBError:
        """Translate an error of opening or reading."""
        text = str(error)
        if "locked" in text:
            return StorageBusy(f"{self.place} is in use by another program", {"file": self.place})
        if "is full" in text:
            return StorageFull(f"no room on the disk of {self.place}: {text}")
        barred = "readonly" in text and not os.access(self.place, os.W_OK)
        if barred or "unable to open" in text or "closed database" in text:
            return StorageFailed(f"{self.place}: {text}")
        return LogCorrupted(
            f"{self.place}: {text}. Way out: restore a backup",
            directory=self.place,
            segment="",
            offset=0,
            found=text,
        )


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(path)}?mode=rw",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
    )
