"""The system calls that not every platform has, each with a substitute that keeps its promise.

kbcore runs on Linux and macOS. A call that is missing where no substitute is safe has a function
that says so, and the caller refuses with a sentence.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from pathlib import Path

_NOT_SUPPORTED = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL))


def sync_file(fd: int) -> None:
    """Sync content and attributes of a file to the disk; for a folder, its names.

    On macOS `fsync` leaves them in the memory of the drive, where a power failure loses them; there
    F_FULLFSYNC is used. A file system that does not know it, such as one of a network, gets
    `fsync`, as in SQLite. Raises OSError.
    """
    if (full := getattr(fcntl, "F_FULLFSYNC", None)) is not None:
        try:
            fcntl.fcntl(fd, full)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        else:
            return
    os.fsync(fd)


def sync_content(fd: int) -> None:
    """Sync the content of a file to the disk, and of its attributes at least the size.

    Raises OSError.
    """
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        sync_file(fd)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to the disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def allocate(fd: int, size: int) -> None:
    """Allocate the first `size` bytes of a file; those not written read as zeros.

    Raises OSError, with EOPNOTSUPP where the platform, such as macOS, has no such call.
    """
    if not hasattr(os, "posix_fallocate"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    os.posix_fallocate(fd, 0, size)


def boot_ns() -> int:
    """Return nanoseconds since the start of the machine, which go on while it is suspended.

    On Linux that is CLOCK_BOOTTIME. macOS has no clock of this name; its CLOCK_MONOTONIC_RAW goes
    on during sleep, and no setting of the time changes it.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW if clock is None else clock)


def boot_id() -> str | None:
    """Return what identifies this boot of the machine; None where only Linux would know."""
    if sys.platform != "linux":
        return None
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def can_hand_over_connections() -> bool:
    """Return True if a process can send an open connection to another, with bytes, as one message.

    That needs Unix sockets of the kind SOCK_SEQPACKET, which macOS does not have.
    """
    return sys.platform == "linux"


def available_cores() -> int:
    """Return the number of cores that this process may use; of all cores where that is unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
