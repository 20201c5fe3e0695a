"""The `kbcore` command: CPU time of whole commands for a server, beside an interpreter that imports
click alone.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from http_routes import HOST, Server
from measure import Effort, Sample, duration
from table import Row

MAX_SECONDS = 0.2
"""CPU time that a command may take."""

BARE = ["-c", "pass"]
CLICK = ["-c", "import click"]
COMMANDS = (
    ("tell", "parent(ann, bob)"),
    ("teach", "anc(?x, ?y) :- parent(?x, ?y)"),
    ("ask", "anc(ann, ?who)"),
    ("ask", "--table", "anc(?x, ?y), parent(?x, ?y)"),
    ("query", "parent(?x, ?y)"),
    ("explain", "anc(ann, ?who)"),
    ("predicates",),
    ("rules",),
    ("context", "--goal", "anc(ann, ?who)"),
    ("status",),
    ("memory", "salient"),
    ("load", "{file}"),
    ("dump",),
    ("forget", "parent(zoe, ?who)"),
    ("--help",),
)


def cpu_seconds(arguments: list[str], environ: dict[str, str]) -> float:
    """CPU time, of user and system, of an interpreter with these arguments; raises if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(effort: Effort, peers: object) -> Iterator[Row]:
    """Each command in turn, some rounds, beside the same interpreter without kbcore in the same
    round.
    """
    rounds = 1 if effort.small else 7
    with tempfile.TemporaryDirectory(prefix="kbcore-bench-") as folder:
        file = Path(folder, "facts.kb")
        file.write_text("parent(bob, cid).\nold(?x) :- parent(?x, ?y), parent(?y, ?_z).\n")
        server = Server(f"{folder}/data")
        environ = {**os.environ, "KBCORE_URL": f"http://{HOST}:{server.port}"}
        lines = [[part.format(file=file) for part in command] for command in COMMANDS]
        programs = [BARE, CLICK, *(["-m", "kbserver.cli", *line] for line in lines)]
        times: list[list[float]] = [[] for _ in programs]
        try:
            for _ in range(rounds):
                for program, found in zip(programs, times, strict=True):
                    found.append(cpu_seconds(program, environ))
        finally:
            server.close()
    bare, click, *ours = map(statistics.median, times)
    yield Row("commands", "python -c pass", None, Sample(bare), section="commands")
    yield Row("commands", "import click", None, Sample(click), section="commands")
    for command, seconds in zip(COMMANDS, ours, strict=True):
        size = " ".join(part for part in command[:2] if part.isalpha() or part.startswith("--"))
        yield Row(
            "commands",
            size,
            None,
            Sample(seconds),
            ratio=f"{seconds / click:.1f} × import click",
            floor=f"≤ {duration(MAX_SECONDS)}",
            met=seconds <= MAX_SECONDS,
            section="commands",
        )
