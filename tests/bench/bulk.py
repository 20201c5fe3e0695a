"""A closure in memory and as a bulk run over Parquet files: bulk runs pay only beyond memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import graphs
from measure import Effort, Sample, median_of
from prepared import Prepared
from programs import Peer, open_without_tables
from table import Row

from kbcore.bulk.job import plan_job, read_goal, read_rules
from kbcore.bulk.run import RunOptions, run_job
from kbplugins.bulk_duckdb import DuckDBDatabase

RULES = """
reach(?x, ?y) :- edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).
"""
GOAL = "reach(?x, ?y)"
MEMORY_LIMIT = "300MB"


def bulk_runs(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """CPU time of the closure of a random graph; answers of a bulk run are written as Parquet."""
    import duckdb

    nodes = effort.pick(2000, 60)
    edges = graphs.scattered(nodes, 2 * nodes, 1)
    size = f"{nodes:,}/{len(edges):,}"
    with open_without_tables({"edge": edges}, RULES) as kb:
        ours = median_of(Prepared(kb, GOAL).count, effort)
    yield Row("closure, in memory", size, ours.answers, ours, section="bulk")
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder) / "facts"
        facts.mkdir()
        with duckdb.connect() as db:
            columns = [list(column) for column in zip(*edges, strict=True)]
            db.execute(
                "CREATE TABLE e AS SELECT unnest(?::TEXT[]) AS x, unnest(?::TEXT[]) AS y", columns
            )
            db.execute(f"COPY e TO '{facts / 'edge.parquet'}' (FORMAT parquet)")
        job = plan_job(read_rules(RULES, "closure"), read_goal(GOAL), facts)
        start = time.process_time()
        result = run_job(job, DuckDBDatabase(), Path(folder) / "out", RunOptions(MEMORY_LIMIT))
        bulk = Sample(time.process_time() - start, result.answers)
    row = Row(f"the same as a bulk run, {MEMORY_LIMIT}", size, result.answers, bulk, section="bulk")
    row.ratio = f"{(bulk.seconds or 0.0) / (ours.seconds or 1.0):.3g} × in memory"
    if result.answers != ours.answers:
        row.wrong = f"closure {size}: {ours.answers} answers, but {result.answers} in a bulk run"
    yield row
