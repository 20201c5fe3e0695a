"""When Python looks for garbage in cycles: seldom over everything, since a look at all objects holds up everybody.

The youngest objects are looked at often, in a millisecond or so, those that outlive that now and then. All of them are
looked at only while no long goal is under way, whose answers can be millions of objects.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import gevent

YOUNG, YOUNGER = 20_000, 5
"""New objects before a look at them; such looks before one that takes in those that outlived the first."""

NEVER = 1 << 30

EVERY_SECONDS = 60.0


def arrange(quiet: Callable[[], bool]) -> gevent.Greenlet:
    """Set this up for the process; looks at everything happen when `quiet` says so. Kill what it gives to end them."""
    gc.freeze()
    gc.set_threshold(YOUNG, YOUNGER, NEVER)
    return gevent.spawn(_collect, quiet)


def _collect(quiet: Callable[[], bool]) -> None:
    while True:
        gevent.sleep(EVERY_SECONDS)
        if quiet():
            gc.collect()
