"""kill -9 of a real writer: all numbers printed after a sync are stored, and no others."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace

import pytest

from kbcore.config import Config
from kbplugins.storage_wal import WalStore

WRITER = """
import sys, random
from dataclasses import replace
from kbcore.config import Config
from kbplugins.storage_wal import WalStore
folder, policy = sys.argv[1:]
store = WalStore(
    replace(Config(), storage_dir=folder, min_free_mb=0, fsync_policy=policy, fsync_interval_ms=5),
    segment_bytes=40_000,
)
seq = store.status().head
while True:
    batch = [(1, 1, b"%d:" % n + b"." * (n % 400)) for n in range(seq + 1, seq + 1 + random.choice((1, 3, 20)))]
    seq = store.append(batch)
    store.sync()
    sys.stdout.write("%d\\n" % seq)
    sys.stdout.flush()
    if random.random() < 0.05:
        store.save_snapshot(seq, [b"at %d" % seq])
        store.drop_before(seq)
"""


def kill_once(folder, policy, lines) -> int:
    """Start a writer, kill it after some lines, and return the last number it acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), policy],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as writer:
        assert writer.stdout is not None
        acknowledged = 0
        for _ in range(lines):
            acknowledged = int(writer.stdout.readline())
        writer.kill()
        for line in writer.stdout:
            if line.endswith(b"\n"):
                acknowledged = int(line)
    return acknowledged


def check(folder, acknowledged) -> None:
    store = WalStore(
        replace(Config(), storage_dir=str(folder), min_free_mb=0), segment_bytes=40_000
    )
    status = store.status()
    assert status.head >= acknowledged
    loaded = store.load_snapshot()
    if loaded is not None:
        assert list(loaded[1]) == [b"at %d" % loaded[0]]
    records = list(store.read(status.snapshot))
    assert [record.seq for record in records] == list(range(status.snapshot + 1, status.head + 1))
    for record in records:
        assert record.payload == b"%d:" % record.seq + b"." * (record.seq % 400)
    store.close(clean=False)


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_a_killed_writer_loses_nothing(tmp_path, policy) -> None:
    rng = random.Random(5)
    for _ in range(3):
        check(tmp_path, kill_once(tmp_path, policy, rng.randrange(5, 150)))


@pytest.mark.crash
@pytest.mark.parametrize("policy", ["always", "interval"])
def test_many_killed_writers_lose_nothing(tmp_path, policy) -> None:
    rng = random.Random(6)
    for _ in range(200):
        check(tmp_path, kill_once(tmp_path, policy, rng.randrange(1, 600)))
