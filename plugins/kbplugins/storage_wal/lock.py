"""The locks by which one process holds a folder from the first read until the log is closed.

LOCK names the holder. The last segment is locked too: a program that removes old files may remove
LOCK, and a second process would lock another file of that name.
"""

from __future__ import annotations

import os
import socket

from kbcore.errors import StorageBusy
from kbplugins.storage_wal import segment
from kbplugins.storage_wal.files import LOCKFILE, READ, Disk

NAME = "LOCK"


def take(disk: Disk, name: str = NAME) -> int:
    """Lock the folder with the file `name`, and write the process into the file.

    Returns the descriptor that holds the lock.

    Raises StorageBusy with the name of the holder. The kernel releases the lock when its process
    ends. The file stays: if it were removed, two processes could lock two files of the same name.
    """
    fd = disk.open(name, LOCKFILE)
    try:
        _lock(disk, name, fd)
        if not disk.is_named(name, fd):
            raise _busy(disk, name, "another process: the file was removed or replaced just now")
        disk.truncate(name, fd, 0)
        disk.write(name, fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def take_to_read(disk: Disk) -> int | None:
    """Lock a folder without changing it; None if it has no lock file. Raises StorageBusy."""
    names = disk.names()
    if logs := [name for name in names if segment.first_of(name) is not None]:
        disk.close(take_log(disk, logs[-1], READ))
    if NAME not in names:
        return None
    fd = disk.open(NAME, READ)
    try:
        _lock(disk, NAME, fd)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def take_log(disk: Disk, name: str, flags: int) -> int:
    """Open and lock a segment; return its descriptor. Raises StorageBusy."""
    fd = disk.open(name, flags)
    try:
        segment.hold(disk, name, fd)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def _lock(disk: Disk, name: str, fd: int) -> None:
    if not disk.lock(name, fd):
        text = disk.read(name, fd, 512, 0).decode("utf-8", "replace").strip()
        raise _busy(disk, name, text or "an unknown process")


def _busy(disk: Disk, name: str, holder: str) -> StorageBusy:
    target = disk.folder if name == NAME else disk.path(name).removesuffix(".lock")
    details = {"directory": disk.folder, "holder": holder}
    return StorageBusy(f"{target} is in use by {holder}", details)
