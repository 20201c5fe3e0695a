"""One process a folder: LOCK, held from before anything is read until the log is closed."""

from __future__ import annotations

import os
import socket

from kbcore.errors import StorageBusy
from kbplugins.storage_wal.files import LOCKFILE, READ, Disk

NAME = "LOCK"


def take(disk: Disk, name: str = NAME) -> int:
    """Lock the folder, or what else the file `name` stands for, and leave our name in the file.

    Returns the descriptor that holds the lock.

    Raises StorageBusy with the name of the holder. The kernel frees the lock when its process ends, however it
    ends; the file itself stays, for removing it would let two processes lock two files of the same name.
    """
    fd = disk.open(name, LOCKFILE)
    try:
        if not disk.lock(name, fd):
            holder = (
                disk.read(name, fd, 512, 0).decode("utf-8", "replace").strip()
                or "an unknown process"
            )
            held = disk.folder if name == NAME else disk.path(name).removesuffix(".lock")
            raise StorageBusy(
                f"{held} is in use by {holder}", {"directory": disk.folder, "holder": holder}
            )
        disk.truncate(name, fd, 0)
        disk.write(name, fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def look(disk: Disk) -> int | None:
    """Hold the lock of a folder that is only read, and leave nothing there; None where it has none. Raises StorageBusy."""
    if NAME not in disk.names():
        return None
    fd = disk.open(NAME, READ)
    try:
        if not disk.lock(NAME, fd):
            holder = (
                disk.read(NAME, fd, 512, 0).decode("utf-8", "replace").strip()
                or "an unknown process"
            )
            raise StorageBusy(
                f"{disk.folder} is in use by {holder}", {"directory": disk.folder, "holder": holder}
            )
    except BaseException:
        disk.close(fd)
        raise
    return fd
