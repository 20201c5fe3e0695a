"""A closure on Spark: the time of each round, and the loss of an executor on the way.

    python tests/bench/spark.py [--nodes 5000] [--master 'local-cluster[2,1,2048]'] [--kill-round 3]

It writes the edges of a random graph (five for each node, seed 1) as Parquet, evaluates the
closure, and prints the seconds of each round, their median after the first, and the number of
pairs. With `--kill-round` one executor is killed when that round ends. `--engine duckdb` and
`--engine memory` evaluate the same for comparison.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import itertools

import graphs
from programs import open_without_tables

from kbcore.bulk.job import plan_job, read_goal, read_rules
from kbcore.bulk.run import RunOptions, run_job
from kbplugins.bulk_duckdb import DuckDBDatabase

RULES = """
reach(?x, ?y) :- edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).
"""
GOAL = "reach(?x, ?y)"
EXECUTOR = b"CoarseGrainedExecutorBackend"


def executors():
    """Return the process ids of the executors on this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if EXECUTOR in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return sorted(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--master", default="local-cluster[2,1,2048]")
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--kill-round", type=int, default=0)
    parser.add_argument("--engine", choices=("spark", "duckdb", "memory"), default="spark")
    options = parser.parse_args()
    edges = graphs.scattered(options.nodes, 5 * options.nodes, 1)
    if options.engine == "memory":
        with open_without_tables({"edge": edges}, RULES) as kb:
            begun = time.perf_counter()
            answers = kb.ask(GOAL).count()
            print(f"{answers:,} pairs in memory: {time.perf_counter() - begun:.2f} s")
        return
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder) / "facts"
        facts.mkdir()
        import duckdb

        with duckdb.connect() as db:
            columns = [list(column) for column in zip(*edges, strict=True)]
            db.execute(
                "CREATE TABLE e AS SELECT unnest(?::TEXT[]) AS x, unnest(?::TEXT[]) AS y", columns
            )
            db.execute(f"COPY e TO '{facts / 'edge.parquet'}' (FORMAT parquet)")
        job = plan_job(read_rules(RULES, "closure"), read_goal(GOAL), facts)
        ends = []

        def report(title, round_, rows):
            ends.append(time.perf_counter())
            print(f"round {round_}: {rows:,} rows", flush=True)
            if options.kill_round and round_ == options.kill_round and (pids := executors()):
                os.kill(pids[0], signal.SIGKILL)
                print(f"killed executor {pids[0]}", flush=True)

        if options.engine == "spark":
            from kbplugins.bulk_spark import SparkDatabase

            database, memory = SparkDatabase(), None
            settings = {
                "spark.master": options.master,
                "spark.executor.memory": options.memory,
                "spark.executor.cores": "1",
            }
        else:
            database, memory, settings = DuckDBDatabase(), "300MB", {}
        begun = time.perf_counter()
        result = run_job(
            job,
            database,
            Path(folder) / "out",
            RunOptions(memory, settings=settings, report=report),
        )
        whole = time.perf_counter() - begun
    rounds = [after - before for before, after in itertools.pairwise(ends)]
    print("seconds of the rounds after the first:", " ".join(f"{each:.2f}" for each in rounds))
    if rounds:
        print(f"median {statistics.median(rounds):.2f} s, most {max(rounds):.2f} s")
    print(f"{result.answers:,} pairs, {whole:.1f} s in all")


if __name__ == "__main__":
    main()
