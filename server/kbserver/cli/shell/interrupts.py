"""Ctrl-C in the shell: it ends a goal that runs, but no write halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Hold back Ctrl-C until the end of the block, and raise KeyboardInterrupt there."""
    if threading.current_thread() is not threading.main_thread():  # only it receives signals
        yield
        return
    arrived = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal arrived
        arrived = True

    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if arrived:
        raise KeyboardInterrupt


@contextmanager
def interrupts() -> Iterator[None]:
    """Let Ctrl-C end the block at once, also inside `deferred_interrupts`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
