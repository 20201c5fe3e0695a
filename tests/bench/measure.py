"""Timing: the only place of the benchmarks that looks at a clock for something short."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass


class Skipped(Exception):
    """A peer that cannot do a workload here; the text goes into its column."""


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds of one evaluation and how many answers it had.

    `tail` is the 99th percentile where `seconds` is the median of a stream. Without `seconds` it
    was not measured: `note` says why, and `beyond` is what it would have taken at least (infinity:
    it cannot do it).
    """

    seconds: float | None
    answers: int | None = None
    note: str = ""
    tail: float | None = None
    beyond: float | None = None

    def __str__(self) -> str:
        if self.seconds is None:
            return self.note
        return duration(self.seconds) + (
            f" / {duration(self.tail)}" if self.tail is not None else ""
        )


def too_late(limit: float) -> Sample:
    """What is shown of a peer that was stopped at its time limit."""
    return Sample(None, None, f"> {limit:g} s", beyond=limit)


def stream_of(times: Sequence[float], answers: int | None = None) -> Sample:
    """p50 and p99 of a stream of goals."""
    if not times:
        return Sample(None, answers, "no goal in time")
    return Sample(percentile(times, 0.5), answers, tail=percentile(times, 0.99))


def quieter(one: Sample, other: Sample) -> Sample:
    """The lower p50 and the lower p99 of two runs of the same stream."""
    if one.seconds is None or other.seconds is None or one.tail is None or other.tail is None:
        return other if one.seconds is None else one
    return Sample(min(one.seconds, other.seconds), one.answers, tail=min(one.tail, other.tail))


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    `repeats` of each evaluation, none begun after `seconds`; a single evaluation of a peer is
    stopped at `limit`; a stream ends after `stream` seconds. `rows`, if not empty, is a part of the
    names of the rows to measure, for workloads that can leave out others.
    """

    small: bool = False
    repeats: int = 5
    seconds: float = 2.0
    limit: float = 3.0
    stream: float = 4.0
    rows: str = ""

    def pick(self, full: int, small: int) -> int:
        """The size for this effort."""
        return small if self.small else full


SHORT = 0.002
"""Seconds; an evaluation that takes less is repeated AGAIN times, of ours and of every peer."""

AGAIN = 10

FULL = Effort()
SMALL = Effort(small=True, repeats=2, seconds=0.5, limit=3.0, stream=1.0)


def median_of(
    call: Callable[[], int],
    effort: Effort,
    guard: Callable[[], AbstractContextManager[object]] = nullcontext,
    *,
    from_nothing: bool = False,
) -> Sample:
    """The median CPU time of `call`, which returns its number of answers; `guard` is entered
    outside the clock.

    A short evaluation is made several times more, whose mean counts: by itself it would show what
    the caches had forgotten. With `from_nothing` it is not: the first evaluation makes the plans
    too.
    """
    times: list[float] = []
    counts = set()
    started = time.monotonic()
    while len(times) < effort.repeats and (
        not times or time.monotonic() - started < effort.seconds
    ):
        with collector_off(), guard():
            start = time.process_time_ns()
            counts.add(call())
            seconds = (time.process_time_ns() - start) / 1e9
            if seconds < SHORT and not from_nothing:
                start = time.process_time_ns()
                for _ in range(AGAIN):
                    call()
                seconds = (time.process_time_ns() - start) / 1e9 / AGAIN
            times.append(seconds)
    if len(counts) > 1:
        raise AssertionError(f"the same evaluation had {sorted(counts)} answers")
    return Sample(statistics.median(times), counts.pop())


class collector_off:  # noqa: N801
    """The cycle collector stands still inside."""

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *exc: object) -> None:
        gc.enable()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def duration(seconds: float) -> str:
    """Seconds for people, three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1 or unit == "µs":
            return (
                f"{seconds * scale:.3g} {unit}"
                if seconds * scale < 1000
                else f"{seconds * scale:,.0f} {unit}"
            )
    raise AssertionError
