"""A cache that evicts the least recently used entries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Values by key, at most `capacity` of them; threads may share it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._mutex = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, now the most recently used, or None."""
        with self._mutex:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Key, value: Value) -> None:
        """Store a value; evict the least recently used one if there are too many."""
        with self._mutex:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._capacity:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Remove all values."""
        with self._mutex:
            self._values.clear()
