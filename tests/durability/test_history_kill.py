"""kill -9 while snapshots are saved and older ones are removed under HISTORY_DAYS: every kept
instant has its answer.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.runtimes import BASE

from kbcore import hookimpl
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.durable.retention import DAY_MS
from kbcore.errors import InvalidInput
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.operations.history.fact_history import MAX_EVENTS, FactPattern
from kbcore.operations.tenant_kb import TenantKB
from kbcore.plug.ports import KeepsHistory, LogStore
from kbcore.state.changes import AssertFacts, ChangeSet, RetractFact
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, Variable
from kbplugins.storage_wal import WalStore, WalTools

BEGIN = 1_700_000_000_000
APART = DAY_MS // 4
"""Milliseconds between two steps of a writer, by its clock."""
DAYS = 4
KEPT = DAYS * DAY_MS // APART
"""Number of steps in the time that is kept."""
FILLER = 500
"""Facts that make a snapshot so long that a kill meets one."""
MOST_SNAPSHOTS = 12
TESTS = Path(__file__).resolve().parents[1]


class ShortSegments:
    """The durable log in short files, as `short`, so that old ones are removed early."""

    @hookimpl
    def kb_storage_backends(self, config: Config) -> Mapping[str, Callable[[Config], LogStore]]:
        return {"short": lambda config: WalStore(config, segment_bytes=20_000)}


def opened(folder: Path, storage: str, clock: ManualClock) -> Runtime:
    config = replace(
        BASE,
        storage_dir=str(folder),
        min_free_mb=0,
        storage_backend=storage,
        sweep_interval_ms=0,
        history_days=DAYS,
    )
    return open_runtime(config, plugins=[ShortSegments()], clock=clock)


def instant(step: int) -> int:
    return BEGIN + step * APART


def steps(kb: TenantKB) -> list[int]:
    rows = kb.query_page(Atom("step", (Variable("x"),)))
    return sorted(int(row["args"][0]) for row in rows)


def around(step: int) -> list[int]:
    """The facts after a step: its own, and those of the two steps before it."""
    return list(range(max(step - 2, 0), step + 1))


def write_until_killed(folder: Path, storage: str, first: int) -> None:
    """Take steps from `first` on; print each when it is acknowledged, and take a snapshot after
    it.
    """
    clock = ManualClock(instant(first))
    node = opened(folder, storage, clock)
    if first == 0:
        filler = tuple(Fact("filler", (str(n),)) for n in range(FILLER))
        node.commit(ChangeSet("default", "t", (AssertFacts(filler),)))
    step = first
    while True:
        node.commit(
            ChangeSet(
                "default",
                "t",
                (
                    AssertFacts((Fact("step", (str(step),)),)),
                    RetractFact("step", (str(step - 3),), None, None),
                ),
            )
        )
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()
        node.snapshot()
        step += 1
        clock.advance(APART)


def killed(folder: Path, storage: str, first: int, count: int) -> int:
    """Kill a writer after `count` steps; return the last one that it acknowledged."""
    code = (
        "from durability.test_history_kill import *; "
        f"write_until_killed(Path({str(folder)!r}), {storage!r}, {first})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=TESTS, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(count)]
        writer.kill()
        lines += writer.stdout
    return int([line for line in lines if line.endswith("\n")][-1])


def check_answers(kb: TenantKB, last: int, now: int) -> None:
    """Ask about every kept step, what happened since the oldest one, and an instant before it."""
    oldest = kb.history_start().at
    assert oldest <= max(now - DAYS * DAY_MS, BEGIN)
    kept = [step for step in range(last + 1) if instant(step) >= oldest]
    assert {step: steps(kb.known_at(instant(step))) for step in kept} == {
        step: around(step) for step in kept
    }
    assert steps(kb.known_at(oldest)) == around((oldest - BEGIN) // APART)
    with pytest.raises(InvalidInput, match="oldest instant"):
        kb.known_at(oldest - 1)
    outcome = kb.fact_history(FactPattern("step"), limit=MAX_EVENTS, oldest_first=True)
    told = [(event.event, event.at) for event in outcome.events if event.at > oldest]
    expected = [
        (event, instant(step))
        for step in kept
        for event in ("asserted", "retracted")
        if instant(step) > oldest and (event == "asserted" or step >= 3)
    ]
    assert sorted(told) == sorted(expected)


def check_folder(folder: Path, storage: str, numbers: list[int]) -> None:
    """Nothing is stored but the named snapshots, and the log after the oldest."""
    assert len(numbers) <= MOST_SNAPSHOTS
    if storage == "short":
        report = WalTools(BASE).check(str(folder))
        assert report["sound"], report
        assert [entry["seq"] for entry in report["snapshots"]] == numbers
        assert [path.name for path in folder.rglob("*.tmp")] == []
        # A file goes when the one after it begins with the last record of the oldest snapshot.
        assert [
            entry["file"] for entry in report["segments"][1:] if entry["first"] <= numbers[0]
        ] == []
    else:
        (file,) = folder.rglob("*.sqlite")
        with sqlite3.connect(file) as db:
            assert [
                seq for (seq,) in db.execute("SELECT seq FROM snapshots ORDER BY id")
            ] == numbers
            unnamed = "SELECT count(*) FROM chunks WHERE snapshot NOT IN (SELECT id FROM snapshots)"
            assert db.execute(unnamed).fetchone() == (0,)
            assert db.execute("SELECT min(seq) FROM log").fetchone() == (numbers[0],)
        db.close()


def kill_rounds(folder: Path, storage: str, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    first = 0
    for _ in range(rounds):
        acknowledged = killed(folder, storage, first, KEPT + chance.randrange(KEPT))
        clock = ManualClock(instant(acknowledged + 1))
        with opened(folder, storage, clock) as node:
            kb = node.knowledge_base("default", "t")
            last = steps(kb)[-1]
            assert acknowledged <= last <= acknowledged + 1
            assert steps(kb) == around(last)
            check_answers(kb, last, clock.now_ms())
            # The next snapshot removes what the kill left.
            node.commit(ChangeSet("default", "u", (AssertFacts((Fact("other", ("a",)),)),)))
            node.snapshot()
            check_answers(kb, last, clock.now_ms())
            store = node.system.store
            assert isinstance(store, KeepsHistory)
            numbers = list(store.snapshot_numbers())
            node.system.committer.bytes = node.system.snapshots._at_bytes
        check_folder(folder, storage, numbers)
        first = last + 1


@pytest.mark.parametrize("storage", ["short", "sqlite"])
def test_kept_history_survives_kills(tmp_path: Path, storage: str) -> None:
    kill_rounds(tmp_path, storage, rounds=3, seed=1)


@pytest.mark.crash
@pytest.mark.parametrize("storage", ["short", "sqlite"])
def test_kept_history_survives_thirty_kills(tmp_path: Path, storage: str) -> None:
    kill_rounds(tmp_path, storage, rounds=30, seed=2)
