"""Transactions: 32 committers of ten writes each over the durable log, and how many commits share a
sync of the disk.

On the disk there is, and on one whose sync takes 3 ms longer. In one process, through the core:
what is measured is the write path, not HTTP.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from http_routes import sync_rate
from measure import Effort
from slow_disk import SlowDisk, wait
from table import Row

from kbcore import Config, Runtime, open_runtime
from kbcore.reason.aggregate import AggregateQuery
from kbcore.state.facts import Fact

COMMITTERS = 32
OPERATIONS = 10
SLOW_MS = 3.0


def transactions(effort: Effort, peers: object = None) -> Iterator[Row]:
    """A row for each disk."""
    seconds = 0.2 if effort.small else 3.0
    for ms in (0.0, SLOW_MS):
        with tempfile.TemporaryDirectory() as scratch:
            backend = "slow" if ms else "wal"
            config = replace(
                Config(), storage_dir=f"{scratch}/kb", storage_backend=backend, min_free_mb=0
            )
            single = sync_rate(scratch, seconds / 3, lambda ms=ms: wait(ms / 1000))  # type: ignore[misc]
            with open_runtime(config, plugins=[SlowDisk(ms)] if ms else []) as runtime:
                commits, taken = commit_all(runtime, seconds)
                batches = runtime.system.committer.batches
            rate, shared = commits / taken, commits / batches
            disk = f"a sync of {ms:g} ms" if ms else "this disk"
            name = f"{COMMITTERS} committers of {OPERATIONS} writes, {disk}"
            row = Row(
                name,
                f"{commits:,} commits",
                None,
                f"{rate:,.0f} /s",
                floor="≥ 5 commits a sync" if ms else "",
            )
            row.ratio = f"{shared:.3g} commits a sync, {rate / single:.3g} × the {single:,.0f} single syncs/s"
            if ms:
                row.met = shared >= 5
            yield row


def commit_all(runtime: Runtime, seconds: float) -> tuple[int, float]:
    """Commit from all threads for a while; how many commits, in how many seconds."""
    counts = [0] * COMMITTERS
    end = time.monotonic() + seconds

    def work(place: int) -> None:
        while time.monotonic() < end:
            id = runtime.begin()
            for number in range(OPERATIONS):
                with runtime.in_transaction("default", "default", id) as kb:
                    kb.assert_facts([Fact("seen", (f"n{place}", f"{counts[place]}", str(number)))])
            with runtime.in_transaction("default", "default", id) as kb:
                kb.commit()
            counts[place] += 1

    started = time.monotonic()
    threads = [threading.Thread(target=work, args=(place,)) for place in range(COMMITTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.monotonic() - started
    stored = runtime.knowledge_base().aggregate(AggregateQuery("seen", "COUNT")).matched
    if stored != sum(counts) * OPERATIONS:
        raise AssertionError(f"{stored} facts of {sum(counts)} commits")
    return sum(counts), taken


if __name__ == "__main__":
    raise SystemExit(f"run {Path(__file__).with_name('run.py').name} --only transactions")
