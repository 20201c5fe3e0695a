"""Run the benchmarks and print one table: `python tests/bench/run.py [--only NAME ...] [--small]`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import access
import closures
import http_routes
import loading
import measure
from peers import find

import kbcore

Workload = Callable[[measure.Effort, dict[str, Callable]], Iterator[measure.Row]]

WORKLOADS: dict[str, tuple[Workload, str]] = {
    "closure": (closures.closure, "closures"),
    "same-generation": (closures.same_generation, "closures"),
    "proportion": (closures.proportion, ""),
    "access": (access.access, "access"),
    "loading": (loading.loading, "load"),
    "http": (http_routes.over_http, ""),
}
"""What is run, in order, and the function of a peer that does the same."""


def main() -> int:
    """Exit status 1 when answers differ or something grows that must not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--small", action="store_true", help="tiny sizes: does everything still run?")
    which = ", ".join(measure.PEERS)
    parser.add_argument("--peers", nargs="*", choices=measure.PEERS, default=measure.PEERS, metavar="NAME", help=which)
    options = parser.parse_args()
    effort = measure.SMALL if options.small else measure.FULL
    peers = find(options.peers)
    rows: list[measure.Row] = []
    for name in options.only or WORKLOADS:
        workload, function = WORKLOADS[name]
        started = time.monotonic()
        able = {peer: getattr(module, function) for peer, module in peers.items() if function and hasattr(module, function)}
        for row in workload(effort, able):
            row.compare()
            rows.append(row)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    print(f"kbcore {kbcore.__version__}, Python {platform.python_version()}, {cpu()} x {os.cpu_count()}")
    print(", ".join(f"{peer} {module.VERSION or 'not installed'}" for peer, module in peers.items()))
    print()
    print(measure.table(rows))
    wrong = [row.wrong for row in rows if row.wrong]
    for line in wrong:
        print(f"WRONG {line}", file=sys.stderr)
    return 1 if wrong else 0


def cpu() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
