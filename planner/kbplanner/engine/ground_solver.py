"""Algorithms on ground programs: in the C engine where possible, else in Python by `ground`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from kbplanner.engine import backend
from kbplanner.engine.backend import Offload
from kbplanner.engine.binding import GroundStruct, check, ffi, lib, new_array
from kbplanner.engine.engine import Engine
from kbplanner.engine.ground import Ground, Shortest
from kbplanner.engine.ground import shortest as shortest_in_python
from kbplanner.engine.ground import widest as widest_in_python

OFFLOADED_INSTANCES = 50_000
"""Instances whose solution takes some milliseconds."""


def shortest(engine: backend.Engine, ground: Ground, offload: Offload | None = None) -> Shortest:
    """Return the shortest proofs of a ground program, as `ground.shortest`; `offload` makes long
    engine calls.
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


_DISCOVERED = 1
"""State of an instance in the queue of a search, as in the engine."""


class Search:
    """The search for the instances of proofs of a ground program, breadth first.

    The first `parts` instances belong to others and are only passed through.
    """

    def __init__(self, ground: Ground, proofs: Shortest, parts: int) -> None:
        self._program = GroundStruct(ground)
        self._proofs = proofs
        columns = [proofs.heights, proofs.chosen, new_array(len(ground))]
        heights, chosen, queue = (ffi.from_buffer("uint32_t[]", column) for column in columns)
        seen = ffi.from_buffer("uint8_t[]", bytearray(max(len(ground), 1)))
        self._views = heights, chosen, seen, queue
        self._search = ffi.new("kb_search *", (heights, chosen, seen, queue, parts, 0, 0))

    def expect(self, instances: Iterable[int]) -> None:
        """Add instances to those that earlier calls of `pick` have left."""
        _, _, seen, queue = self._views
        for instance in instances:
            if not seen[instance]:
                seen[instance] = _DISCOVERED
                queue[self._search.end] = instance
                self._search.end += 1

    def pick(self, first: int, limit: int) -> array[int]:
        """Return the next instances, at most `limit`, in order.

        They are `first`, unless it was picked before, those that prove its premises, and those that
        earlier calls have left. None is picked twice, and none that is free or concludes a node
        without steps.
        """
        picked, count = new_array(limit), ffi.new("uint32_t *")
        view = ffi.from_buffer("uint32_t[]", picked)
        check(lib.kb_ground_pick(self._program.struct, self._search, first, limit, view, count))
        return array("I", sorted(picked[: count[0]]))


def _solve(
    engine: Engine, function: Any, ground: Ground, offload: Offload | None, *arrays: array[int]
) -> None:
    program = GroundStruct(ground)
    views = [ffi.from_buffer("uint32_t[]", values) for values in arrays]
    if offload is None or len(ground) < OFFLOADED_INSTANCES:
        engine.call(function, program.struct, *views)
    else:
        engine.call(lambda handle: offload(lambda: int(function(handle, program.struct, *views))))
