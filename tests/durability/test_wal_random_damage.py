"""Bytes flipped, cut off and torn at random places of random folders: never a wrong state, never a
silent loss.

What may be missing without a refusal is the end of a log that was not closed cleanly, where nothing
sound is left behind the damage: that looks like a write that was torn before its sync. It is cut,
and counted here. A flipped byte takes one batch at most; a file that was cut off takes what was cut
off.
"""

from __future__ import annotations

import random
from contextlib import nullcontext

import pytest
from support.faulty_files import FaultyFiles
from support.log_model import Books, encrypted_logs, open_wal

from kbcore.errors import ConfigError, LogCorrupted
from kbplugins.storage_wal.frame import HEADER_BYTES

SEALED_BYTES = 51
"""Bytes that encryption adds to a record: head, tag, and its type and version."""

OVERHEAD = [HEADER_BYTES]


@pytest.fixture(params=["plain", "encrypted"], autouse=True)
def encryption(request, tmp_path):
    """Every test runs on plain and on encrypted logs."""
    encrypted = request.param == "encrypted"
    OVERHEAD[0] = HEADER_BYTES + (SEALED_BYTES if encrypted else 0)
    with encrypted_logs(tmp_path) if encrypted else nullcontext():
        yield


def folder(seed, *, clean):
    """A random workload, all of it synced at the end; its files and books, and the sequence numbers
    of its last batch.
    """
    files, books = FaultyFiles(), Books()
    rng = random.Random(seed)
    store = open_wal(files)
    for step in range(rng.randrange(3, 20)):
        before = len(books.accepted)
        books.write(store, rng)
        store.sync()
        if step % 7 == 6:
            books.save(store)
    books.acknowledged = len(books.accepted)
    store.close(clean=clean)
    return files.killed(), books, before


def damage(files, rng, last_size):
    names = [name for name in files.names if name not in ("LOCK", "reserve")]
    name = rng.choice(names)
    data = files.names[name].data
    end = max(1, len(data.rstrip(b"\0")))
    kind = rng.choice(("flip", "flip", "flip", "cut", "zeros", "garbage"))
    at = rng.randrange(end)
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[at:]
    else:
        length = min(rng.choice((1, 16, 512)), len(data) - at)
        data[at : at + length] = bytes(length) if kind == "zeros" else rng.randbytes(length)
    reaches_the_end = kind == "cut" or (
        kind != "flip" and at + length > end - last_size
    )  # no whole record is left behind it
    return kind, name, at, reaches_the_end


def judge(seed):
    """What became of one damaged folder: whole, refused, or its last batch cut off."""
    rng = random.Random(seed)
    clean = rng.random() < 0.5
    files, books, last = folder(seed % 200, clean=clean)
    what = damage(files, rng, OVERHEAD[0] + len(books.accepted[-1][2]))
    try:
        store = open_wal(files)
    except (LogCorrupted, ConfigError):
        return "refused"
    try:
        status = store.status()
        records = list(store.read(status.snapshot))
    except LogCorrupted:
        return "refused"
    finally:
        store.close(clean=False)
    for record in records:
        assert (record.type, record.version, record.payload) == books.accepted[record.seq - 1], (
            what,
            "a wrong state",
        )
    if status.head == len(books.accepted):
        return "whole"
    assert not clean, (what, "a silent loss")
    assert status.head >= last or what[-1], (what, "more than the last batch is missing")
    assert what[1].startswith("wal-"), (what, "the end of the log fell without its being damaged")
    return "cut"


def count(seeds):
    found = {"whole": 0, "refused": 0, "cut": 0}
    for seed in seeds:
        found[judge(seed)] += 1
    return found


def test_some_hundred_damaged_folders() -> None:
    found = count(range(300))
    assert found["refused"] > 150
    assert found["cut"] < 60


@pytest.mark.slow
def test_ten_thousand_damaged_folders() -> None:
    found = count(range(1000, 11_000))
    assert sum(found.values()) == 10_000
    print(found)
