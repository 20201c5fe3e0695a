"""A model of a log: a workload that records its writes, and the check of a reopened log."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import replace

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import SnapshotFailed, StorageFailed, StorageFull
from kbcore.plug.sealed_store import Encryption
from kbplugins.storage_wal import WalStore
from support.encryption import with_key
from support.faulty_files import Crash, FaultyFiles

CONFIG = replace(Config(), storage_dir="/data", min_free_mb=0)
SEGMENT = 1500
RESERVE = 700


_encryption: list[Encryption | None] = [None]


@contextmanager
def encrypted_logs(folder):
    """Logs that are opened in this block are encrypted; their keys are in a real folder."""
    keyed = with_key(CONFIG, str(folder))
    _encryption[0] = Encryption(replace(keyed, encryption_keys_dir=str(folder / "keys")))
    try:
        yield
    finally:
        _encryption[0] = None


def open_wal(files, **changes):
    store = WalStore(
        replace(CONFIG, **changes),
        fs=files,
        clock=ManualClock(),
        random_bytes=bytes,
        segment_bytes=SEGMENT,
        reserve_bytes=RESERVE,
    )
    return store if _encryption[0] is None else _encryption[0].opened(store)


def snapshot_of(seq):
    return [b"state at %d" % seq, b"", b"." * (seq % 7)]


class Books:
    """Records that appends returned for, how many of them a sync returned for, and those of a
    cut-off append.
    """

    def __init__(self):
        self.accepted = []
        self.acknowledged = 0
        self.uncertain = []
        self.snapshot = 0
        self.refused = 0

    def run(self, files, *, seed=0, steps=24, close=True, **changes):
        """Open, write, snapshot, drop, close. Returns when a fault stopped the process, or at the
        end.
        """
        rng = random.Random(seed)
        store = None
        try:
            store = open_wal(files, **changes)
            for step in range(steps):
                self.write(store, rng)
                if step % 7 == 6:
                    self.save(store)
            if close:
                store.close()
                self.acknowledged = len(self.accepted)
        except (StorageFailed, Crash):
            return
        except StorageFull:
            assert store is None  # only an open may pass it on; then nothing was written

    def write(self, store, rng):
        batch = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            number = len(self.accepted) + len(batch) + 1
            batch.append(
                (number % 256, 1, b"%d:" % number + rng.randbytes(rng.choice((1, 40, 300))))
            )
        try:
            store.append(batch)
        except StorageFull:
            self.refused += 1
            assert store.status().head == len(self.accepted)
            return
        except (StorageFailed, Crash):
            self.uncertain = batch
            raise
        self.accepted += batch
        if rng.random() < 0.8:
            store.sync()
            if store.status().durable == len(self.accepted):
                self.acknowledged = len(self.accepted)

    def save(self, store):
        seq = len(self.accepted)
        try:
            store.save_snapshot(seq, iter(snapshot_of(seq)))
            self.snapshot = seq
            self.acknowledged = seq
            store.drop_before(seq)
        except (StorageFull, SnapshotFailed):
            self.refused += 1

    def check(self, files, **changes):
        """Open what was left and compare: nothing acknowledged lost, nothing refused or unknown
        there.
        """
        store = open_wal(files, **changes)
        found = self.compare(store)
        # It must work on from here, and the next start must agree.
        self.accepted, self.uncertain, self.acknowledged = found, [], len(found)
        self.write(store, random.Random(1))
        store.sync()
        self.acknowledged = len(self.accepted)
        store.close()
        store = open_wal(files, **changes)
        self.compare(store)
        store.close()
        assert files.open_files() == 0
        assert not [name for name in files.names if name.endswith(".tmp")]

    def compare(self, store):
        status = store.status()
        assert status.snapshot >= self.snapshot
        loaded = store.load_snapshot()
        assert (loaded[0] if loaded else 0) == status.snapshot
        if loaded is not None:
            assert list(loaded[1]) == snapshot_of(loaded[0])
        possible = self.accepted + self.uncertain
        records = list(store.read(status.snapshot))
        assert [record.seq for record in records] == list(
            range(status.snapshot + 1, status.head + 1)
        )
        assert self.acknowledged <= status.head <= len(possible), (
            self.acknowledged,
            status.head,
            len(possible),
        )
        for record in records:
            assert (record.type, record.version, record.payload) == possible[record.seq - 1]
        return possible[: status.head]


def calls_of_a_clean_run(**arguments):
    files = FaultyFiles()
    books = Books()
    books.run(files, **arguments)
    assert books.acknowledged == len(books.accepted)
    return files.calls
