"""Well-founded models of ground programs, computed by the C engine."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from kbplanner.engine.backend import SLICE, Offload, RunLimits, RunState, RunStats
from kbplanner.engine.binding import BUDGETS, GroundStruct, check, ffi, lib, limits_struct
from kbplanner.engine.ground import Ground
from kbplanner.errors import BudgetExceeded, EngineFault

if TYPE_CHECKING:
    from kbplanner.engine.engine import Engine


class Model:
    """The well-founded model of a ground program; see `backend.Model`. Raises BudgetExceeded when
    out of memory.
    """

    def __init__(self, engine: Engine, ground: Ground, limits: RunLimits) -> None:
        self._handle: Any = None
        self._engine = engine
        self._limits = limits
        self._nodes = ground.nodes
        self._close_mutex = threading.Lock()  # cancel and close may run at the same time
        self._ground = GroundStruct(ground)  # borrowed by the engine
        if len(ground.ends) != len(ground.heads):
            raise EngineFault("engine: a ground program needs one end for each instance")
        out = ffi.new("kb_model **")
        budget = limits_struct(limits)
        with engine._lock:
            status = lib.kb_model_open(engine._locked_handle(), self._ground.struct, budget, out)
        if status == lib.KB_LIMIT:
            raise BudgetExceeded.of_run("memoryBytes", limits.bytes)
        check(status, engine.max_bytes)
        self._handle = out[0]

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._engine.close_later(lib.kb_model_close, self._handle)

    def step(self, fuel: int, offload: Offload | None = None) -> RunState:
        """Step for about `fuel` steps: DONE or PAUSED; `offload` as for a run."""
        while True:
            with self._engine._lock:
                handle, amount = self._open_handle(), min(fuel, SLICE)
                if offload is None:
                    status = lib.kb_model_step(handle, amount)
                else:
                    step = partial(lib.kb_model_step, handle, amount)
                    status = int(offload(step))
            if status == lib.KB_LIMIT:
                raise BudgetExceeded.of_run("steps", self._limits.steps)
            check(status, self._engine.max_bytes)
            fuel -= SLICE
            if status != lib.KB_PAUSED or fuel <= 0:
                return RunState(status)

    def values(self) -> bytes:
        """Return a `Truth` for each node, once the model is DONE."""
        out = bytearray(self._nodes)
        with self._engine._lock:
            check(lib.kb_model_values(self._open_handle(), ffi.from_buffer("uint8_t[]", out)))
        return bytes(out)

    def stats(self) -> RunStats:
        """Return the counters so far."""
        out = ffi.new("kb_stats *")
        with self._engine._lock:
            lib.kb_model_stats(self._open_handle(), out)
        return RunStats(steps=out.steps, bytes=out.bytes, budget=BUDGETS.get(out.budget))

    def cancel(self) -> None:
        """Stop the current step soon; may be called from another thread."""
        with self._close_mutex:
            if self._handle is not None:
                lib.kb_model_cancel(self._handle)

    def close(self) -> None:
        """Free the memory."""
        with self._close_mutex:
            handle, self._handle = self._handle, None
        if handle is not None:
            self._engine.close_later(lib.kb_model_close, handle)

    def _open_handle(self) -> Any:
        self._engine._locked_handle()
        if self._handle is None:
            raise EngineFault("engine: the model is closed")
        return self._handle
