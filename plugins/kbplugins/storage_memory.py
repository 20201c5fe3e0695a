"""A log that stores nothing: `STORAGE_BACKEND=memory`, for trying out and for tests.

It counts records and discards them, so it never grows. Reading it back would only be useful in the
same process, whose state is in memory already. Reading appended records raises `LogTruncated`,
snapshots are not taken (their chunks are not even generated), and a new store begins at 0.
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


class MemoryStore(StoreBase):
    """A store that counts records and discards them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._log_id = os.urandom(16).hex()
        self._head = 0
        self._durable = 0

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Check and count records; return the last sequence number."""
        with self._lock:
            self._check()
            table_log.encoded(records, self._head + 1, 0)
            self._head += len(records)
            return self._head

    def sync(self) -> None:
        """Do nothing: there is nothing to sync."""
        self._check()
        self._durable = self._head

    def read(self, after: int) -> Iterator[LogRecord]:
        """Yield nothing after the head; raise LogTruncated for anything before it."""
        self._check()
        if after < self._head:
            raise LogTruncated("this log keeps no records", {"first": self._head + 1})
        return iter(())

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Do nothing: no start could use the snapshot."""
        self._check()
        if not 0 <= seq <= self._head:
            raise InvalidInput(f"a snapshot at {seq} must be from 0 to {self._head}, the head")

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Continue counting from a number; the snapshot itself is not stored."""
        with self._lock:
            self._check()
            if self._head:
                raise Conflict("only an empty log can begin with a snapshot")
            self._head = self._durable = seq

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return None: there is no snapshot."""
        self._check()
        return None

    def drop_before(self, seq: int) -> None:
        """Do nothing: no records are stored."""
        self._check()

    def begin_apart(self) -> None:
        """Do nothing: no records are stored."""
        self._check()

    def erase_before(self, seq: int) -> None:
        """Do nothing: no records are stored."""
        self._check()

    def erased(self) -> int:
        """Return the head: no records are stored."""
        return self._head

    def status(self) -> LogStatus:
        """Return the state of the log, as if it stored its records."""
        return LogStatus(
            head=self._head,
            durable=self._durable,
            log_id=self._log_id,
            epoch=1,
            snapshot=0,
            tail_bytes_dropped=0,
            writable=self._is_open,
        )

    def close(self, *, clean: bool = True) -> None:
        """Refuse every later call."""
        self._closing.set()


class MemoryShards:
    """`ShardPlaces` of logs that store nothing: every storage is new."""

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
