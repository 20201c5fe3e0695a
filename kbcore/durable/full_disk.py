"""A full disk as a node sees it: noticed by a refused write, left when the log has room again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kbcore.errors import KBError, StorageFailed, StorageFull
from kbcore.plug.ports import KeepsReserve, LogStore
from kbcore.state.changes import ChangeSet

ROOM_SECONDS = 1
"""How often a node looks whether a full disk has room again."""

_log = logging.getLogger("kbcore.room")


class FullDisk:
    """Whether the disk is full, and what is done about it beside the traffic.

    `wake` asks for `make` to be called soon; `snapshot` takes one, which gives the log back; `failed` is told of a failed
    sync.
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

    @contextmanager
    def watched(self, changes: ChangeSet) -> Iterator[None]:
        """Notice what becomes of a commit."""
        try:
            yield
        except StorageFull:
            if not self.full:
                self.full = True
                self._wake()
            raise
        if self.full and changes.makes_room:
            self._made = True
            self._wake()

    def make(self) -> None:
        """Take a snapshot where something was taken away; let writes be taken again when there is room."""
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
            _log.warning("no look for room: %s", error)
