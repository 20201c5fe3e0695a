"""A readers-writer lock built on `threading` only, cooperative where `threading` is patched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class ReadWriteLock:
    """Any number of readers or one writer. A waiting writer goes before readers that arrive later.

    `with lock.read():` and `with lock.write():`. Not re-entrant. Held by threads (or greenlets)
    that run Python, never inside the engine.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._readers = 0
        self._writing = False
        self._writers_waiting = 0
        self._read = _Read(self)
        self._write = _Write(self)
        self.before: list[Callable[[], None]] = []
        """Callbacks that the next writer runs once it holds the lock; they must not raise."""

    def read(self) -> AbstractContextManager[None]:
        """Return a context manager that holds the lock together with other readers."""
        return self._read

    def write(self) -> AbstractContextManager[None]:
        """Return a context manager that holds the lock exclusively."""
        return self._write

    def acquire_unless_read(self) -> bool:
        """Take the lock as a writer, and return True, unless readers hold it; `release` ends it.

        This waits for a writer, which is seldom long, but never for a reader.
        """
        with self._mutex:
            while self._writing:
                self._changed.wait()
            if self._readers:
                return False
            self._writing = True
        self._write.begin()
        return True

    def release(self) -> None:
        """Release the lock that a writer holds."""
        self._write.__exit__(None, None, None)

    @property
    def written(self) -> bool:
        """True while a writer holds the lock."""
        return self._writing


class _Read:
    """Context manager shared by all readers: it has no state of its own."""

    def __init__(self, lock: ReadWriteLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        lock = self._lock
        with lock._mutex:
            while lock._writing or lock._writers_waiting:
                lock._changed.wait()
            lock._readers += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lock = self._lock
        with lock._mutex:
            lock._readers -= 1
            if not lock._readers and lock._writers_waiting:
                lock._changed.notify_all()


class _Write:
    """Context manager shared by all writers, one of which holds the lock at a time."""

    def __init__(self, lock: ReadWriteLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        lock = self._lock
        with lock._mutex:
            lock._writers_waiting += 1
            try:
                while lock._writing or lock._readers:
                    lock._changed.wait()
            finally:
                lock._writers_waiting -= 1
                if not lock._writers_waiting:
                    lock._changed.notify_all()
            lock._writing = True
        self.begin()

    def begin(self) -> None:
        """Run what waits for the next writer, which holds the lock."""
        try:
            while self._lock.before:
                self._lock.before.pop()()
        except BaseException as error:  # on KeyboardInterrupt `__exit__` is not called
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lock = self._lock
        with lock._mutex:
            lock._writing = False
            lock._changed.notify_all()
