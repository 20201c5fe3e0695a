"""The share of the expensive tests in a CI run: CI ends in time, and a day of runs takes all.

Functions of tests that take long are listed in `costs.txt` with their seconds, the most expensive
first. With KB_TEST_SHARE=K/N, a run takes every Nth of their items, beginning with the Kth, and
every item that is not listed. N runs with consecutive K take each item once. After K/N, the
variable names folders and files of tests, relative to `tests`, that run whole:

    KB_TEST_SHARE="0/8 durability core/test_csv.py" pytest

Without the variable, as in `make test-all`, every item runs. In the folder `tests`,

    python -m support.share

prints the value for the working tree, or nothing if every item runs; standard error has the
reasons. K follows from the hash of the newest commit. The fault tests run whole if a path of
`FAULT_PATHS` changed. Test files that changed run whole, the cheapest first, until these have taken
MAX_WHOLE_SECONDS.

`KB_TEST_COSTS=FILE pytest ...` measures: FILE becomes the list with the seconds of this run,
without functions that no longer exist.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from support.changed import FAULT_PATHS, FAULTS, KILLS, ROOT, base_of, changed_paths, git

COSTS = Path(__file__).with_name("costs.txt")

RUNS = 8
"""This number of runs with consecutive turns takes every item."""

MIN_SECONDS = 0.2
"""A function that takes less is not listed, so all of its items always run."""

MAX_WHOLE_SECONDS = 60.0
"""The seconds of test files that changed and run whole; in a larger change, the share is taken of
the others.
"""


class Share(NamedTuple):
    """Every `of`-th item of the listed functions from `turn` on, and all items of `whole`: the
    beginnings of their names.
    """

    turn: int
    of: int
    whole: tuple[str, ...] = ()

    def takes(self, item: str) -> bool:
        """Return True if the run takes an item, named relative to `tests`."""
        function, bracket, parameters = item.partition("[")
        rank = ranks().get(function)
        if rank is None or function.startswith(self.whole):
            return True
        return (rank + crc32((bracket + parameters).encode()) - self.turn) % self.of == 0


def read_share(text: str) -> Share:
    """Read a value of KB_TEST_SHARE; raise `ValueError` if it is malformed."""
    share, *named = text.split()
    turn, of = map(int, share.split("/"))
    if of < 1:
        raise ValueError(f"KB_TEST_SHARE={share}: the second number must be positive")
    return Share(
        turn, of, tuple(f"{name}{'::' if name.endswith('.py') else '/'}" for name in named)
    )


@cache
def costs() -> Mapping[str, float]:
    """Return the seconds of each listed function, the most expensive first."""
    rows = (line.split() for line in COSTS.read_text("utf-8").splitlines())
    return {function: float(seconds) for seconds, function in rows}


@cache
def seconds_by_file() -> Mapping[str, float]:
    """Return the seconds that the listed functions of each test file take."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for function, cost in costs().items():
        seconds[function.partition("::")[0]] += cost
    return seconds


@cache
def ranks() -> Mapping[str, int]:
    """Return the place of each listed function. Turns by place make shares that take about the same
    time.
    """
    return {function: rank for rank, function in enumerate(costs())}


def relative(item: str) -> str:
    """Return the name of an item relative to `tests`, wherever pytest was started."""
    return item.removeprefix("tests/")


def summary(left_out: Iterable[str], total: int) -> str:
    """Return a line that says how many items of which files a run leaves out."""
    files = Counter(item.partition("::")[0] for item in left_out)
    named = ", ".join(f"{file} {count}" for file, count in sorted(files.items()))
    return f"left out {sum(files.values())} of {total} items, whose turn is in another run: {named}"


def write_costs(path: Path, seconds: Mapping[str, float]) -> None:
    """Write the list of costs with the seconds of functions that were measured."""
    known = {function: cost for function, cost in costs().items() if _exists(function)}
    rows = sorted(((cost, name) for name, cost in {**known, **seconds}.items()), reverse=True)
    lines = [f"{cost:.1f} {name}\n" for cost, name in rows if cost >= MIN_SECONDS]
    path.write_text("".join(lines), encoding="utf-8")


def _exists(function: str) -> bool:
    file, _, name = function.partition("::")
    path = ROOT / "tests" / file
    return path.is_file() and f"def {name.split('::')[-1]}(" in path.read_text("utf-8")


def whole_tests(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the tests that run whole for changed paths, relative to `tests`, and the reasons."""
    changed = sorted(paths)
    whole: list[str] = []
    reasons: list[str] = []
    faults = [path for path in changed if path.startswith(FAULT_PATHS)]
    if faults:
        whole += [FAULTS, *KILLS]
        reasons.append(f"the fault tests run whole, as {faults[0]} changed: {' '.join(whole)}")
    files = {relative(path) for path in changed if path.startswith("tests/")} & {*seconds_by_file()}
    seconds = 0.0
    shared: list[str] = []
    for file in sorted(files, key=lambda file: (seconds_by_file()[file], file)):
        seconds += seconds_by_file()[file]
        (whole if seconds <= MAX_WHOLE_SECONDS else shared).append(file)
    if files - {*shared}:
        reasons.append(f"run whole, as they changed: {' '.join(sorted(files - {*shared}))}")
    if shared:
        reasons.append(
            "changed too, but take a share, as those that run whole already take "
            f"{MAX_WHOLE_SECONDS:.0f} s: {' '.join(sorted(shared))}"
        )
    return whole, reasons


def chosen_share(environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the value of KB_TEST_SHARE for the working tree, and the reasons; no value if every
    item runs.
    """
    base, reason = base_of(environ)
    if base is None:
        return "", [f"every item of the tests runs: {reason}"]
    head = git("rev-parse", "HEAD").strip()
    turn = int(head, 16) % RUNS
    whole, reasons = whole_tests(changed_paths(base))
    first = f"of {len(costs())} expensive tests, one item in {RUNS} runs, by the hash of commit {head[:8]}"
    return " ".join([f"{turn}/{RUNS}", *whole]), [first, *reasons]


if __name__ == "__main__":
    value, lines = chosen_share(os.environ)
    print(*lines, sep="\n", file=sys.stderr)
    print(value)
