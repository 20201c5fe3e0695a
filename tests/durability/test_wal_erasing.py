"""Erasing old records with a crash at every file call: nothing later is lost, and the next try ends
it.
"""

from __future__ import annotations

import random

import pytest
from support.faulty_files import Crash, FaultyFiles
from support.log_model import open_wal

SECRET = b"secret"


def prepared() -> FaultyFiles:
    """A log whose first six records and first two snapshots have a secret."""
    files = FaultyFiles()
    store = open_wal(files)
    for number in range(1, 7):
        store.append([(1, 1, SECRET + b" %d" % number + b"." * 200)])
        store.sync()
        if number in (2, 4):
            store.save_snapshot(number, [SECRET + b" at %d" % number])
    store.close(clean=False)
    return files.killed()


def erase(files: FaultyFiles, seq: int) -> None:
    """Do what a node does for a purge whose record is `seq`, with a write at each step."""
    store = open_wal(files)
    if store.status().head < seq:
        store.append([(1, 1, b"purge " + SECRET)])
    for step in ("apart", "snapshot", "erase"):
        if step == "apart":
            store.begin_apart()
        elif step == "snapshot":
            store.save_snapshot(max(store.status().head, store.status().snapshot), [b"clean"])
        else:
            store.erase_before(store.status().snapshot)
        store.append([(1, 1, b"later")])
        store.sync()
    store.close(clean=False)


def contents(files: FaultyFiles) -> bytes:
    return b"".join(bytes(inode.data) for inode in files.names.values())


@pytest.mark.parametrize("after", ["killed", "dropped", "kept", "torn"])
def test_a_crash_at_any_call_loses_nothing_and_can_be_repeated(after: str) -> None:
    unfinished = 0
    for at in range(1, 400):
        files = prepared()
        files.at, files.fault, files.calls = at, "crash", 0
        try:
            erase(files, 7)
            finished = True
        except Crash:
            finished = False
        left = files.killed() if after == "killed" else files.power_cut(random.Random(at), after)
        store = open_wal(left)
        status = store.status()
        assert status.head >= 6
        snapshot = store.load_snapshot()
        assert snapshot is not None
        list(snapshot[1])
        records = list(store.read(snapshot[0]))
        assert [each.seq for each in records] == list(range(snapshot[0] + 1, status.head + 1))
        erased = store.erased()
        store.close(clean=False)
        if erased >= 7:
            assert SECRET not in contents(left), f"cut at call {at}, {files.trace[-1]}"
        unfinished += erased < 7
        erase(left, 7)
        again = open_wal(left)
        assert again.erased() >= 7
        assert again.status().head >= status.head
        again.close()
        assert SECRET not in contents(left), f"cut at call {at}, {files.trace[-1]}"
        if finished:
            break
    assert finished
    assert unfinished > 5
