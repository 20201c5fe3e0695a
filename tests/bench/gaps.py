"""Gaps between two turns of other requests while one request is served in process, by stack.

`python tests/bench/gaps.py PATH FIELD --rules N` sends N rules; `--text FILE` sends the content of a
file. Prints the CPU seconds, the longest gap, and the stacks that a second thread found where a gap
was longer than `--over` milliseconds.
"""

from __future__ import annotations

import argparse
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.http import serve_in_memory

from kbplanner.syntax.parser import load_grammar
from kbserver.process.garbage_collection import (
    GENERATION_0_OBJECTS,
    GENERATION_1_RUNS,
    NO_GENERATION_2,
)

SAMPLE_SECONDS = 0.001
FRAMES = 6
"""Innermost functions of a stack that are shown."""


class Gaps:
    """The CPU times between two calls, which other processes do not lengthen; a thread samples the
    stacks where the elapsed time is long.
    """

    def __init__(self, over_seconds: float) -> None:
        self._over = over_seconds
        self._main = threading.get_ident()
        self._last = time.perf_counter()
        self._worked = time.thread_time()
        self._ended = threading.Event()
        self.longest = 0.0
        self.turns = 0
        self.stacks: Counter[tuple[str, ...]] = Counter()

    def __call__(self) -> None:
        """Take a turn."""
        self.longest = max(self.longest, time.thread_time() - self._worked)
        self.turns += 1
        self._last = time.perf_counter()
        self._worked = time.thread_time()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the gaps in this block."""
        thread = threading.Thread(target=self._sample, daemon=True)
        self._last, self._worked = time.perf_counter(), time.thread_time()
        thread.start()
        try:
            yield
        finally:
            self()
            self._ended.set()
            thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            if time.perf_counter() - self._last > self._over:
                self.stacks[_shown(sys._current_frames()[self._main])] += 1


def _shown(frame: FrameType | None) -> tuple[str, ...]:
    names = []
    while frame is not None:
        code = frame.f_code
        if "kbplanner" in code.co_filename or "kbcore" in code.co_filename:
            names.append(f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(names[:FRAMES])


def gaps_of(path: str, body: Any, over_seconds: float) -> tuple[Gaps, float, int]:
    """Return the gaps of one request, its CPU seconds, and the status of the answer."""
    with serve_in_memory() as served:
        served.client.post("/teach", {"text": "known(?x) :- told(?x).\n"})
        gaps = Gaps(over_seconds)
        served.runtime.yield_now = gaps
        began = time.thread_time()
        with gaps.measured():
            answer = served.client.post(path, body)
        return gaps, time.thread_time() - began, answer.status_code


def main() -> None:
    """Measure one request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("field")
    parser.add_argument("--rules", type=int, nargs="+", default=[125, 500, 2000])
    parser.add_argument("--text")
    parser.add_argument("--over", type=float, default=20.0)
    options = parser.parse_args()
    load_grammar()
    gc.freeze()
    gc.set_threshold(GENERATION_0_OBJECTS, GENERATION_1_RUNS, NO_GENERATION_2)
    texts = {
        f"{count} rules": "".join(f"h{i}(?x) :- q(?x, a{i}).\n" for i in range(count))
        for count in options.rules
    }
    if options.text:
        texts = {options.text: Path(options.text).read_text()}
    for name, text in texts.items():
        gaps, seconds, status = gaps_of(options.path, {options.field: text}, options.over / 1000)
        print(
            f"{options.path} {name}: {status}, {seconds:.2f} s CPU, {gaps.turns} turns, "
            f"longest gap {gaps.longest * 1000:.0f} ms"
        )
        for stack, count in gaps.stacks.most_common(12):
            print(f"  {count:5}  {' < '.join(stack)}")


if __name__ == "__main__":
    main()
