"""Changes that make a check true: three missing premises, in the access base and elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator

import access
import graphs
from measure import Effort, collector_off, stream_of
from table import Row

from kbcore.embed import EmbeddedKB

MOST_SECONDS = 0.05
RUNS = 10

RELEASE = """
release(?v) :- built(?v, ?machine), trusted(?machine), approved(?v, ?by), lead(?by), not blocked(?v).
"""


def _timed(kb: EmbeddedKB, goal: str) -> tuple[list[float], int]:
    """CPU seconds of the searches for a goal, and the number of proposals."""
    times, count = [], 0
    with collector_off():
        for _ in range(RUNS):
            start = time.process_time_ns()
            count = len(kb.how_to(goal).proposals)
            times.append((time.process_time_ns() - start) / 1e9)
    return times, count


def how_to(effort: Effort, _: object) -> Iterator[Row]:
    """A user in no group, a thing in no folder, and a ban; and a rule with few ways."""
    base = graphs.access(effort.pick(100_000, 1000), 8)
    with access.opened(base) as kb:
        kb.tell("banned(zed, plan)")
        kb.teach(RELEASE)
        kb.tell("trusted(m1). lead(ann). blocked(v1).")
        for name, goal in (
            ("access", "may(zed, read, plan)"),
            ("few ways", "release(v1)"),
        ):
            times, count = _timed(kb, goal)
            sample = stream_of(times)
            yield Row(
                f"how-to, three missing premises, {name}",
                f"{base.facts:,}",
                count,
                sample,
                floor=f"p50 below {MOST_SECONDS * 1000:g} ms of CPU",
                met=sample.seconds is not None and sample.seconds < MOST_SECONDS,
            )
