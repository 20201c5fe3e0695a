"""clingo: its grounder evaluates stratified programs. Each goal in a process of its own, which can
be stopped.

As a program: `python asp.py FACTS JOB`, two files; the facts are grounded before the clock starts,
then the rules and the solving are timed. Prints `answers seconds` for each repeat.
"""

from __future__ import annotations

import gc
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measure import Effort, Sample
    from programs import Program

try:
    VERSION = version("clingo")
except PackageNotFoundError:
    VERSION = ""


def programs(program: Program, effort: Effort) -> list[Sample]:
    """Each goal's program, the nodes as integers."""
    from measure import Sample, Skipped

    if not VERSION:
        raise Skipped("not installed")
    known: dict[tuple[str, int | None], Sample] = {}
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder, "facts.lp")
        with facts.open("w") as file:
            for name, rows in program.relations.items():
                file.writelines(
                    f"{name}({','.join(arg.lstrip(ascii_lowercase) for arg in row)}).\n"
                    for row in rows
                )
        for goal in program.goals:
            key = goal.asp, goal.constant
            if key not in known:
                known[key] = evaluated(facts, goal, effort) if goal.asp else Sample(None)
    return [known[goal.asp, goal.constant] for goal in program.goals]


def evaluated(facts: Path, goal: Any, effort: Effort) -> Sample:
    """The median of what the process has printed when it ends, by itself or at the time limit."""
    from measure import Sample, too_late

    job = facts.with_name("job.json")
    job.write_text(
        json.dumps([goal.asp, goal.constant or 0, effort.repeats, effort.seconds, effort.limit])
    )
    done = subprocess.run(
        [sys.executable, __file__, str(facts), str(job)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    if not lines and done.returncode == -signal.SIGALRM:
        return too_late(effort.limit)
    if not lines:
        return Sample(None, None, f"failed: {done.stderr[-40:]}")
    counts = {int(count) for count, _ in lines}
    if len(counts) > 1:
        raise AssertionError(f"clingo had {sorted(counts)} answers")
    return Sample(statistics.median(float(seconds) for _, seconds in lines), counts.pop())


def main(facts: str, job: str) -> None:
    """Ground the facts, then the rules against the clock, then count the atoms of `goal`; again
    with a new grounder.
    """
    import clingo

    text = Path(facts).read_text()
    rules, constant, repeats, seconds, limit = json.loads(Path(job).read_text())
    spent = 0.0
    for _ in range(repeats):
        control = clingo.Control(["--warn=none", "-c", f"n={constant}"])
        control.add("facts", [], text)
        control.add("rules", [], f"{rules} #show.")
        control.ground([("facts", [])])
        gc.collect()
        signal.setitimer(
            signal.ITIMER_REAL, limit
        )  # SIGALRM ends the process: a grounder cannot be interrupted
        start = time.process_time_ns()
        control.ground([("rules", [])])
        control.solve()
        took = (
            time.process_time_ns() - start
        ) / 1e9  # grounding again each time, it cannot be repeated in place
        signal.setitimer(signal.ITIMER_REAL, 0)
        count = sum(
            sum(1 for _ in control.symbolic_atoms.by_signature("goal", arity))
            for arity in (1, 2, 3)
        )
        print(count, took, flush=True)
        spent += took
        if spent > seconds:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
