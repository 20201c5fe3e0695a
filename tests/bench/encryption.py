"""The cost of encryption: durable commits a second and starts with and without it, in one run.

Two nodes are open at the same time and take turns with blocks of writes; the middle ratio of the
blocks counts, so that what else the machine does falls on both. Facts go to eight tenants, chosen
with a fixed seed.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Effort
from storage import config_of, fill, start
from table import Row

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kbcore import Runtime, open_runtime
from kbcore.encryption.master_key import create_key
from kbcore.state.facts import Fact

SEED = 20_260
TENANTS = 8
BLOCK = 16
"""Facts of a block, by all writers together."""

TARGET = 1.10
"""Largest ratio of the time of durable writes that is accepted."""


def encryption(effort: Effort, peers: object = None) -> Iterator[Row]:
    """A row for each storage and number of writers, and for a start from the log."""
    blocks, facts, starts = (2, 500, 1) if effort.small else (150, 30_000, 5)
    with tempfile.TemporaryDirectory(dir=os.environ.get("KB_BENCH_DIR")) as scratch:
        key = os.path.join(scratch, "key")
        create_key(key)
        for backend in ("wal", "sqlite"):
            for writers in (1, 16):
                urls = [f"{backend}:{scratch}/{backend}-{writers}-{way}" for way in range(2)]
                with (
                    open_runtime(config_of(urls[0])) as one,
                    open_runtime(config_of(urls[1], key)) as other,
                ):
                    pairs = _compared(one, other, writers, blocks)
                yield _row(
                    f"durable writes, {backend}, {writers} writer{'s' * (writers > 1)}",
                    f"{blocks} blocks of {BLOCK} facts",
                    pairs,
                )
        pairs = []
        logs = (f"wal:{scratch}/plain", ""), (f"wal:{scratch}/sealed", key)
        for url, key_file in logs:
            fill(url, facts, key_file)
        for _ in range(starts):
            times = [start(url, facts, key_file) for url, key_file in logs]
            pairs.append((times[0], times[1]))
        yield _row("start from the log, wal", f"{facts:,} records of a fact", pairs)


def _compared(
    plain: Runtime, sealed: Runtime, writers: int, blocks: int
) -> list[tuple[float, float]]:
    chance = random.Random(SEED)
    pairs = []
    for block in range(blocks + 1):
        order = [plain, sealed] if chance.random() < 0.5 else [sealed, plain]
        tenants = [f"t{chance.randrange(TENANTS)}" for _ in range(BLOCK)]
        times = {id(node): _write(node, tenants, block, writers) for node in order}
        if block:  # the first one makes tenants and their keys
            pairs.append((times[id(plain)], times[id(sealed)]))
    return pairs


def _write(node: Runtime, tenants: list[str], block: int, writers: int) -> float:
    """Assert a fact in each tenant of a list, one by one; return the seconds."""

    def work(place: int) -> None:
        for number in range(place, len(tenants), writers):
            fact = Fact("observed", (f"sensor {number}", f"a reading of block {block}"))
            node.knowledge_base(tenant=tenants[number]).assert_facts([fact])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(writers)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def _row(workload: str, size: str, pairs: list[tuple[float, float]]) -> Row:
    ratio = statistics.median(sealed / plain for plain, sealed in pairs)
    row = Row(workload, size, None, f"{ratio:.3f} × plain", section="encryption")
    if workload.startswith("durable"):
        row.floor, row.met = f"≤ {TARGET} × plain", ratio <= TARGET
    return row
