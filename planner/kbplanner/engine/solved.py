"""Solving ground programs: in the C engine where there is one, else in Python as `ground` does it."""

from __future__ import annotations

from array import array
from typing import Any

from kbplanner.engine import backend
from kbplanner.engine.backend import Via
from kbplanner.engine.binding import ffi, lib, room
from kbplanner.engine.engine import Engine
from kbplanner.engine.ground import Ground, Shortest
from kbplanner.engine.ground import shortest as shortest_in_python
from kbplanner.engine.ground import widest as widest_in_python

LONG = 50_000
"""Instances whose solving takes some milliseconds."""


def shortest(engine: backend.Engine, ground: Ground, via: Via | None = None) -> Shortest:
    """The shortest proofs of a ground program, as `ground.shortest`; `via` makes long calls into the engine."""
    if not isinstance(engine, Engine):
        return shortest_in_python(ground)
    found = Shortest(room(ground.nodes), room(ground.nodes), room(ground.nodes))
    _solve(engine, lib.kb_ground_shortest, ground, via, found.heights, found.chosen, found.counts)
    return found


def widest(engine: backend.Engine, ground: Ground, ranks: array[int], via: Via | None = None) -> array[int]:
    """The best values of a ground program, as `ground.widest`; no rank is greater than the number of instances."""
    if not isinstance(engine, Engine):
        return widest_in_python(ground, ranks)
    best = room(ground.nodes)
    _solve(engine, lib.kb_ground_widest, ground, via, ranks, best)
    return best


def _solve(engine: Engine, function: Any, ground: Ground, via: Via | None, *arrays: array[int]) -> None:
    heads, ends, premises = (ffi.from_buffer("uint32_t[]", a) for a in (ground.heads, ground.ends, ground.premises))
    fields = (ground.nodes, len(ground), ground.free, len(ground.premises), heads, ends, premises)
    given = ffi.new("kb_ground *", fields)
    views = [ffi.from_buffer("uint32_t[]", one) for one in arrays]
    if via is None or len(ground) < LONG:
        engine.call(function, given, *views)
    else:
        away = via
        engine.call(lambda handle: away(lambda: int(function(handle, given, *views))))
