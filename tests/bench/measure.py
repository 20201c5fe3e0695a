"""Timing and the table: the only place that looks at a clock or prints."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

PEERS = ("sqlite", "duckdb", "swipl")


class Skipped(Exception):
    """A peer that cannot do a workload here; the text goes into its column."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds for one evaluation (None: not measured, `note` says why) and how many answers it had."""

    seconds: float | None
    answers: int | None = None
    note: str = ""

    def __str__(self) -> str:
        return self.note if self.seconds is None else duration(self.seconds)


@dataclass(slots=True)
class Row:
    """One line of the table. `ratio` is worked out from the best peer unless it is given."""

    workload: str
    size: str
    answers: int | None
    ours: Sample | str
    peers: dict[str, Sample] = field(default_factory=dict)
    named: Sample | None = None
    ratio: str = ""
    wrong: str = ""

    def compare(self) -> None:
        """Work out the ratio, and note a peer that has other answers than we have."""
        counts = {name: sample.answers for name, sample in self.peers.items() if sample.answers is not None}
        if self.named is not None and self.named.answers is not None:
            counts["ours, named"] = self.named.answers
        other = {name: count for name, count in counts.items() if count != self.answers}
        if other and not self.wrong:
            self.wrong = f"{self.workload} {self.size}: {self.answers} answers, but {other}"
        times = [(sample.seconds, name) for name, sample in self.peers.items() if sample.seconds]
        if times and not self.ratio and isinstance(self.ours, Sample) and self.ours.seconds:
            best, name = min(times)
            self.ratio = f"{best / self.ours.seconds:.3g} ({name})"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: `repeats` of each evaluation, none begun after `seconds`; a peer is stopped at `limit`."""

    small: bool = False
    repeats: int = 5
    seconds: float = 10.0
    limit: float = 30.0

    def pick(self, full: int, small: int) -> int:
        """The size for this effort."""
        return small if self.small else full


FULL = Effort()
SMALL = Effort(small=True, repeats=2, seconds=0.5, limit=5.0)


def median_of(call: Callable[[], int], effort: Effort, before: Callable[[], object] = lambda: None) -> Sample:
    """The median CPU time of `call`, which returns its number of answers; `before` runs outside the clock."""
    times: list[float] = []
    counts = set()
    started = time.monotonic()
    while len(times) < effort.repeats and (not times or time.monotonic() - started < effort.seconds):
        before()
        with collector_off():
            start = time.process_time_ns()
            counts.add(call())
            times.append((time.process_time_ns() - start) / 1e9)
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
            return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:,.0f} {unit}"
    raise AssertionError


def table(rows: Sequence[Row]) -> str:
    """The table: numbers to the right, as wide as it needs."""
    head = ["workload", "size", "answers", "ours", "named", *PEERS, "ratio"]
    lines = [head]
    for row in rows:
        cells = [row.workload, row.size, "" if row.answers is None else f"{row.answers:,}", str(row.ours)]
        cells.append("" if row.named is None else str(row.named))
        cells += [str(row.peers.get(name, "")) for name in PEERS]
        lines.append([*cells, row.ratio])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    shown = []
    for number, line in enumerate(lines):
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        shown.append("  ".join(cells).rstrip())
        if number == 0:
            shown.append("  ".join("-" * width for width in widths))
    return "\n".join(shown)
