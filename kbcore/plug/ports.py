"""What plugins implement: small protocols with one contract each.

`API_VERSION` is one number for all of them; it rises when a protocol changes in a way plugins notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

API_VERSION = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One durable record: its place in the log, `type` and `version` of the payload, and the payload bytes."""

    seq: int
    type: int
    version: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogStatus:
    """Where a log stands: highest sequence number written and synced, and what a start dropped from a torn tail."""

    head: int
    durable: int
    log_id: str
    epoch: int
    snapshot: int
    tail_bytes_dropped: int
    writable: bool


class LogStore(Protocol):
    """A durable log with snapshots; one writer at a time.

    Contract: after `sync` returns, everything appended survives a crash; `read` yields it in order, once.
    Sequence numbers start at 1 and rise by one a record. Errors: `LogCorrupted` on damage (at open or read),
    `StorageFull` when there is no room (nothing of the failed append stays; the store works on afterwards),
    `StorageFailed` when a sync failed: the process must stop, nothing may be acknowledged.
    """

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Write (type, version, payload) records, all or none, without syncing; returns the last sequence number."""

    def sync(self) -> None:
        """Make everything appended durable, as FSYNC_POLICY says. May run in another thread than append."""

    def read(self, after: int) -> Iterator[LogRecord]:
        """Every record with a sequence number over `after`, in order. Raises LogTruncated if some are gone."""

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Store a snapshot of the state at `seq`, verified before it counts; chunk borders are kept."""

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """The newest sound snapshot and its sequence number, None when there is none."""

    def drop_before(self, seq: int) -> None:
        """Delete log segments that hold only records up to `seq` and are covered by every kept snapshot."""

    def status(self) -> LogStatus:
        """Where the log stands."""

    def close(self, *, clean: bool = True) -> None:
        """Release the log; `clean` marks that nothing is missing."""
