"""Fault-injecting tests for stores that keep their log in files.

`kbcore.plug.conformance` exports them.

The tests replace `os.fsync`, `os.fdatasync` and the calls that take disk space while the store
works. They record the synced state: the content of each file and the names in each folder at the
last sync. A simulated power cut keeps exactly that, the worst outcome POSIX allows, except for torn
writes.
"""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from kbcore.config.settings import Config
from kbcore.errors import KBError, StorageFailed
from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import LogStore

MAX_FAULTS = 60
"""Largest number of calls of one workload that are made to fail, one run each."""

Record = tuple[int, int, bytes]
Names = dict[str, dict[str, tuple[int, bool]]]


@dataclass
class Books:
    """Log of a workload.

    Records in order, the number of acknowledged ones, snapshots by their number.
    """

    sent: list[Record] = field(default_factory=list)
    durable: int = 0
    snapshot: int = 0
    snapshots: dict[int, list[bytes]] = field(default_factory=dict)
    dropped: int = 0

    def copy(self) -> Books:
        """Return a copy that later work does not change."""
        return replace(self, sent=list(self.sent), snapshots=dict(self.snapshots))


@dataclass(frozen=True)
class Image:
    """State of a disk after a power cut.

    Names in folders, contents of files by inode, and the books of that time.
    """

    names: Names
    contents: dict[int, bytes]
    books: Books

    def write(self, folder: str, target: Path) -> None:
        """Write the image of `folder`, and of the folders in it, to `target`."""
        target.mkdir(parents=True)
        for name, (inode, is_folder) in self.names.get(folder, {}).items():
            if is_folder:
                self.write(os.path.join(folder, name), target / name)
            else:
                (target / name).write_bytes(self.contents.get(inode, b""))


class FaultyDisk:
    """The folder `root` as the store under test uses it.

    Call number `fault` of its kind fails with errno `error`.

    ENOSPC is raised by calls that take space, EIO by syncs. `hit` is True once the call was
    reached.
    """

    def __init__(self, root: Path, books: Books, error: int = 0, fault: int = 0) -> None:
        self.root = str(root.resolve())
        self.hit = False
        self.images: list[Image] = []
        self._books = books
        self._error, self._fault = error, fault
        self._calls = 0
        self._mutex = threading.RLock()
        self._names: Names = {}
        self._contents: dict[int, bytes] = {}
        self._readers: dict[int, int] = {}

    @contextmanager
    def watched(self) -> Iterator[FaultyDisk]:
        """Replace the calls while the block runs."""
        with ExitStack() as stack:
            for name in ("fsync", "fdatasync"):
                stack.enter_context(patch.object(os, name, self._syncing(getattr(os, name))))
            if self._error == errno.ENOSPC:
                for name in ("write", "pwrite", "posix_fallocate"):
                    stack.enter_context(patch.object(os, name, self._writing(getattr(os, name))))
                opened = self._opening(io.open)
                stack.enter_context(patch.object(io, "open", opened))
                stack.enter_context(patch.object(builtins, "open", opened))
            try:
                yield self
            finally:
                for reader in self._readers.values():
                    os.close(reader)

    def image(self) -> Image:
        """Return what a power cut would leave now."""
        with self._mutex:
            names = {folder: dict(entries) for folder, entries in self._names.items()}
            return Image(names, dict(self._contents), self._books.copy())

    def _count(self, error: int) -> None:
        if error != self._error or self.hit:
            return
        self._calls += 1
        if self._calls == self._fault:
            self.hit = True
            raise OSError(error, os.strerror(error))

    def _path(self, fd: int) -> str | None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        return path if path == self.root or path.startswith(self.root + os.sep) else None

    def _syncing(self, original: Callable[[int], None]) -> Callable[[Any], None]:
        def sync(file: Any) -> None:
            fd = file if isinstance(file, int) else file.fileno()
            path = self._path(fd)
            if path is None:
                original(fd)
                return
            with self._mutex:
                self.images.append(self.image())
                self._count(errno.EIO)
                original(fd)
                self._synced(fd, path)

        return sync

    def _synced(self, fd: int, path: str) -> None:
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                self._names[path] = {
                    entry.name: (entry.inode(), entry.is_dir()) for entry in entries
                }
            return
        status = os.fstat(fd)
        reader = self._readers.get(status.st_ino)
        if reader is None:  # an open file keeps its inode number from being used again
            reader = self._readers[status.st_ino] = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        self._contents[status.st_ino] = os.pread(reader, status.st_size, 0)

    def _writing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def write(fd: int, *more: Any) -> Any:
            if self._path(fd) is not None:
                with self._mutex:
                    self._count(errno.ENOSPC)
            return original(fd, *more)

        return write

    def _opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if not isinstance(file, int) and set(mode) & set("wax+"):
                path = os.path.abspath(os.fsdecode(file))
                if path.startswith(self.root + os.sep):
                    with self._mutex:
                        self._count(errno.ENOSPC)
            return original(file, mode, *more, **options)

        return opened


class LogStoreFaultConformance(Conformance, abstract=True):
    """Tests of a `LogStore` in files that is killed, loses power, or has a full or broken disk.

    Subclass it beside `LogStoreConformance`, name it `Test...`, and implement `make_store`. It
    needs Linux.
    """

    factory = "make_store"

    syncs_unseen: ClassVar[str] = ""
    """Reason why the calls of the store cannot be intercepted, for a store on top of a C library;
    tests that need interception are skipped."""

    @abstractmethod
    def make_store(self, config: Config) -> LogStore:
        """Open the store under test; all its files are in the folder `config.storage_dir`."""

    @pytest.fixture
    def fault_config(self, tmp_path: Path) -> Config:
        """Return settings with an empty folder, small segments, and a sync after each batch."""
        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("needs /proc")
        config = replace(Config(), min_free_mb=0, wal_segment_mb=1, fsync_policy="always")
        return replace(config, storage_dir=str(tmp_path / "data"))

    def test_a_kill_between_append_and_sync_loses_nothing_acknowledged(
        self, fault_config: Config
    ) -> None:
        """Check that another process finds every synced record, and a prefix of the others, in
        order and whole.
        """
        books, copies = Books(), list[tuple[Path, Books]]()
        folder = Path(fault_config.storage_dir)

        def copy() -> None:
            target = folder.with_name(f"killed-{len(copies)}")
            shutil.copytree(folder, target)
            copies.append((target, books.copy()))

        store = self.make_store(fault_config)
        self._work(store, books, copy)
        store.close()
        for target, then in copies:
            self._check(replace(fault_config, storage_dir=str(target)), then)

    def test_a_power_cut_loses_nothing_acknowledged(self, fault_config: Config) -> None:
        """Check power cuts, also during a sync.

        Names survive if their folder was synced, contents if the file was.
        """
        self._needs_interception()
        folder, books = Path(fault_config.storage_dir), Books()
        disk = FaultyDisk(folder, books)
        with disk.watched():
            store = self.make_store(fault_config)
            self._work(store, books, lambda: disk.images.append(disk.image()))
            store.close()
        for number, image in enumerate(disk.images):
            target = folder.with_name(f"cut-{number}")
            image.write(disk.root, target)
            self._check(replace(fault_config, storage_dir=str(target)), image.books)

    def test_a_full_disk_loses_nothing_acknowledged(self, fault_config: Config) -> None:
        """Check ENOSPC at each call that takes space.

        A KBError, and the store continues or refuses everything.
        """
        self._needs_interception()
        self._fail_everywhere(fault_config, errno.ENOSPC)

    def test_a_failing_sync_is_never_acknowledged(self, fault_config: Config) -> None:
        """Check EIO at each sync.

        The contents of the disk are unknown, so the store must refuse every later call.
        """
        self._needs_interception()
        self._fail_everywhere(fault_config, errno.EIO)

    # -- inside ------------------------------------------------------------------------------------

    def _needs_interception(self) -> None:
        if self.syncs_unseen:
            pytest.skip(self.syncs_unseen)

    def _fail_everywhere(self, config: Config, error: int) -> None:
        folder = Path(config.storage_dir)
        for fault in range(1, MAX_FAULTS):
            books, run = Books(), replace(config, storage_dir=str(folder / str(fault)))
            store = self.make_store(run)
            disk = FaultyDisk(Path(run.storage_dir), books, error, fault)
            with disk.watched():
                self._work(store, books, lambda: None)
                with suppress(KBError):
                    store.close()
            self._check(run, books)
            if not disk.hit:
                assert fault > 1, (
                    "the store made no call that the test intercepts; set syncs_unseen if that is intended"
                )
                return

    def _work(self, store: LogStore, books: Books, step: Callable[[], None]) -> None:
        """Append, sync, take snapshots and drop; call `step` after each.

        Stop when the store has failed.
        """
        for number in range(1, 7):
            if not self._append(
                store, books, [(7, 1, b"%d." % number * 40 * number), (8, 1, b"x" * number)], step
            ):
                return
            if number % 2 == 0 and not self._snapshot(store, books, step):
                return

    def _append(
        self, store: LogStore, books: Books, records: Sequence[Record], step: Callable[[], None]
    ) -> bool:
        books.sent.extend(records)
        try:
            last = store.append(records)
        except StorageFailed:
            return self._refuses(store)
        except KBError:  # refused, so none of the records may be stored
            del books.sent[-len(records) :]
            return True
        assert last == len(books.sent)
        step()
        try:
            store.sync()
        except KBError:
            return self._refuses(store)
        books.durable = last
        step()
        return True

    def _snapshot(self, store: LogStore, books: Books, step: Callable[[], None]) -> bool:
        seq = books.durable
        chunks = books.snapshots[seq] = [b"state at %d" % seq, b"", b"s" * 5000]
        try:
            store.save_snapshot(seq, iter(chunks))
            books.snapshot = seq
            step()
            books.dropped = seq  # from here on records up to it may be gone
            store.drop_before(seq)
        except StorageFailed:
            return self._refuses(store)
        except KBError:
            return True  # a snapshot that could not be stored: the log goes on
        step()
        return True

    def _refuses(self, store: LogStore) -> bool:
        with pytest.raises(KBError):
            store.append([(1, 1, b"after a failure")])
        return False

    def _check(self, config: Config, books: Books) -> None:
        """Check that every acknowledged record is stored, no unknown record is, and the log
        continues.
        """
        store = self.make_store(config)
        head = store.status().head
        assert books.durable <= head <= len(books.sent), (
            "acknowledged records are lost, or others appeared"
        )
        loaded = store.load_snapshot()
        seq, chunks = (0, []) if loaded is None else (loaded[0], list(loaded[1]))
        assert seq >= books.snapshot, "a stored snapshot is lost"
        assert seq == 0 or chunks == books.snapshots[seq]
        after = max(seq, 0) if books.dropped else 0
        stored = [
            (record.seq, record.type, record.version, record.payload)
            for record in store.read(after)
        ]
        assert stored == [
            (number, *books.sent[number - 1]) for number in range(after + 1, head + 1)
        ]
        assert store.append([(1, 1, b"next")]) == head + 1
        store.sync()
        store.close()
