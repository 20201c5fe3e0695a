"""Bulk load of two-place facts: time, memory, restart. Each measurement in a process of its own."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import Effort, Sample, Skipped
from table import Row

BATCH = 5000
SECONDS = 600


def pairs(count: int) -> list[tuple[str, str]]:
    """Distinct pairs over a fifth as many names, in random order."""
    rng = random.Random(9)
    names = max(count // 5, 10)
    found: dict[tuple[str, str], None] = {}
    while len(found) < count:
        found[f"n{rng.randrange(names)}", f"n{rng.randrange(names)}"] = None
    return list(found)


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def megabytes(size: int) -> str:
    """Bytes for people."""
    return f"{size / 1e6:.3g} MB"


DESCRIBED = {
    "metadata": "facts with metadata",
    "confidence": "facts with a confidence",
    "keyed": "kb.tell_many with an `@key`",
    "rejecting": "kb.tell_many with an `@key`, REJECT",
    "newest": "kb.tell_many with an `@key`, NEWEST_WINS",
    "replacing": "kb.tell_many with an `@key`, NEWEST_WINS, all replaced",
    "restating": "kb.tell_many with an `@key`, NEWEST_WINS, all known",
}
"""Tasks that load other facts than plain ones, or refuse some, with their labels."""

_STRATEGIES = {
    "keyed": "KEEP_BOTH",
    "rejecting": "REJECT",
    "newest": "NEWEST_WINS",
    "replacing": "NEWEST_WINS",
    "restating": "NEWEST_WINS",
}
"""Tasks with a declared `@key`, and their conflict strategies."""

_BEFORE = {"replacing": "old", "restating": "v"}
"""Tasks whose keys have values before, and the beginnings of those values."""

Peer = Callable[["Sequence[tuple[str, str]]"], Sample]


def loading(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """In process, from a file into a folder, and started again."""
    count = effort.pick(1_000_000, 10_000)
    size = f"{count:,}"
    runs = sorted(
        (child("memory", count) for _ in range(effort.pick(3, 1))),
        key=lambda found: float(found["seconds"]),
    )
    memory = runs[len(runs) // 2]
    row = Row("load, in process", size, memory["facts"], Sample(memory["seconds"], memory["facts"]))
    rows = pairs(count)
    for name, load in peers.items():
        try:
            row.peers[name] = load(rows)
        except Skipped as why:
            row.peers[name] = Sample(None, None, str(why))
    yield row
    rate = count / memory["seconds"]
    row = Row("load, in process, rate", size, None, f"{rate / 1e3:,.0f} k/s")
    row.floor, row.met = "≥ 400 k/s", rate >= 400_000
    yield row
    tuples = min(child("tuples", count)["seconds"] for _ in range(effort.pick(3, 1)))
    row = Row("load, kb.tell_many, rate", size, None, f"{count / tuples / 1e3:,.0f} k/s")
    row.floor, row.met = "≥ 1,000 k/s", count / tuples >= 1e6
    yield row
    for task, label in DESCRIBED.items():
        seconds = min(child(task, count)["seconds"] for _ in range(effort.pick(3, 1)))
        row = Row(f"load, {label}, rate", size, None, f"{count / seconds / 1e3:,.0f} k/s")
        row.floor, row.met = "≥ 400 k/s", count / seconds >= 400_000
        yield row
    grown, engine = memory["after"] - memory["before"], memory["engine"]
    row = Row(
        "load, resident memory grown",
        size,
        None,
        megabytes(grown),
        ratio=f"{grown / count:.0f} B a fact",
    )
    if not effort.small:
        row.floor, row.met = "≤ 200 MB", grown <= 200e6
    yield row
    yield Row("load, whole process", size, None, megabytes(memory["after"]))
    yield Row(
        "load, engine memory", size, None, megabytes(engine), ratio=f"{engine / count:.0f} B a fact"
    )
    with tempfile.TemporaryDirectory(prefix="kbcore-bench-") as folder:
        source = Path(folder, "edges.csv")
        with source.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        del rows
        command = [
            sys.executable,
            "-m",
            "kbserver.cli",
            "load",
            str(source),
            "--predicate",
            "edge",
            "--quiet",
        ]
        start = time.monotonic()
        done = subprocess.run(
            [*command, "--storage-dir", f"{folder}/cli"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        seconds = time.monotonic() - start
        wrong = (
            "" if f"{count:,} facts" in done.stdout else f"kbcore load: {done.stdout} {done.stderr}"
        )
        rate = f"{count / seconds / 1e3:,.0f} k/s"
        yield Row(
            "kbcore load of a CSV file, synced, wall",
            size,
            None,
            Sample(seconds),
            ratio=rate,
            wrong=wrong,
        )
        child("crash", count, f"{folder}/log")
        for label in ("log", "snapshot"):
            found = child("restart", count, f"{folder}/log")
            row = Row(
                f"restart from the {label}",
                size,
                found["facts"],
                Sample(found["seconds"], found["facts"]),
            )
            row.ratio = f"{count / found['seconds'] / 1e3:,.0f} k/s"
            if found["facts"] != count or (found["records"] > 0) != (label == "log"):
                row.wrong = f"restart from the {label}: {found}"
            yield row


def child(task: str, count: int, folder: str = "") -> dict[str, Any]:
    """Run a task of this file in a new process."""
    command = [sys.executable, __file__, task, str(count), folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{task}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def in_child(task: str, count: int, folder: str) -> dict[str, Any]:
    """What a new process does."""
    import gc

    import kbcore
    from kbcore.config import Config
    from kbcore.state.facts import Fact

    if task == "restart":
        gc.disable()
        start = time.process_time_ns()
        kb = kbcore.open_kb(path=folder)
        seconds = (time.process_time_ns() - start) / 1e9
        facts = kb.count("edge")
        records = kb._runtime.recovered.records
        if records:
            kb._runtime.snapshot()
        kb.close()
        return {"seconds": seconds, "facts": facts, "records": records}
    config = Config(snapshot_log_mb=1 << 20)
    kb = kbcore.open_kb(path=folder, config=config) if folder else kbcore.open_kb(config=config)
    before = resident()
    seconds = 0.0
    rows: Iterator[list[Any]] = pairs_in_batches(count)
    gc.collect()
    by_tuples = task == "tuples" or task in _STRATEGIES
    if task in _STRATEGIES:
        kb.teach("@key edge(?from, ?to, _).")
        batches = enumerate(rows)
        rows = ([(*pair, f"v{number}") for pair in batch] for number, batch in batches)
    if task in _BEFORE:
        before_of = _BEFORE[task]
        for number, pairs_of in enumerate(pairs_in_batches(count)):
            kb.tell_many("edge", [(*pair, f"{before_of}{number}") for pair in pairs_of])
    if task == "rejecting":
        rows = iter([[row for batch in rows for row in batch]])  # all or none
    for batch in rows:
        given_facts: list[Any] = batch
        if not by_tuples:
            details: dict[str, Any] = {"confidence": 0.5} if task == "confidence" else {}
            given_facts = [
                Fact(
                    "edge",
                    pair,
                    **details,
                    metadata={"source": "import", "line": line} if task == "metadata" else {},
                )
                for line, pair in enumerate(batch)
            ]
        gc.disable()
        start = time.process_time_ns()
        if by_tuples:
            kb.tell_many("edge", given_facts, conflict=_STRATEGIES.get(task, "KEEP_BOTH"))
        else:
            kb.kb.assert_facts(given_facts)
        seconds += (time.process_time_ns() - start) / 1e9
        gc.enable()
    del given_facts, batch
    gc.collect()
    stored = kb.count("edge")
    engine = kb.kb._read_tenant().engine.bytes
    if folder:
        print(json.dumps({}), flush=True)
        os._exit(0)  # no snapshot: the next start has the log only
    return {
        "seconds": seconds,
        "facts": stored,
        "before": before,
        "after": resident(),
        "engine": engine,
    }


def pairs_in_batches(count: int) -> Iterator[list[tuple[str, str]]]:
    """`count` distinct pairs without keeping them: what remains in memory afterwards is the
    knowledge base.
    """
    names = max(count // 5, 10)
    rng = random.Random(10)
    order = list(range(names))
    rng.shuffle(order)
    batch = []
    for i in range(count):
        x = i % names
        batch.append((f"n{order[x]}", f"n{order[(x * 7 + (i // names) * 31 + 1) % names]}"))
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


if __name__ == "__main__":
    print(json.dumps(in_child(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
