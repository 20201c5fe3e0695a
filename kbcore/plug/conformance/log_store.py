"""Conformance tests of `LogStore`; plugin authors import them from `kbcore.plug.conformance`."""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kbcore.config.settings import Config
from kbcore.errors import Conflict, InvalidInput, KBError, LogTruncated, StorageBusy, TooLarge
from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import (
    Erases,
    KeepsHistory,
    KeepsSnapshots,
    LogSeed,
    LogStore,
    RemembersLeader,
    TakesOver,
)

SMALL: Sequence[tuple[int, int, bytes]] = (
    (1, 1, b"one"),
    (2, 1, b"two"),
    (255, 255, b"\0\xff three"),
)


class LogStoreConformance(Conformance, abstract=True):
    """Tests of the contract of `LogStore`.

    Subclass it, name it `Test...`, and implement `make_store`.
    """

    factory = "make_store"

    forgets: ClassVar[str] = ""
    """Reason why records are not kept, for a store that forgets by design; tests of durability are
    skipped."""

    @abstractmethod
    def make_store(self, config: Config) -> LogStore:
        """Open the store under test; `config.storage_dir` is a folder of this test only."""

    @pytest.fixture
    def config(self, tmp_path: Path) -> Config:
        """Return settings with an empty folder and small segments."""
        return replace(
            Config(), storage_dir=str(tmp_path / "data"), min_free_mb=0, wal_segment_mb=1
        )

    def keeping(self, config: Config) -> LogStore:
        """Open the store under test; skip the test if the store forgets by design."""
        if self.forgets:
            pytest.skip(self.forgets)
        return self.make_store(config)

    # -- every store --------------------------------------------------------

    def test_a_new_log_is_empty(self, config: Config) -> None:
        """Check a new log: head 0, nothing to read, no snapshot, writable, and an id."""
        store = self.make_store(config)
        status = store.status()
        assert (status.head, status.durable, status.snapshot, status.tail_bytes_dropped) == (
            0,
            0,
            0,
            0,
        )
        assert status.writable
        assert status.log_id
        assert status.epoch >= 1
        assert list(store.read(0)) == []
        assert store.load_snapshot() is None
        store.close()

    def test_sequence_numbers_rise_by_one_from_one(self, config: Config) -> None:
        """Check that append returns the last number, and that an empty append changes nothing."""
        store = self.make_store(config)
        assert store.append(SMALL) == 3
        assert store.append([]) == 3
        assert store.append(SMALL[:1]) == 4
        assert store.status().head == 4
        store.close()

    def test_sync_makes_the_head_durable(self, config: Config) -> None:
        """Check that everything appended before a sync is durable after it, under
        FSYNC_POLICY=always.
        """
        store = self.make_store(config)
        store.append(SMALL)
        store.sync()
        assert store.status().durable == 3
        store.close()

    @pytest.mark.parametrize("bad", [(1, 1, b""), (256, 1, b"x"), (1, 256, b"x"), (-1, 1, b"x")])
    def test_a_bad_record_is_refused_with_its_whole_batch(
        self, config: Config, bad: tuple[int, int, bytes]
    ) -> None:
        """Check all or none: the good record before the bad one is not written either."""
        store = self.make_store(config)
        with pytest.raises(InvalidInput):
            store.append([SMALL[0], bad])
        assert store.status().head == 0
        assert store.append(SMALL) == 3
        store.close()

    def test_a_record_over_64_mib_is_refused(self, config: Config) -> None:
        """Check the record limit, which is the same for every store."""
        store = self.make_store(config)
        with pytest.raises(TooLarge):
            store.append([(1, 1, bytes((64 << 20) + 1))])
        assert store.status().head == 0
        store.close()

    def test_a_snapshot_ahead_of_the_log_is_refused(self, config: Config) -> None:
        """Check that a snapshot only covers records that exist."""
        store = self.make_store(config)
        with pytest.raises(InvalidInput):
            store.save_snapshot(1, [b"x"])
        store.close()

    def test_reading_past_the_head_yields_nothing(self, config: Config) -> None:
        """Check that a read after the last record yields nothing, without an error."""
        store = self.make_store(config)
        store.append(SMALL)
        assert list(store.read(3)) == []
        store.close()

    def test_a_closed_store_refuses(self, config: Config) -> None:
        """Check that closing twice is allowed and use after closing is not."""
        store = self.make_store(config)
        store.close()
        store.close()
        with pytest.raises(KBError):
            store.append(SMALL)
        with pytest.raises(KBError):
            store.sync()
        assert not store.status().writable

    def test_an_empty_log_begins_with_a_snapshot(self, config: Config) -> None:
        """Check that records continue after the snapshot's number.

        A log that has records refuses and stays unchanged.
        """
        store = self.make_store(config)
        store.begin_with(41, [b"a", b"", b"b" * 100_000])
        assert store.status().head == store.status().durable == 41
        assert store.append(SMALL) == 44
        with pytest.raises(Conflict):
            store.begin_with(50, [b"x"])
        assert store.status().head == 44
        assert [record.seq for record in store.read(44)] == []
        with pytest.raises(LogTruncated):
            store.read(0)
        store.close()

    def taking_over(self, config: Config) -> Any:
        """Open a store whose node may follow another one; skip the test if it cannot."""
        store = self.keeping(config)
        if not isinstance(store, TakesOver):
            store.close()
            pytest.skip("this store does not take over other logs")
        return store

    # -- stores that keep ---------------------------------------------------

    def test_reading_yields_what_was_appended(self, config: Config) -> None:
        """Check that records are read in order, once and whole, from any position, also before a
        sync.
        """
        store = self.keeping(config)
        store.append(SMALL)
        assert [(r.seq, r.type, r.version, r.payload) for r in store.read(0)] == [
            (number, *record) for number, record in enumerate(SMALL, 1)
        ]
        assert [record.seq for record in store.read(1)] == [2, 3]
        store.close()

    def test_synced_records_survive_a_reopen(self, config: Config) -> None:
        """Check a reopen with and without a clean close.

        Numbers continue, and the log keeps its id.
        """
        store = self.keeping(config)
        log_id = store.status().log_id
        for number in range(1, 5):
            assert store.append([(7, number, b"%d" % number)]) == number
            store.sync()
            store.close(clean=number % 2 == 0)
            store = self.make_store(config)
            assert store.status().head == store.status().durable == number
            assert [record.payload for record in store.read(0)] == [
                b"%d" % n for n in range(1, number + 1)
            ]
        assert store.status().log_id == log_id
        store.close()

    def test_a_reader_goes_on_beside_appends(self, config: Config) -> None:
        """Check that an open read yields earlier records in order and once.

        A new read yields later ones.
        """
        store = self.keeping(config)
        for number in range(20):
            store.append([(1, 1, b"%d" % number)])
        reading = store.read(2)
        numbers = [next(reading).seq]
        store.append(SMALL)
        store.sync()
        numbers += [record.seq for record in reading]
        assert numbers[:18] == list(range(3, 21))
        assert numbers == sorted(set(numbers))
        assert [record.seq for record in store.read(20)] == [21, 22, 23]
        store.close()

    def test_a_refused_batch_leaves_nothing_after_a_reopen(self, config: Config) -> None:
        """Check that all or none holds on the disk too."""
        store = self.keeping(config)
        store.append(SMALL)
        with pytest.raises(InvalidInput):
            store.append([SMALL[0], (1, 1, b"")])
        store.sync()
        store.close()
        store = self.make_store(config)
        assert store.status().head == 3
        assert [record.seq for record in store.read(0)] == [1, 2, 3]
        store.close()

    def test_records_of_all_sizes_come_back(self, config: Config) -> None:
        """Check sizes from one byte to more than a segment."""
        store = self.keeping(config)
        payloads = [
            bytes([size % 251]) * size
            for size in (1, 2, 31, 32, 33, 4096, 70_000, 1 << 20, 3 << 20, 5)
        ]
        for payload in payloads:
            store.append([(1, 1, payload)])
        store.sync()
        assert [record.payload for record in store.read(0)] == payloads
        store.close()
        store = self.make_store(config)
        assert [record.payload for record in store.read(0)] == payloads
        assert [record.payload for record in store.read(8)] == payloads[8:]
        store.close()

    def test_a_second_opener_is_told_who_holds_the_log(self, config: Config) -> None:
        """Check that there is one writer at a time."""
        store = self.keeping(config)
        with pytest.raises(StorageBusy):
            self.make_store(config)
        store.close()
        self.make_store(config).close()

    def test_a_snapshot_comes_back_with_its_chunks(self, config: Config) -> None:
        """Check that chunk boundaries are kept, also of empty chunks, and that the newest snapshot
        is loaded.
        """
        store = self.keeping(config)
        store.append(SMALL)
        self._snapshot_is(store, 2, [b"a", b"", b"b" * 100_000])
        self._snapshot_is(store, 3, [])
        store.close()
        store = self.make_store(config)
        assert store.status().snapshot == 3
        self._snapshot_is(store, 3, [b"again"])
        store.close()

    def test_a_log_that_began_with_a_snapshot_survives_a_reopen(self, config: Config) -> None:
        """Check a reopen with and without records after the snapshot."""
        store = self.keeping(config)
        store.begin_with(41, iter([b"a", b"", b"b" * 100_000]))
        for count in (0, 3):
            store.append(SMALL[:count])
            store.sync()
            store.close(clean=False)
            store = self.make_store(config)
            status = store.status()
            assert (status.head, status.durable, status.snapshot) == (41 + count, 41 + count, 41)
            loaded = store.load_snapshot()
            assert loaded is not None
            assert (loaded[0], list(loaded[1])) == (41, [b"a", b"", b"b" * 100_000])
            assert [record.seq for record in store.read(41)] == [42, 43, 44][:count]
        self._snapshot_is(store, 44, [b"next"])
        store.close()

    def test_a_failing_source_leaves_an_empty_log(self, config: Config) -> None:
        """Check that an interrupted `begin_with` leaves no trace."""
        store = self.keeping(config)
        with pytest.raises(ZeroDivisionError):
            store.begin_with(3, (bytes(1 // (1 - n)) for n in range(3)))
        assert (store.status().head, store.load_snapshot()) == (0, None)
        assert store.append(SMALL) == 3
        store.sync()
        store.close()
        store = self.make_store(config)
        assert [record.seq for record in store.read(0)] == [1, 2, 3]
        store.close()

    @pytest.mark.parametrize("seq", [0, 2, 41])
    def test_another_log_takes_the_place_of_this_one(self, config: Config, seq: int) -> None:
        """Check that a log is replaced as a whole, with its id and term, durably."""
        store = self.taking_over(config)
        store.append(SMALL)
        self._snapshot_is(store, 3, [b"mine"])
        seed = LogSeed("ab" * 16, 7, seq)
        with pytest.raises(ZeroDivisionError):
            store.replace_with(LogSeed("cd" * 16, 9, 5), (bytes(1 // (1 - n)) for n in range(3)))
        assert (store.status().head, store.status().epoch) == (3, 1)
        store.replace_with(seed, [b"theirs", b""])
        for count in (0, 3):
            store.append(SMALL[:count])
            store.sync()
            status = store.status()
            assert (status.log_id, status.epoch, status.head, status.snapshot) == (
                seed.log_id,
                7,
                seq + count,
                seq,
            )
            loaded = store.load_snapshot()
            assert (loaded and (loaded[0], list(loaded[1]))) == (
                (seq, [b"theirs", b""]) if seq else None
            )
            assert [record.seq for record in store.read(seq)] == list(
                range(seq + 1, seq + count + 1)
            )
            store.close(clean=False)
            store = self.taking_over(config)
        self._snapshot_is(store, seq + 3, [b"next"])
        store.close()

    def test_a_later_term_survives_a_reopen(self, config: Config) -> None:
        """Check that an earlier term is refused."""
        store = self.taking_over(config)
        store.append(SMALL)
        store.raise_epoch(4)
        for epoch in (3, 4):
            with pytest.raises(InvalidInput):
                store.raise_epoch(epoch)
        store.close(clean=False)
        store = self.taking_over(config)
        assert (store.status().epoch, store.status().head) == (4, 3)
        store.close()

    def test_whom_a_node_follows_survives_a_reopen_and_another_log(self, config: Config) -> None:
        """Check that the stored leader survives a reopen and another log, until it is cleared."""
        store = self.taking_over(config)
        remembers = isinstance(store, RemembersLeader)
        if not remembers:
            store.close()
            pytest.skip("this store does not store the leader of its node")
        assert store.leader() == ""
        for leader in ("http://one.test:9300", "https://zw\u00f6lf.test", ""):
            store.remember(leader)
            assert store.leader() == leader
            store.replace_with(LogSeed("ab" * 16, 7, 2), [b"theirs"])
            store.close(clean=False)
            store = self.taking_over(config)
            assert store.leader() == leader
        store.close()

    def test_numbers_go_on_after_everything_was_dropped(self, config: Config) -> None:
        """Check that the head survives the removal of all records."""
        store = self.keeping(config)
        store.append(SMALL)
        store.save_snapshot(2, [b"at 2"])
        store.save_snapshot(3, [b"at 3"])
        store.drop_before(3)
        store.close()
        store = self.make_store(config)
        assert store.status().head == 3
        assert store.append(SMALL) == 6
        assert [record.seq for record in store.read(3)] == [4, 5, 6]
        store.close()

    def test_a_failing_source_leaves_the_old_snapshot(self, config: Config) -> None:
        """Check that an error in the source of chunks passes through and damages nothing."""
        store = self.keeping(config)
        store.append(SMALL)
        self._snapshot_is(store, 1, [b"good"])
        with pytest.raises(ZeroDivisionError):
            store.save_snapshot(3, (bytes(1 // (1 - n)) for n in range(3)))
        loaded = store.load_snapshot()
        assert loaded is not None
        assert (loaded[0], list(loaded[1])) == (1, [b"good"])
        assert store.append(SMALL) == 6
        store.close()

    def test_what_no_snapshot_covers_is_never_dropped(self, config: Config) -> None:
        """Check that `drop_before` keeps all records that a start from any stored snapshot
        needs.
        """
        store = self.keeping(config)
        for _ in range(8):
            store.append([(1, 1, bytes(1 << 19) + b"x")])
        store.drop_before(8)
        assert len(list(store.read(0))) == 8
        store.save_snapshot(4, [b"at 4"])
        store.save_snapshot(6, [b"at 6"])
        store.drop_before(8)
        assert [record.seq for record in store.read(4)] == [5, 6, 7, 8]
        store.close()
        store = self.make_store(config)
        assert [record.seq for record in store.read(6)] == [7, 8]
        store.close()

    def test_dropped_records_are_reported_as_gone(self, config: Config) -> None:
        """Check that LogTruncated names the first stored record, raised by the call, not by the
        iteration.
        """
        store = self.keeping(config)
        for _ in range(8):
            store.append([(1, 1, bytes(1 << 19) + b"x")])
        store.save_snapshot(6, [b"at 6"])
        store.save_snapshot(8, [b"at 8"])
        store.drop_before(5)
        with pytest.raises(LogTruncated) as caught:
            store.read(0)
        first = (caught.value.details or {})["first"]
        assert 1 < first <= 6
        assert [record.seq for record in store.read(first - 1)] == list(range(first, 9))
        store.close()

    def test_erased_records_leave_no_bytes(self, config: Config) -> None:
        """Check that records and snapshots are gone from the storage, and that the rest is
        there.
        """
        store = self.keeping(config)
        if not isinstance(store, Erases):
            store.close()
            pytest.skip("the store does not erase")
        store.append([(1, 1, b"secret record %d" % number) for number in range(3)])
        store.save_snapshot(2, [b"secret at 2"])
        store.save_snapshot(3, [b"secret at 3"])
        assert store.erased() == 0
        store.begin_apart()
        assert store.append(SMALL) == 6
        store.sync()
        store.save_snapshot(5, [b"at 5"])
        with pytest.raises(InvalidInput):
            store.erase_before(6)
        store.erase_before(5)
        for _ in range(2):
            assert isinstance(store, Erases)
            assert 3 <= store.erased() <= 5
            loaded = store.load_snapshot()
            assert loaded is not None
            assert (loaded[0], list(loaded[1])) == (5, [b"at 5"])
            assert [record.seq for record in store.read(5)] == [6]
            with pytest.raises(LogTruncated):
                store.read(2)
            files = [path for path in Path(config.storage_dir).rglob("*") if path.is_file()]
            assert [path.name for path in files if b"secret" in path.read_bytes()] == []
            store.close()
            again = self.make_store(config)
            assert isinstance(again, Erases)
            store = again
        assert store.append(SMALL) == 9
        store.close()

    def test_an_older_snapshot_can_be_read(self, config: Config) -> None:
        """Check the choice among the snapshots that are stored."""
        store = self.keeping(config)
        if not isinstance(store, KeepsSnapshots):
            store.close()
            pytest.skip("the store reads only its newest snapshot")
        store.append(SMALL)
        store.save_snapshot(1, [b"at 1"])
        store.save_snapshot(3, [b"at 3"])
        for seq, expected in ((4, 3), (3, 1), (2, 1), (1, None)):
            loaded = store.load_snapshot_before(seq)
            assert (loaded and loaded[0]) == expected
            assert loaded is None or list(loaded[1]) == [b"at %d" % (expected or 0)]
        store.close()

    def test_snapshots_that_are_to_be_kept_stay_with_their_records(self, config: Config) -> None:
        """Check that they stay until they are no longer named, and are erased nevertheless."""
        store = self.keeping(config)
        if not isinstance(store, KeepsHistory):
            store.close()
            pytest.skip("the store keeps no older snapshots")
        assert list(store.snapshot_numbers()) == []
        for number in range(1, 6):
            assert store.append(SMALL[:1]) == number
            store.sync()
            store.keep_also((1,))
            store.save_snapshot(number, [b"at %d" % number])
            store.drop_before(number)
        assert list(store.snapshot_numbers()) == [1, 4, 5]
        assert [record.seq for record in store.read(1)] == [2, 3, 4, 5]
        store.close()
        again = self.make_store(config)
        assert isinstance(again, KeepsHistory)
        assert list(again.snapshot_numbers()) == [1, 4, 5]
        loaded = again.load_snapshot()
        assert loaded is not None
        assert (loaded[0], list(loaded[1])) == (5, [b"at 5"])
        again.keep_also((4,))
        again.append(SMALL[:1])
        again.save_snapshot(6, [b"at 6"])
        assert list(again.snapshot_numbers()) == [4, 5, 6]
        if isinstance(again, Erases):
            again.erase_before(6)
            assert list(again.snapshot_numbers()) == [6]
        again.close()

    def _snapshot_is(self, store: LogStore, seq: int, chunks: Iterable[bytes]) -> None:
        expected = list(chunks)
        store.save_snapshot(seq, iter(expected))
        loaded = store.load_snapshot()
        assert loaded is not None
        assert (loaded[0], list(loaded[1])) == (seq, expected)
        assert store.status().snapshot == seq
