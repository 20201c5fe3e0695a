"""A log in the memory of the process: `STORAGE_BACKEND=memory`, for trying out and for tests.

It keeps its first records for histories and for undoing, up to KEPT_BYTES, so that it never grows
without limit; with more it forgets all of them, and from then on only counts records. Reading a
record that it does not have raises `LogTruncated`. A snapshot is kept only in place of records that
are erased. A new store begins at 0.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kbcore.config import Config
from kbcore.errors import Conflict, InvalidInput, LogTruncated
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import LogRecord, LogStatus, LogStore, ShardPlaces
from kbplugins import table_log
from kbplugins.store_base import StoreBase

KEPT_BYTES = 32 << 20
"""Maximum size of the records and of the snapshot that are kept."""

RECORD_BYTES = 200
"""Approximate memory of a record besides its payload."""


class MemoryStore(StoreBase):
    """A store that keeps its records only in memory, as long as they are few."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._log_id = os.urandom(16).hex()
        self._head = 0
        self._durable = 0
        self._records: list[LogRecord] = []
        self._snapshot: tuple[int, tuple[bytes, ...]] | None = None
        self._bytes = 0
        self._keeps = True
        self._erases = False

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Check and count records, and keep them if they fit; return the last sequence number."""
        with self._lock:
            self._check()
            rows = table_log.encoded(records, self._head + 1, 0)
            self._head += len(rows)
            if self._keeps:
                self._records += [
                    LogRecord(seq, kind, version, payload)
                    for seq, kind, version, _, payload in rows
                ]
                self._bytes += sum(RECORD_BYTES + len(row[-1]) for row in rows)
                self._limit()
            return self._head

    def sync(self) -> None:
        """Do nothing: there is nothing to sync."""
        self._check()
        self._durable = self._head

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return the records over `after`; raise LogTruncated if some are not kept."""
        self._check()
        with self._lock:
            first = self._first
            if after + 1 < first:
                message = "this log does not keep the record"
                raise LogTruncated(message, {"first": first})
            return iter(self._records[after + 1 - first :])

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Keep the snapshot if records before it are about to be erased; else do nothing."""
        self._check()
        if not 0 <= seq <= self._head:
            raise InvalidInput(f"a snapshot at {seq} must be from 0 to {self._head}, the head")
        with self._lock:
            if self._keeps and self._erases:
                self._erases = False
                self._drop_snapshot()
                self._snapshot = seq, tuple(chunks)
                self._bytes += sum(map(len, self._snapshot[1]))
                self._limit()

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Continue counting from a number; neither the snapshot nor later records are kept."""
        with self._lock:
            self._check()
            if self._head:
                raise Conflict("only an empty log can begin with a snapshot")
            self._head = self._durable = seq
            self._keeps = False

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the snapshot before which records were erased, None without one."""
        self._check()
        with self._lock:
            return None if self._snapshot is None else (self._snapshot[0], iter(self._snapshot[1]))

    def drop_before(self, seq: int) -> None:
        """Do nothing: the records are history."""
        self._check()

    def begin_apart(self) -> None:
        """Keep the next snapshot."""
        self._check()
        self._erases = True

    def erase_before(self, seq: int) -> None:
        """Forget the records up to `seq`; the snapshot that was saved last has their state."""
        with self._lock:
            self._check()
            erased, first = min(seq, self._head), self._first
            gone = self._records[: max(erased + 1 - first, 0)]
            del self._records[: len(gone)]
            self._bytes -= sum(RECORD_BYTES + len(each.payload) for each in gone)

    def erased(self) -> int:
        """Return the number of the last record that is not kept any more."""
        with self._lock:
            return self._first - 1

    def status(self) -> LogStatus:
        """Return the state of the log, as if it stored its records."""
        return LogStatus(
            head=self._head,
            durable=self._durable,
            log_id=self._log_id,
            epoch=1,
            snapshot=0 if self._snapshot is None else self._snapshot[0],
            tail_bytes_dropped=0,
            writable=self._is_open,
        )

    def close(self, *, clean: bool = True) -> None:
        """Refuse every later call."""
        self._closing.set()

    @property
    def _first(self) -> int:
        """The number of the first record that is kept, that of the next one without any."""
        return self._records[0].seq if self._records else self._head + 1

    def _limit(self) -> None:
        """Forget everything if it is too much, for good: later records would have no beginning."""
        if self._bytes > KEPT_BYTES:
            self._keeps = False
            self._records.clear()
            self._drop_snapshot()
            self._bytes = 0

    def _drop_snapshot(self) -> None:
        if self._snapshot is not None:
            self._bytes -= sum(map(len, self._snapshot[1]))
            self._snapshot = None


class MemoryShards:
    """`ShardPlaces` of logs in memory: every storage is new."""

    def recorded(self, config: Config) -> Sequence[str] | None:
        """Return None: there is no storage yet."""
        return None

    def record(self, config: Config, log_ids: Sequence[str]) -> None:
        """Do nothing: no later start could read the log ids."""

    def place(self, config: Config, shard: int, *, new: bool) -> Config:
        """Return the settings unchanged."""
        return config


@hookimpl
def kb_storage_backends(config: Config) -> Mapping[str, Callable[[Config], LogStore]]:
    """Offer the log under the name `memory`."""
    return {"memory": MemoryStore}


@hookimpl
def kb_storage_shards(config: Config) -> Mapping[str, ShardPlaces]:
    """Offer shards that store nothing."""
    return {"memory": MemoryShards()}
