"""Counts by rule of a run of the C engine; see `backend.Run`."""

from __future__ import annotations

from typing import Any, Protocol

from kbplanner.engine.backend import RuleCounts
from kbplanner.engine.binding import ffi, lib


class _Calls(Protocol):
    profiled: bool

    def _call(self, function: Any, *arguments: Any) -> int:
        """Call an engine function on the run."""


class Counted:
    """The part of a run that counts."""

    profiled = False

    def profile(self: _Calls) -> None:
        """Enable counts by rule (before the first step), and end a step PAUSED where a stratum
        ends.
        """
        self._call(lib.kb_run_profile)
        self.profiled = True

    def counts(self: _Calls) -> list[RuleCounts]:
        """Return the counts of a profiled run, one for each version of a rule, in the order of the
        plan.
        """
        sizes = ffi.new("size_t[2]")
        self._call(lib.kb_run_counts, ffi.NULL, 0, ffi.NULL, 0, sizes, sizes + 1)
        rules, steps = ffi.new("kb_rule_counts[]", sizes[0]), ffi.new("uint64_t[]", sizes[1])
        self._call(lib.kb_run_counts, rules, sizes[0], steps, sizes[1], sizes, sizes + 1)
        passed = iter(ffi.unpack(steps, sizes[1]) if sizes[1] else ())
        return [
            RuleCounts(
                rule.rows_made,
                rule.rows_read,
                rule.probes,
                tuple(next(passed) for _ in range(rule.steps)),
            )
            for rule in rules
        ]
