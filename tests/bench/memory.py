"""Memory upkeep through the core, the durable log on: the most salient of many facts, and decay
that evicts a tenth of them.

Beside each stands a plain pass over the columns that salience is worked out from, as many bytes in
memory used before.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace

from measure import Effort, Sample, collector_off, median_of
from scopes import CELL, HOUR, TOP, compared, passed
from table import Row

from kbcore import Config, Runtime, open_runtime
from kbcore.clock import ManualClock
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.facts import FactRows
from kbplanner.engine.backend import Attribute

START = 1_700_000_000_000
BATCH = 20_000
COLUMNS = 5
"""Creation, last access, accesses, priority and confidence: what salience reads of a fact."""

THRESHOLD = 0.1
"""Facts that fade have a confidence of 0.01, so their salience is below this, and that of all
others above.
"""


def memory(effort: Effort, peers: object = None) -> Iterator[Row]:
    """Facts of one relation, every cell of each set; a tenth of them fade."""
    count = effort.pick(1_000_000, 5000)
    weak, size = count // 10, f"{count:,}"
    with tempfile.TemporaryDirectory() as scratch:
        config = replace(
            Config(), storage_dir=f"{scratch}/kb", storage_backend="wal", min_free_mb=0
        )
        with open_runtime(config, clock=ManualClock(START)) as runtime:
            kb = runtime.knowledge_base()
            _filled(kb, runtime, count, weak)
            plain = passed(COLUMNS * CELL * count, effort)
            best = median_of(lambda: len(kb.salient(limit=TOP)), effort)
            yield compared(
                f"top {TOP} by salience, through the core",
                size,
                best,
                plain,
                5,
                "memcmp of its cells",
            )
            dry = median_of(
                lambda: kb.decay(THRESHOLD, dry_run=True).evicted, Effort(effort.small, 1, 0)
            )
            if dry.answers != weak:
                raise AssertionError(f"{dry.answers} facts would fade, not {weak}")
            yield _beside(Row(f"decay, dry run, of {weak:,}", size, weak, dry), dry.seconds, plain)
            with collector_off():
                began, cpu = time.monotonic(), time.process_time()
                gone = kb.decay(THRESHOLD)
                cpu, wall = time.process_time() - cpu, time.monotonic() - began
            row = Row(f"decay that evicts {weak:,}", size, gone.evicted, Sample(cpu, gone.evicted))
            if gone.evicted != weak:
                row.wrong = f"{row.workload}: {gone.evicted} went"
            yield _beside(row, cpu, plain, f", {wall:.3g} s wall, {len(gone.atoms):,} listed")


def _beside(row: Row, seconds: float | None, plain: Sample, more: str = "") -> Row:
    if seconds is None or plain.seconds is None:
        raise AssertionError("both were measured")
    row.ratio = f"{seconds / plain.seconds:,.0f} × memcmp of its cells ({plain}){more}"
    return row


def _filled(kb: TenantKB, runtime: Runtime, count: int, weak: int) -> None:
    """Facts told through the log; their cells are then set in place, a million being too many."""
    draw = random.Random(41)
    for first in range(0, count, BATCH):
        args = [
            text
            for n in range(first, min(first + BATCH, count))
            for text in (f"a{n % 1000}", f"b{n}")
        ]
        kb.assert_rows([FactRows("saw", 2, args)])
    tenant = runtime.read_tenant("default", "default")
    with tenant.lock.write():
        (stored,) = tenant.partition(None).relations()
        ids = stored.relation.match([0, 0])[1]
        faded = set(draw.sample(range(count), weak))
        stored.relation.set_attribute(
            Attribute.CREATED_AT, ids, [START - draw.randrange(10 * HOUR) for _ in ids]
        )
        stored.relation.set_attribute(
            Attribute.LAST_ACCESS, ids, [START - draw.randrange(HOUR) for _ in ids]
        )
        stored.relation.set_attribute(
            Attribute.ACCESSES, ids, [draw.choice((1, 1, 1, 2, 5, 40)) for _ in ids]
        )
        stored.relation.set_attribute(Attribute.PRIORITY, ids, [draw.random() for _ in ids])
        stored.relation.set_attribute(
            Attribute.CONFIDENCE, ids, [0.01 if n in faded else 1.0 for n in range(count)]
        )
