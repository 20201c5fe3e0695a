"""Exit statuses of failed commands; the only module that `kbcore serve` shares with the other commands."""

from __future__ import annotations

from kbcore.errors import (
    ConfigError,
    KBError,
    LogCorrupted,
    NotReady,
    ReadOnlyFollower,
    StorageBusy,
    StorageFailed,
)

EXIT_CODES: dict[type[KBError], int] = {
    LogCorrupted: 65,
    NotReady: 69,
    StorageFailed: 74,
    StorageBusy: 75,
    ReadOnlyFollower: 77,
    ConfigError: 78,
}
"""By the names of sysexits: bad data, storage server away, an input/output error, try again later, not permitted here, bad
configuration."""
