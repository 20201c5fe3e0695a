"""Counts by rule of a run of the C engine; see `backend.Run`."""

from __future__ import annotations

from typing import Any, Protocol

from kbplanner.engine.backend import RuleCounts
from kbplanner.engine.binding import ffi, lib


class _Calls(Protocol):
    profiled: bool

    def _call(self, function: Any, *arguments: Any) -> int:
        """Call a function of the engine on the run."""


class Counted:
    """The part of a run that counts."""

    profiled = False

    def profile(self: _Calls) -> None:
        """Before the first step: keep counts by rule, and let each step end PAUSED where a stratum ends."""
        self._call(lib.kb_run_profile)
        self.profiled = True

    def counts(self: _Calls) -> list[RuleCounts]:
        """The counts of a profiled run, one for each version of a rule, in the order of the plan."""
        sizes = ffi.new("size_t[2]")
        self._call(lib.kb_run_counts, ffi.NULL, 0, ffi.NULL, 0, sizes, sizes + 1)
        rules, steps = ffi.new("kb_rule_counts[]", sizes[0]), ffi.new("uint64_t[]", sizes[1])
        self._call(lib.kb_run_counts, rules, sizes[0], steps, sizes[1], sizes, sizes + 1)
        passed = iter(ffi.unpack(steps, sizes[1]) if sizes[1] else ())
        return [
            RuleCounts(one.rows_made, one.rows_read, one.probes, tuple(next(passed) for _ in range(one.steps)))
            for one in rules
        ]
