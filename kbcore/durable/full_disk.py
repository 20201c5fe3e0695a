"""The full-disk guard of a node.

Entered after a refused write, left when the disk has free space again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kbcore.errors import KBError, StorageFailed
from kbcore.plug.ports import KeepsReserve, LogStore
from kbcore.state.changes import ChangeSet

ROOM_SECONDS = 1
"""Seconds between two checks of a full disk for free space."""

_log = logging.getLogger("kbcore.room")


class FullDisk:
    """State and handling of a full disk.

    `wake` requests a call of `make` soon; `snapshot` takes a snapshot, which frees log segments;
    `failed` is called after a failed sync.
    """

    def __init__(
        self,
        store: LogStore,
        offload: Callable[[Callable[[], Any]], Any],
        wake: Callable[[], None],
        snapshot: Callable[[], None],
        failed: Callable[[StorageFailed], None],
    ) -> None:
        self._store = store
        self._offload = offload
        self._wake = wake
        self._snapshot = snapshot
        self._failed = failed
        self._made = False
        self.full = False

    def found_full(self) -> None:
        """Note that a commit found no space."""
        if not self.full:
            self.full = True
            self._wake()

    def wrote(self, changes: ChangeSet) -> None:
        """Note that a change set was written although the disk is full."""
        if changes.makes_room:
            self._made = True
            self._wake()

    def make(self) -> None:
        """Take a snapshot if data was removed, and accept writes again once there is free space."""
        if not self.full or not isinstance(self._store, KeepsReserve):
            self.full = False
            return
        if self._made:
            self._made = False
            self._snapshot()
        try:
            self.full = not self._offload(self._store.look_for_room)
        except StorageFailed as error:
            self._failed(error)
        except KBError as error:
            _log.warning("cannot check the disk for free space: %s", error)
