"""Measure memory systems: `python run.py [--small] [--systems NAMES] [--output FILE]`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from dependable_memory import report
from dependable_memory.generate import SIZES, cases
from dependable_memory.interface import NotAvailable
from dependable_memory.model import dump
from dependable_memory.public_sets import READERS, DataError, PublicSet, measure
from dependable_memory.runner import run
from dependable_memory.searching import Searching
from dependable_memory.systems.registry import SYSTEMS
from dependable_memory.words import EXAMPLES, SCORED

PUBLIC_TOKENS = 1000
"""Tokens of a window for questions of public sets."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(description="Benchmark of memories in which things change.")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="names, comma-separated")
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--small", action="store_true", help="the size small, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=(EXAMPLES, SCORED), default=SCORED, help="sentences")
    parser.add_argument(
        "--output", type=Path, help="results file; rows of other systems on the same data stay"
    )
    parser.add_argument("--markdown", type=Path, help="page whose tables are replaced")
    parser.add_argument("--from", dest="source", type=Path, help="results file, instead of a run")
    parser.add_argument("--data", type=Path, help="write the cases as JSON lines and stop")
    for public in READERS:
        parser.add_argument(f"--{public}", type=Path, metavar="PATH", help="a public set instead")
    options = parser.parse_args(argv)
    size = "small" if options.small else options.size
    names = options.systems.split(",")
    for name in names:
        if name not in SYSTEMS:
            parser.error(f"--systems: {name!r} is unknown; choose from {', '.join(SYSTEMS)}")
    for public, read in READERS.items():
        if getattr(options, public):
            try:
                print(_public(names, list(read(getattr(options, public)))))
            except (DataError, OSError) as error:
                parser.error(str(error))
            return 0
    if options.data:
        options.data.write_text(dump(cases(options.seed, size, options.part)), encoding="utf-8")
        return 0
    if options.source:
        content = json.loads(options.source.read_text(encoding="utf-8"))
    else:
        content = _measure(names, options.seed, size, options.part)
        if options.output:
            content = report.with_rows_of(content, options.output)
    text = f"{report.heading(content)}\n\n{report.tables(content)}"
    print(text)
    if options.output and not options.source:
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        report.write_markdown(options.markdown, text)
    return 0


def _public(names: Sequence[str], data: Sequence[PublicSet]) -> str:
    lines = ["| system | set | task | questions | answer in window | evidence | clean |"]
    lines.append("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for name in names:
        try:
            system = SYSTEMS[name]()
        except NotAvailable as error:
            lines.append(f"| {name} | not available: {error} | | | | | |")
            continue
        if not isinstance(system, Searching):
            lines.append(f"| {name} | takes structured facts only | | | | | |")
            system.close()
            continue
        with closing(system):
            for each in data:
                for task, score in measure(system, each, PUBLIC_TOKENS).items():
                    cells = (
                        report.share(score.answered, score.answerable),
                        report.share(score.recall, score.with_evidence),
                        report.share(score.clean, score.with_excluded),
                    )
                    line = f"| {name} | {each.id} | {task} | {score.questions} |"
                    lines.append(f"{line} {' | '.join(cells)} |")
    return "\n".join(lines)


def _measure(names: Sequence[str], seed: int, size: str, part: str) -> dict[str, object]:
    made = cases(seed, size, part)
    results = []
    for name in names:
        start = time.monotonic()
        results.append(run(name, SYSTEMS[name], made))
        print(f"{name}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    data = {
        "size": size,
        "seed": seed,
        "part": part,
        "inputs": sum(len(case.inputs) for case in made),
        "questions": sum(len(case.questions) for case in made),
        "python": platform.python_version(),
    }
    return report.as_json(results, data)


if __name__ == "__main__":
    raise SystemExit(main())
