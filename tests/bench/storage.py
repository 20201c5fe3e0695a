"""The storages beside each other: durable commits a second of one writer and of 32, and recovery,
in one run.

In one process, through the core. Rounds alternate between the storages; the middle one counts, and
its ratio to `wal`. PostgreSQL is the server that answers (KB_TEST_POSTGRES_URL or the default
socket), else one of our own that syncs.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from measure import Effort
from table import Row

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.postgres import OwnServer, answering, schema

from kbcore import Config, Runtime, open_runtime
from kbcore.durable.records import CHANGES, VERSION, encode_changes, stamp
from kbcore.plug.manager import Plugins
from kbcore.reason.aggregate import AggregateQuery
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact

ROUNDS = 5


def storages(effort: Effort, peers: object = None) -> Iterator[Row]:
    """A row for each measure and storage."""
    seconds, facts, rounds = (0.05, 500, 1) if effort.small else (1.0, 100_000, ROUNDS)
    with ExitStack() as stack:
        scratch = stack.enter_context(
            tempfile.TemporaryDirectory(dir=os.environ.get("KB_BENCH_DIR"))
        )
        urls = {"wal": f"wal:{scratch}/wal", "sqlite": f"sqlite:{scratch}/kb.sqlite"}
        server = _server(stack)
        if server:
            urls["postgres"] = stack.enter_context(schema(server))
            other = stack.enter_context(schema(server))
        for writers in (1, 32):
            rates: dict[str, list[float]] = {name: [] for name in urls}
            for _ in range(rounds):
                for name, url in urls.items():
                    with open_runtime(config_of(url)) as runtime:
                        rates[name].append(commit_all(runtime, writers, seconds))
            yield from _rows(
                f"commits, {writers} writer{'s' * (writers > 1)}",
                "facts told one by one",
                rates,
                " /s",
            )
        places = {"wal": f"wal:{scratch}/recover", "sqlite": f"sqlite:{scratch}/recover.sqlite"}
        if server:
            places["postgres"] = other
        for url in places.values():
            fill(url, facts)
        times: dict[str, list[float]] = {name: [] for name in places}
        for _ in range(rounds):
            for name, url in places.items():
                times[name].append(start(url, facts))
        yield from _rows("start from the log", f"{facts:,} records of a fact", times, " s")


def _rows(workload: str, size: str, found: dict[str, list[float]], unit: str) -> Iterator[Row]:
    middle = {name: statistics.median(values) for name, values in found.items()}
    for name, value in middle.items():
        shown = f"{value:,.0f}{unit}" if unit == " /s" else f"{value:.2f}{unit}"
        row = Row(f"{workload}, {name}", size, None, shown, section="storage")
        row.ratio = "" if name == "wal" else f"{value / middle['wal']:.3g} × wal"
        yield row


def _server(stack: ExitStack) -> str | None:
    try:
        found = answering()
        if found is None:
            own = OwnServer(fsync=True)
            stack.callback(own.remove)
            found = own.url
    except pytest.skip.Exception as reason:
        print(f"storage: postgres is left out: {reason}", file=sys.stderr)
        return None
    return found


def config_of(url: str, key_file: str = "") -> Config:
    """Settings of a node on a storage, encrypted if there is a key file."""
    settings = {"STORAGE_URL": url, "ENCRYPTION_KEY_FILE": key_file}
    return Config(min_free_mb=0, snapshot_log_mb=1 << 20).updated(settings)


def commit_all(runtime: Runtime, writers: int, seconds: float) -> float:
    """Tell facts from all threads for a while; how many a second."""
    counts = [0] * writers
    begun = time.monotonic()
    kb = runtime.knowledge_base()
    before = kb.aggregate(AggregateQuery("seen", "COUNT")).matched

    def work(place: int) -> None:
        while time.monotonic() < begun + seconds:
            kb.assert_facts([Fact("seen", (f"{begun}", f"{place}", f"{counts[place]}"))])
            counts[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.monotonic() - begun
    if kb.aggregate(AggregateQuery("seen", "COUNT")).matched != before + sum(counts):
        raise AssertionError("an asserted fact is missing")
    return sum(counts) / taken


def fill(url: str, facts: int, key_file: str = "") -> None:
    """A log of as many records, each of one fact, and no snapshot."""
    store = Plugins(config_of(url, key_file)).open_storage()
    for begin in range(0, facts, 1000):
        told = [Fact("p", (f"a{n}", f"b{n % 97}")) for n in range(begin, min(begin + 1000, facts))]
        sets = [
            encode_changes(ChangeSet("default", "default", (AssertFacts((fact,)),)))
            for fact in told
        ]
        store.append([(CHANGES, VERSION, stamp(each, 1_700_000_000_000)) for each in sets])
        store.sync()
    store.close()


def start(url: str, facts: int, key_file: str = "") -> float:
    """Seconds until a knowledge base is ready, which then has all facts; the log stays as it is."""
    begun = time.monotonic()
    runtime = open_runtime(config_of(url, key_file))
    taken = time.monotonic() - begun
    found = (
        runtime.recovered.records,
        runtime.knowledge_base().aggregate(AggregateQuery("p", "COUNT")).matched,
    )
    runtime.system.snapshots.note_replayed(0)  # so that the stop takes no snapshot
    runtime.close()
    if found != (facts, facts):
        raise AssertionError(f"recovered {found} of {facts}")
    return taken


if __name__ == "__main__":
    raise SystemExit(f"run {Path(__file__).with_name('run.py').name} --only storage")
