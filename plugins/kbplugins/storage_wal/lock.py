"""The lock by which one process holds a folder from the first read until the log is closed."""

from __future__ import annotations

import os
import socket

from kbcore.errors import StorageBusy
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
        disk.truncate(name, fd, 0)
        disk.write(name, fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def take_to_read(disk: Disk) -> int | None:
    """Lock a folder without changing it; None if it has no lock file. Raises StorageBusy."""
    if NAME not in disk.names():
        return None
    fd = disk.open(NAME, READ)
    try:
        _lock(disk, NAME, fd)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def _lock(disk: Disk, name: str, fd: int) -> None:
    if not disk.lock(name, fd):
        text = disk.read(name, fd, 512, 0).decode("utf-8", "replace").strip()
        holder = text or "an unknown process"
        target = disk.folder if name == NAME else disk.path(name).removesuffix(".lock")
        details = {"directory": disk.folder, "holder": holder}
        raise StorageBusy(f"{target} is in use by {holder}", details)
