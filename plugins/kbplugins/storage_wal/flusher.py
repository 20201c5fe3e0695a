"""The thread that syncs under FSYNC_POLICY=interval."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kbcore.errors import StorageFailed


def _in_place(call: Callable[[], None]) -> None:
    call()


class Flusher:
    """A thread that calls `flush` at most once per interval, and only after a write.

    The thread ends at the first failure, after which the owner of `flush` refuses every call.
    `offload` makes the call: where threads are greenlets, a direct call would block all of them.
    """

    def __init__(self, flush: Callable[[], None], interval: float) -> None:
        self._flush = flush
        self._interval = interval
        self.offload: Callable[[Callable[[], None]], None] = _in_place
        self._state = threading.Condition()
        self._written = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="kb-wal-flush", daemon=True)
        self._thread.start()

    def written(self) -> None:
        """Request a sync within an interval from now."""
        # Read without the lock: only the thread clears it, before the sync.
        if self._written:
            return
        with self._state:
            self._written = True
            self._state.notify()

    def stop(self) -> None:
        """End the thread and wait for a sync in progress; unsynced data stays unsynced."""
        with self._state:
            self._stopped = True
            self._state.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._written or self._stopped)
                # The interval passes before the sync, so one sync serves everything written during
                # it.
                self._state.wait_for(lambda: self._stopped, timeout=self._interval)
                if self._stopped:
                    return
                # Cleared before the sync: a write during the sync requests another one.
                self._written = False
            try:
                self.offload(self._flush)
            except StorageFailed:
                return
