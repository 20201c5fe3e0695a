"""The only access to the file system: calls that tests can make fail, with errors translated.

`Files` is the seam (one method a system call), `OsFiles` the real one. `Disk` is what the rest of the plugin
uses: it repeats interrupted calls and turns every `OSError` into one of three verdicts:

* no room (ENOSPC, EDQUOT, EFBIG) outside a sync: `StorageFull`, nothing is lost and work may go on;
* any error of fsync or fdatasync, no room included: `StorageFailed`. The kernel may have thrown the dirty pages
  away and marked them clean, so neither a retry nor a reopen can tell what is on the disk;
* any other error: `FileFailed`, a `StorageFailed` too; only snapshots, which can be thrown away, survive it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from kbcore.errors import StorageFailed, StorageFull

P = ParamSpec("P")
T = TypeVar("T")

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_NOT_SUPPORTED = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV))

READ = os.O_RDONLY
CREATE = os.O_RDWR | os.O_CREAT | os.O_TRUNC
UPDATE = os.O_RDWR
LOCKFILE = os.O_RDWR | os.O_CREAT

_CHUNK = 1 << 20


class FileFailed(StorageFailed):
    """A file call other than a sync failed, and not for lack of room."""


class Files(Protocol):
    """System calls on files and folders; every method may raise OSError."""

    def open(self, path: str, flags: int) -> int:
        """Open a file or folder and return its descriptor."""

    def close(self, fd: int) -> None:
        """Give a descriptor back."""

    def size(self, fd: int) -> int:
        """Length of the file in bytes."""

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """At most `count` bytes from `offset`; empty at the end of the file."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at `offset`; returns how many bytes were taken."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file, or make it longer with zeros."""

    def allocate(self, fd: int, size: int) -> None:
        """Reserve room for the first `size` bytes; what was not written reads as zeros."""

    def fdatasync(self, fd: int) -> None:
        """Put the content on the disk."""

    def fsync(self, fd: int) -> None:
        """Put content and attributes on the disk; of a folder, its names."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it, at one instant."""

    def unlink(self, path: str) -> None:
        """Remove a name."""

    def listdir(self, path: str) -> list[str]:
        """Names in a folder."""

    def makedirs(self, path: str) -> None:
        """Make a folder and those above it where missing."""

    def free_bytes(self, path: str) -> int:
        """Return the bytes an ordinary user may still write on the file system of a folder."""

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of a file without waiting; False when another holds it."""


class OsFiles:
    """The machine's file system."""

    def open(self, path: str, flags: int) -> int:
        """Open with owner-only rights: the log holds what tenants stored."""
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def close(self, fd: int) -> None:
        """Give a descriptor back."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Length of the file in bytes."""
        return os.fstat(fd).st_size

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """At most `count` bytes from `offset`."""
        return os.pread(fd, count, offset)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at `offset`; returns how many bytes were taken."""
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file, or make it longer with zeros."""
        os.ftruncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        """Reserve room for the first `size` bytes."""
        os.posix_fallocate(fd, 0, size)

    def fdatasync(self, fd: int) -> None:
        """Put the content on the disk."""
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """Put content and attributes on the disk."""
        os.fsync(fd)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def listdir(self, path: str) -> list[str]:
        """Names in a folder."""
        return os.listdir(path)

    def makedirs(self, path: str) -> None:
        """Make a folder and those above it where missing."""
        os.makedirs(path, mode=0o700, exist_ok=True)

    def free_bytes(self, path: str) -> int:
        """Return the bytes an ordinary user may still write."""
        answer = os.statvfs(path)
        return answer.f_bavail * answer.f_frsize

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of a file without waiting."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Disk:
    """The files of one storage folder, by name; raises only `StorageFull`, `StorageFailed` and `FileFailed`."""

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder

    def path(self, name: str) -> str:
        """Return the full path of a file of the folder."""
        return os.path.join(self.folder, name)

    def make_folder(self) -> None:
        """Make the folder where missing and make its own name durable."""
        self._call("mkdir", "", self.files.makedirs, self.folder)
        above = os.path.dirname(os.path.abspath(self.folder))
        self._sync_path(above, above)

    def names(self) -> list[str]:
        """Names in the folder, sorted."""
        return sorted(self._call("listdir", "", self.files.listdir, self.folder))

    def open(self, name: str, flags: int) -> int:
        """Open a file of the folder."""
        return self._call("open", name, self.files.open, self.path(name), flags)

    def close(self, fd: int) -> None:
        """Close; an error here says nothing new, for what counts was synced before."""
        try:
            self.files.close(fd)
        except OSError:
            return

    def size(self, name: str, fd: int) -> int:
        """Length of an open file."""
        return self._call("fstat", name, self.files.size, fd)

    def read(self, name: str, fd: int, count: int, offset: int) -> bytes:
        """`count` bytes from `offset`, fewer only at the end of the file."""
        data = self._call("read", name, self.files.pread, fd, count, offset)
        if len(data) == count or not data:
            return data
        parts = [data]
        have = len(data)
        while have < count:
            data = self._call("read", name, self.files.pread, fd, count - have, offset + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def read_file(self, name: str) -> bytes:
        """Return the whole of a small file."""
        fd = self.open(name, READ)
        try:
            return self.read(name, fd, self.size(name, fd), 0)
        finally:
            self.close(fd)

    def write_once(self, name: str, fd: int, data: bytes, offset: int) -> int:
        """One write call; returns how many bytes were taken, which may be too few."""
        return self._call("write", name, self.files.pwrite, fd, data, offset)

    def write(self, name: str, fd: int, data: bytes, offset: int) -> int:
        """Write all, in as many calls as it takes; for files that do not count before they are renamed."""
        done = self.write_once(name, fd, data, offset)
        while done < len(data):
            more = self.write_once(name, fd, data[done:], offset + done)
            if more == 0:
                raise self._verdict(
                    "write", name, OSError(errno.ENOSPC, "the file takes no more bytes")
                )
            done += more
        return offset + done

    def truncate(self, name: str, fd: int, size: int) -> None:
        """Cut an open file."""
        self._call("truncate", name, self.files.truncate, fd, size)

    def allocate(self, name: str, fd: int, size: int) -> bool:
        """Reserve room; False when this file system cannot."""
        while True:
            try:
                self.files.allocate(fd, size)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno in _NOT_SUPPORTED:
                    return False
                raise self._verdict("allocate", name, error) from error
            return True

    def fdatasync(self, name: str, fd: int) -> None:
        """Put content on the disk; any error is final."""
        self._sync("fdatasync", name, self.files.fdatasync, fd)

    def fsync(self, name: str, fd: int) -> None:
        """Put a file on the disk; any error is final."""
        self._sync("fsync", name, self.files.fsync, fd)

    def sync_folder(self) -> None:
        """Make names durable: a file that was created, renamed or removed is so only after this."""
        self._sync_path(self.folder, "")

    def rename(self, source: str, target: str) -> None:
        """Rename inside the folder, replacing; not durable before `sync_folder`."""
        self._call("rename", source, self.files.rename, self.path(source), self.path(target))

    def unlink(self, name: str) -> None:
        """Remove a file."""
        self._call("unlink", name, self.files.unlink, self.path(name))

    def discard(self, name: str) -> None:
        """Remove a file that may be gone or stuck; what stays is removed at the next start."""
        try:
            self.files.unlink(self.path(name))
        except OSError:
            return

    def replace(self, name: str, data: bytes) -> None:
        """Replace a small file at one instant: a crash leaves the old content or the new, never a mixture."""
        aside = name + ".tmp"
        try:
            fd = self.open(aside, CREATE)
            try:
                self.write(aside, fd, data, 0)
                # Before the rename: else the new name could point at content that never reached the disk.
                self.fsync(aside, fd)
            finally:
                self.close(fd)
            self.rename(aside, name)
        except StorageFull:
            self.discard(aside)
            raise
        # After the rename: the caller relies on the new content being there.
        self.sync_folder()

    def free_bytes(self) -> int:
        """Return the bytes left on the file system of the folder."""
        return self._call("statvfs", "", self.files.free_bytes, self.folder)

    def lock(self, name: str, fd: int) -> bool:
        """Take the exclusive lock of an open file; False when another process holds it."""
        return self._call("lock", name, self.files.lock, fd)

    def _sync_path(self, path: str, name: str) -> None:
        try:
            fd = self._call("open", name, self.files.open, path, READ | os.O_DIRECTORY)
        except (
            StorageFull
        ) as error:  # never "no room, go on": the rename before this may or may not last
            raise StorageFailed(error.message, error.details) from error
        try:
            self._sync("fsync", name, self.files.fsync, fd)
        finally:
            self.close(fd)

    def _sync(self, call: str, name: str, function: Callable[[int], None], fd: int) -> None:
        while True:
            try:
                function(fd)
            except (
                InterruptedError
            ):  # not an error of the device: nothing was reported, so nothing is swallowed
                continue
            except OSError as error:
                raise StorageFailed(
                    f"{call} of {self.path(name)} failed: {error.strerror or error}; what is on the disk is unknown",
                    {"call": call, "file": name, "errno": error.errno},
                ) from error
            return

    def _call(
        self, call: str, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        while True:
            try:
                return function(*args, **kwargs)
            except InterruptedError:
                continue
            except OSError as error:
                raise self._verdict(call, name, error) from error

    def _verdict(self, call: str, name: str, error: OSError) -> StorageFull | FileFailed:
        details = {"call": call, "file": name, "errno": error.errno}
        if error.errno in NO_ROOM:
            return StorageFull(
                f"no room on the disk of {self.folder}: {error.strerror or error}", details
            )
        return FileFailed(f"{call} of {self.path(name)} failed: {error.strerror or error}", details)
