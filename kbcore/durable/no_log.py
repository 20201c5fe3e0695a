"""The log of a node in a cluster for what belongs to no shard: it is empty and takes no records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kbcore.errors import NotReady
from kbcore.plug.ports import LogRecord, LogStatus

_MESSAGE = "this node does not have the system shard"


class NoLog:
    """A `LogStore` without records, beside the copy of the directory that each node keeps."""

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Raise NotReady."""
        raise NotReady(_MESSAGE)

    def sync(self) -> None:
        """Do nothing."""

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return no records."""
        return iter(())

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Raise NotReady."""
        raise NotReady(_MESSAGE)

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Raise NotReady."""
        raise NotReady(_MESSAGE)

    def load_snapshot(self) -> None:
        """Return None: there is no snapshot."""

    def drop_before(self, seq: int) -> None:
        """Do nothing."""

    def status(self) -> LogStatus:
        """Return the status of an empty log."""
        return LogStatus(0, 0, "", 1, 0, 0, writable=True)

    def close(self, *, clean: bool = True) -> None:
        """Do nothing."""
