"""Replacement of a log with a crash at every file call: the old log opens, or the new one."""

import random

import pytest
from support.faulty_files import Crash, FaultyFiles
from support.log_model import open_wal

from kbcore.errors import InvalidInput, KBError
from kbcore.plug.ports import LogSeed

OLD_ID = bytes(16).hex()
NEW = LogSeed("ab" * 16, 7, 9)
SAME_NUMBERS = LogSeed(OLD_ID, 7, 4)
"""Of the log that is there, in a later term: its snapshot and its segment have names that are
taken.
"""


def record(number):
    return (1, 1, b"record %d" % number + b"." * 200)


def prepared():
    files = FaultyFiles()
    store = open_wal(files)
    for number in range(1, 13):
        store.append([record(number)])
        store.sync()
        if number in (2, 4):
            store.save_snapshot(number, [b"old at %d" % number])
    store.close(clean=False)
    return files.killed()


def replaced(files, seed):
    store = open_wal(files)
    store.replace_with(seed, [b"new", b"state"])
    store.append([record(seed.seq + 1)])
    store.sync()
    return store


def found(files):
    """What a start finds: the id and term of the log, its last record, and its snapshot."""
    store = open_wal(files)
    status = store.status()
    at, chunks = store.load_snapshot()
    records = [each.seq for each in store.read(at)]
    assert records == list(range(at + 1, status.head + 1))
    chunks = list(chunks)
    store.append([record(status.head + 1)])
    store.sync()
    store.close()
    again = open_wal(files)
    assert again.status().head == status.head + 1
    again.close()
    return status.log_id, status.epoch, status.head, at, chunks


@pytest.mark.parametrize(
    "seed", [NEW, SAME_NUMBERS, LogSeed("cd" * 16, 3, 40)], ids=["other", "same numbers", "ahead"]
)
@pytest.mark.parametrize("after", ["killed", "dropped", "kept"])
def test_a_power_loss_at_any_call_leaves_one_log_or_the_other(seed, after):
    old = (OLD_ID, 1, 12, 4, [b"old at 4"])
    new = [
        (seed.log_id, seed.epoch, seed.seq + more, seed.seq, [b"new", b"state"]) for more in (0, 1)
    ]
    outcomes = set()
    for at in range(1, 400):
        files = prepared()
        files.at, files.fault, files.calls = at, "crash", 0
        try:
            replaced(files, seed)
            finished = True
        except Crash:
            finished = False
        left = files.killed() if after == "killed" else files.power_cut(random.Random(at), after)
        seen = found(left)
        assert seen == old or seen in new, f"cut at call {at}, {files.trace[-1]}"
        outcomes.add(seen == old)
        if finished:
            break
    assert finished
    assert outcomes == {True, False}


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_a_call_that_fails_leaves_one_log_or_the_other(fault):
    for at in range(1, 400):
        files = prepared()
        files.at, files.fault, files.calls = at, fault, 0
        try:
            replaced(files, NEW)
        except KBError:
            assert found(files.killed())[0] in (OLD_ID, NEW.log_id)
            continue
        if not files.hit:
            return
    raise AssertionError("no run was without a fault")


def test_a_later_term_is_kept_and_an_earlier_one_refused():
    files = prepared()
    store = open_wal(files)
    store.raise_epoch(5)
    with pytest.raises(InvalidInput):
        store.raise_epoch(5)
    store.append([record(13)])
    store.sync()
    store.close(clean=False)
    assert found(files.killed())[:3] == (OLD_ID, 5, 13)
