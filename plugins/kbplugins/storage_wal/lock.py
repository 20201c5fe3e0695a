"""One process a folder: LOCK, held from before anything is read until the log is closed."""

from __future__ import annotations

import os
import socket

from kbcore.errors import StorageBusy
from kbplugins.storage_wal.files import LOCKFILE, Disk

NAME = "LOCK"


def take(disk: Disk) -> int:
    """Lock the folder and leave our name in the file; returns the descriptor that holds the lock.

    Raises StorageBusy with the name of the holder. The kernel frees the lock when its process ends, however it
    ends; the file itself stays, for removing it would let two processes lock two files of the same name.
    """
    fd = disk.open(NAME, LOCKFILE)
    try:
        if not disk.lock(NAME, fd):
            holder = disk.read(NAME, fd, 512, 0).decode("utf-8", "replace").strip() or "an unknown process"
            raise StorageBusy(f"{disk.folder} is in use by {holder}", {"directory": disk.folder, "holder": holder})
        disk.truncate(NAME, fd, 0)
        disk.write(NAME, fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except BaseException:
        disk.close(fd)
        raise
    return fd
