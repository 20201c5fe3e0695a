"""Leases for the processes of one machine, in a folder: `file:/folder`.

Each name has a folder of its own with one small file per version of its lease. A process changes
the lease by linking a complete file under the next version number. The link fails if that number
exists, so that of several processes one succeeds, and no lock is held for it: a process that is
stopped in the middle blocks no other process. The largest version counts; the version that acquired
the name is its token.

A lease ends when its time to live has passed, by a clock that starts with the machine and goes on
while the machine is suspended, or when its process has died: each coordinator holds a lock on a
file of its own, which the kernel releases with the process.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import uuid
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from kbcore.config.storage_urls import path_of, redacted
from kbcore.errors import ConfigError, NotReady
from kbcore.plug.coordination import (
    Change,
    Coordinator,
    Held,
    Lease,
    check_lease,
    check_value,
    differences,
    encode_name,
)
from kbcore.plug.hookspecs import hookimpl
from kbcore.system_calls import boot_id, boot_ns, sync_file, sync_folder

POLL_SECONDS = 0.1
"""Interval in which a watch looks for changes."""

MAX_RETRIES = 10_000
"""Limit for retries of a read; each one means that another process has changed the lease."""

logger = logging.getLogger(__name__)


@hookimpl
def kb_coordinators() -> Mapping[str, Callable[[str], Coordinator]]:
    """Offer the coordinator for URLs that begin with `file:`."""
    return {"file": FileCoordinator}


@dataclass(frozen=True, slots=True)
class _Record:
    """The content of a version; `holder` is empty if the name is free.

    `expires_ns` is a time of `boot_ns` in the boot of the machine that `boot` identifies.
    `synced` is the last version that survives a power failure, `stored` the stored value.
    """

    name: str
    token: int = 0
    value: str = ""
    holder: str = ""
    boot: str = ""
    expires_ns: int = 0
    synced: int = 0
    stored: str | None = None

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def held(self) -> Held:
        return Held(self.name, self.token, b64decode(self.value))


class FileCoordinator:
    """Leases in a folder of a local file system; a network file system does not fit.

    A name that was used once keeps its folder, so that its tokens continue. Raises ConfigError if
    the folder cannot be created or written.
    """

    def __init__(self, url: str) -> None:
        path = path_of(url)
        if not path or path.startswith("//"):
            raise ConfigError(
                f"coordinator {redacted(url)!r}: a folder is needed, such as file:/var/lib/app"
            )
        self._root = Path(path)
        self._names, self._holders, self._new = (
            self._root / name for name in ("leases", "holders", "new")
        )
        self._id = uuid.uuid4().hex
        self._held: set[Lease] = set()
        self._watches: set[_FileWatch] = set()
        self._closed = threading.Event()
        try:
            boot = boot_id()
            if boot is None:
                raise ConfigError(
                    f"coordinator {redacted(url)!r}: needs Linux, which identifies each start of the"
                    " machine; use etcd or PostgreSQL"
                )
            self._boot = boot
            for folder in (self._names, self._holders, self._new):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = self._announce()
            self._remove_leftovers()
        except OSError as error:
            raise ConfigError(
                f"coordinator {redacted(url)!r}: the folder cannot be used ({error.strerror})"
            ) from error

    def acquire(self, name: str, ttl_ms: int, value: bytes) -> Lease | None:
        """Link a version with this coordinator as the holder, after a version without one."""
        key = check_lease(name, ttl_ms, value)
        self._check_open()
        with _not_ready_on_failure():
            folder = self._folder(name, key)
            version, record = self._latest(folder)
            if not self._is_over(record):
                return None
            token = version + 1
            taken = _Record(
                name,
                token,
                b64encode(value).decode(),
                self._id,
                self._boot,
                self._expiry(ttl_ms),
                synced=token,
                stored=record.stored,
            )
            if not self._advance(folder, token, taken):
                return None
        lease = Lease(name, token, ttl_ms, value)
        self._held.add(lease)
        return lease

    def renew(self, lease: Lease) -> bool:
        """Link a version with a later end, after one of the same lease that has not ended."""
        folder = self._path(encode_name(lease.name))
        with _not_ready_on_failure():
            while True:  # again if another thread renewed this lease at the same time
                version, record = self._mine(lease)
                if record is None:
                    self._held.discard(lease)
                    return False
                later = replace(record, expires_ns=self._expiry(lease.ttl_ms))
                if self._advance(folder, version + 1, later):
                    return True

    def release(self, lease: Lease) -> None:
        """Link a version without a holder, after one of the same lease."""
        self._held.discard(lease)
        folder = self._path(encode_name(lease.name))
        with _not_ready_on_failure():
            while True:  # again if another thread renewed this lease at the same time
                version, record = self._mine(lease)
                if record is None:
                    return
                free = _Record(lease.name, synced=version + 1, stored=record.stored)
                if self._advance(folder, version + 1, free):
                    return

    def store(self, lease: Lease, value: bytes) -> bool:
        """Link a version with the value, after one of the same lease that has not ended."""
        check_value(value)
        folder = self._path(encode_name(lease.name))
        with _not_ready_on_failure():
            while True:  # again if another thread renewed this lease at the same time
                version, record = self._mine(lease)
                if record is None:
                    return False
                text = b64encode(value).decode()
                later = replace(record, stored=text, synced=version + 1)
                if self._advance(folder, version + 1, later):
                    return True

    def stored(self, name: str) -> bytes | None:
        """Read the latest version of the name."""
        folder = self._path(encode_name(name))
        self._check_open()
        with _not_ready_on_failure():
            if not folder.exists():
                return None
            text = self._latest(folder)[1].stored
        return None if text is None else b64decode(text)

    def leases(self, prefix: str) -> Sequence[Held]:
        """Read the latest version of each name."""
        encode_name(prefix)
        self._check_open()
        with _not_ready_on_failure():
            records = (self._latest(folder)[1] for folder in self._names.iterdir())
            held = [
                record.held()
                for record in records
                if record.name.startswith(prefix) and not self._is_over(record)
            ]
        return sorted(held, key=lambda each: each.name)

    def watch(self, prefix: str) -> _FileWatch:
        """Compare listings; a change is noticed within a tenth of a second."""
        watch = _FileWatch(self, prefix)
        self._watches.add(watch)
        return watch

    def forget_watch(self, watch: _FileWatch) -> None:
        """Drop a closed watch."""
        self._watches.discard(watch)

    def close(self) -> None:
        """End watches and leases; the lock goes last, and with it the leases that could not be
        released.
        """
        if self._closed.is_set():
            return
        for watch in list(self._watches):
            watch.close()
        for lease in list(self._held):
            with suppress(NotReady):  # logged; the end of the lock ends the lease too
                self.release(lease)
        self._closed.set()
        with suppress(FileNotFoundError):
            (self._holders / self._id).unlink()
        os.close(self._lock)

    # -- versions ----------------------------------------------------------------------------------

    def _path(self, key: bytes) -> Path:
        return self._names / sha256(key).hexdigest()

    def _folder(self, name: str, key: bytes) -> Path:
        """Return the folder of a name, created with version 0, which is free."""
        folder = self._path(key)
        if not folder.exists():
            new_folder = self._new / f"{self._id}.{uuid.uuid4().hex}"
            new_folder.mkdir()
            (new_folder / "0").write_bytes(_Record(name).encode())
            sync_folder(new_folder)
            try:
                new_folder.rename(folder)  # fails if another process made it before: it has files
            except OSError:
                _remove_folder(new_folder)
                if not folder.exists():
                    raise
            sync_folder(self._names)
        return folder

    def _latest(self, folder: Path) -> tuple[int, _Record]:
        for _ in range(MAX_RETRIES):  # again only if a process has just removed this version
            version = _largest(folder)
            try:
                content = (folder / str(version)).read_bytes()
            except FileNotFoundError:
                continue
            try:
                return version, _Record(**json.loads(content))
            except (ValueError, TypeError):
                # A power failure lost the content of a renewal. It ended the holder as well.
                return version, self._synced(folder)
        raise FileNotFoundError(f"no version in {folder} can be read")

    def _synced(self, folder: Path) -> _Record:
        """Return the last readable version of a name, as one without a holder."""
        for version in sorted(_versions(folder), reverse=True):
            with suppress(FileNotFoundError, ValueError, TypeError):
                record = _Record(**json.loads((folder / str(version)).read_bytes()))
                return _Record(record.name, synced=record.synced, stored=record.stored)
        return _Record("")

    def _mine(self, lease: Lease) -> tuple[int, _Record | None]:
        """Return the latest version of a name, with its record if this lease still holds it."""
        folder = self._path(encode_name(lease.name))
        if self._closed.is_set() or not folder.exists():
            return 0, None
        version, record = self._latest(folder)
        is_mine = record.token == lease.token and record.holder == self._id
        return version, record if is_mine and not self._is_over(record) else None

    def _advance(self, folder: Path, version: int, record: _Record) -> bool:
        """Link the record as a version; return False if another process was first.

        A version is durable on return if it names itself as `synced`. A renewal does not: the file
        of the synced version stays, so that a power failure between two renewals does not lose the
        token or the stored value.
        """
        keep = record.synced if record.synced != version else 0
        path = self._new / f"{self._id}.{uuid.uuid4().hex}"
        try:
            with path.open("xb") as file:
                file.write(record.encode())
                if not keep:
                    file.flush()
                    sync_file(file.fileno())
            try:
                os.link(path, folder / str(version))
            except FileExistsError:
                return False
        finally:
            path.unlink(missing_ok=True)
        if not keep:
            sync_folder(folder)
        # A process that was stopped before the link may have linked a version that was long
        # removed.
        largest = _largest(folder)
        for old in _versions(folder):
            if old != keep and (old < version or old == version < largest):
                (folder / str(old)).unlink(missing_ok=True)
        return largest == version

    # -- ends of leases ----------------------------------------------------------------------------

    def _expiry(self, ttl_ms: int) -> int:
        return boot_ns() + ttl_ms * 1_000_000

    def _is_over(self, record: _Record) -> bool:
        if not record.holder or not self._is_alive(record.holder):
            return True
        # A time of another boot means nothing here; the lock of that holder has ended with the
        # boot.
        now = boot_ns()
        return record.boot == self._boot and now >= record.expires_ns

    def _is_alive(self, holder: str) -> bool:
        """Return True if the coordinator with this id holds its lock."""
        try:
            file = os.open(self._holders / holder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # A shared lock, so that two processes that look at once do not see each other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(file)

    def _announce(self) -> int:
        """Create the file of this coordinator, locked before it has its name."""
        path = self._new / self._id
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            path.rename(self._holders / self._id)
        except BaseException:
            os.close(file)
            raise
        return file

    def _remove_leftovers(self) -> None:
        """Remove what processes left that were killed."""
        for path in self._holders.iterdir():
            if not self._is_alive(path.name):
                path.unlink(missing_ok=True)
        for path in self._new.iterdir():
            holder, dot, _ = path.name.partition(".")
            if dot and not self._is_alive(holder):
                if path.is_dir():
                    _remove_folder(path)
                else:
                    path.unlink(missing_ok=True)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise NotReady("the coordinator is closed")


class _FileWatch:
    """Changes between listings."""

    def __init__(self, coordinator: FileCoordinator, prefix: str) -> None:
        self._coordinator, self._prefix = coordinator, prefix
        self._closed = threading.Event()
        self._pending: deque[Change] = deque()
        self._seen = coordinator.leases(prefix)

    def __iter__(self) -> _FileWatch:
        return self

    def __next__(self) -> Change:
        while not self._closed.is_set():
            if self._pending:
                return self._pending.popleft()
            try:
                leases = self._coordinator.leases(self._prefix)
            except NotReady:
                if self._closed.is_set():  # by another thread, in the middle of the listing
                    break
                raise
            self._pending.extend(differences(self._seen, leases))
            self._seen = leases
            if not self._pending:
                self._closed.wait(POLL_SECONDS)
        raise StopIteration

    def close(self) -> None:
        self._closed.set()
        self._coordinator.forget_watch(self)


@contextmanager
def _not_ready_on_failure() -> Iterator[None]:
    """Raise NotReady for an error of the file system; the log has the details."""
    try:
        yield
    except OSError as error:
        logger.warning("the coordinator's folder cannot be used: %s", error)
        raise NotReady("the coordinator's folder cannot be used") from error


def _versions(folder: Path) -> list[int]:
    return [int(name) for name in os.listdir(folder) if name.isdecimal()]


def _largest(folder: Path) -> int:
    for _ in range(MAX_RETRIES):  # a listing may miss a version that is replaced at that time
        versions = _versions(folder)
        if versions:
            return max(versions)
    raise FileNotFoundError(f"no version in {folder}")


def _remove_folder(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink(missing_ok=True)
    folder.rmdir()
