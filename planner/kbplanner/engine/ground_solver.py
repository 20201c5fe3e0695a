"""Algorithms on ground programs: in the C engine where possible, else in Python by `ground`."""

from __future__ import annotations

from array import array
from typing import Any

from kbplanner.engine import backend
from kbplanner.engine.backend import Offload
from kbplanner.engine.binding import GroundStruct, ffi, lib, new_array
from kbplanner.engine.engine import Engine
from kbplanner.engine.ground import Ground, Shortest
from kbplanner.engine.ground import shortest as shortest_in_python
from kbplanner.engine.ground import widest as widest_in_python

OFFLOADED_INSTANCES = 50_000
"""Instances whose solution takes some milliseconds."""


def shortest(engine: backend.Engine, ground: Ground, offload: Offload | None = None) -> Shortest:
    """Return the shortest proofs of a ground program, as `ground.shortest`; `offload` makes long engine
    calls.
    """
    if not isinstance(engine, Engine):
        return shortest_in_python(ground)
    proofs = Shortest(new_array(ground.nodes), new_array(ground.nodes), new_array(ground.nodes))
    _solve(
        engine,
        lib.kb_ground_shortest,
        ground,
        offload,
        proofs.heights,
        proofs.chosen,
        proofs.counts,
    )
    return proofs


def widest(
    engine: backend.Engine, ground: Ground, ranks: array[int], offload: Offload | None = None
) -> array[int]:
    """Return the best values of a ground program, as `ground.widest`; no rank is greater than the
    number of instances.
    """
    if not isinstance(engine, Engine):
        return widest_in_python(ground, ranks)
    best = new_array(ground.nodes)
    _solve(engine, lib.kb_ground_widest, ground, offload, ranks, best)
    return best


def _solve(
    engine: Engine, function: Any, ground: Ground, offload: Offload | None, *arrays: array[int]
) -> None:
    program = GroundStruct(ground)
    views = [ffi.from_buffer("uint32_t[]", values) for values in arrays]
    if offload is None or len(ground) < OFFLOADED_INSTANCES:
        engine.call(function, program.struct, *views)
    else:
        engine.call(lambda handle: offload(lambda: int(function(handle, program.struct, *views))))
