"""Garbage collection schedule: full collections are rare and short, because they stop all requests.

Young generations are collected often, in a few milliseconds each: the second one has 15,000 objects
at most. Full collections run only while no long goal and no large body is active, whose answers and
values can be millions of objects. What survives one is frozen: the next one looks only at what was
made since then. Once an hour everything is looked at again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import gevent

GENERATION_0_OBJECTS, GENERATION_1_RUNS = 5_000, 2
"""Thresholds of `gc`: new objects before a collection of generation 0; such collections before one
of generation 1.
"""

NO_GENERATION_2 = 1 << 30
"""Threshold that disables automatic full collections."""

FULL_COLLECTION_SECONDS = 60.0

COLLECTIONS_OF_EVERYTHING = 60
"""Every such full collection also looks at the frozen objects."""

LARGE_BYTES = 1 << 20
"""Bytes of the bodies of active requests above which no full collection runs."""


def arrange(quiet: Callable[[], bool]) -> gevent.Greenlet:
    """Configure the process and start full collections at times when `quiet()` is true; kill the
    result to stop them.
    """
    gc.freeze()
    gc.set_threshold(GENERATION_0_OBJECTS, GENERATION_1_RUNS, NO_GENERATION_2)
    return gevent.spawn(_collect, quiet)


def _collect(quiet: Callable[[], bool]) -> None:
    runs = 0
    while True:
        gevent.sleep(FULL_COLLECTION_SECONDS)
        if quiet():
            runs += 1
            collect(everything=runs % COLLECTIONS_OF_EVERYTHING == 0)


def collect(*, everything: bool) -> None:
    """Collect what was made since the last full collection, or everything, and freeze the rest."""
    if everything:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
