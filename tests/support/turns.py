"""Counts of the steps between two turns of others: they do not depend on the speed of the
machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Turns:
    """Counts the turns of others, and the calls of functions: all, and the most between two
    turns.
    """

    def __init__(self) -> None:
        self.count = self.calls = self.all_calls = self.most_calls = 0

    def __call__(self) -> None:
        self.count += 1
        self.most_calls = max(self.most_calls, self.calls)
        self.all_calls += self.calls
        self.calls = 0

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        self.calls += event in ("call", "c_call")

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count in this block."""
        self.calls = 0
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)
            self()


class Relay:
    """A function that is called in each turn, and has `turns` count it."""

    def __init__(self) -> None:
        self.turns = Turns()

    def __call__(self) -> None:
        self.turns()
