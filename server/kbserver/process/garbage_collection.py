"""Garbage collection schedule: full collections are rare, because they stop all requests.

Young generations are collected often, in a few milliseconds each: the second one has 30,000 objects
at most. Full collections run only while no long goal is active, since its answers can be millions of objects.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import gevent

GENERATION_0_OBJECTS, GENERATION_1_RUNS = 10_000, 2
"""Thresholds of `gc`: new objects before a collection of generation 0; such collections before one of generation 1."""

NO_GENERATION_2 = 1 << 30
"""Threshold that disables automatic full collections."""

FULL_COLLECTION_SECONDS = 60.0


def arrange(quiet: Callable[[], bool]) -> gevent.Greenlet:
    """Configure the process and start full collections at times when `quiet()` is true; kill the result to stop them."""
    gc.freeze()
    gc.set_threshold(GENERATION_0_OBJECTS, GENERATION_1_RUNS, NO_GENERATION_2)
    return gevent.spawn(_collect, quiet)


def _collect(quiet: Callable[[], bool]) -> None:
    while True:
        gevent.sleep(FULL_COLLECTION_SECONDS)
        if quiet():
            gc.collect()
