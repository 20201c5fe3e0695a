"""The only access to the file system: calls that tests can make fail, with errors translated.

`Files` has one method per system call; `OsFiles` implements it, and tests replace it. The rest of
the plugin uses `Disk`, which repeats interrupted calls and translates every `OSError`:

* disk full (ENOSPC, EDQUOT, EFBIG) outside a sync: `StorageFull`; nothing is lost, work can
  continue;
* any error of fsync or fdatasync, also a full disk: `StorageFailed`. The kernel may have dropped
  the dirty pages and marked them clean, so no retry can show what is on the disk;
* any other error: `FileFailed`, a subclass of `StorageFailed`. Only a snapshot can fail this way
  without ending the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from kbcore import system_calls
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
    """A file call other than a sync failed, and the disk is not full."""


class Files(Protocol):
    """System calls on files and folders; every method may raise OSError."""

    def open(self, path: str, flags: int) -> int:
        """Open a file or folder and return its descriptor."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def size(self, fd: int) -> int:
        """Return the length of the file in bytes."""

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """Return at most `count` bytes from `offset`; none at the end of the file."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at `offset`; return the number of bytes written."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file, or make it longer with zeros."""

    def allocate(self, fd: int, size: int) -> None:
        """Allocate the first `size` bytes; those not written read as zeros."""

    def fdatasync(self, fd: int) -> None:
        """Sync the content to the disk."""

    def fsync(self, fd: int) -> None:
        """Sync content and attributes to the disk; for a folder, its names."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file atomically, replacing a file that has the name."""

    def unlink(self, path: str) -> None:
        """Remove a name."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder."""

    def makedirs(self, path: str) -> None:
        """Create a folder and its parents if they do not exist."""

    def free_bytes(self, path: str) -> int:
        """Return the bytes an unprivileged user can still write on a folder's file system."""

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of a file without waiting; False when another holds it."""

    def is_named(self, path: str, fd: int) -> bool:
        """Return True if a path names an open file: False if the file was removed or replaced."""

    def folder_time(self, path: str) -> int:
        """Return when a name in a folder was last changed, in epoch nanoseconds."""


class OsFiles:
    """The file system of the operating system."""

    def open(self, path: str, flags: int) -> int:
        """Open a file that only its owner may read, because the log has the data of tenants."""
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(fd).st_size

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """Return at most `count` bytes from `offset`."""
        return os.pread(fd, count, offset)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at `offset`; return the number of bytes written."""
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file, or make it longer with zeros."""
        os.ftruncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        """Allocate the first `size` bytes."""
        system_calls.allocate(fd, size)

    def fdatasync(self, fd: int) -> None:
        """Sync the content to the disk."""
        system_calls.sync_content(fd)

    def fsync(self, fd: int) -> None:
        """Sync content and attributes to the disk."""
        system_calls.sync_file(fd)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing a file that has the name."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(path)

    def makedirs(self, path: str) -> None:
        """Create a folder and its parents if they do not exist."""
        os.makedirs(path, mode=0o700, exist_ok=True)

    def free_bytes(self, path: str) -> int:
        """Return the bytes an unprivileged user can still write."""
        answer = os.statvfs(path)
        return answer.f_bavail * answer.f_frsize

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of a file without waiting."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_named(self, path: str, fd: int) -> bool:
        """Return True if a path names an open file."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(fd))
        except FileNotFoundError:
            return False

    def folder_time(self, path: str) -> int:
        """Return when a name in a folder was last changed, in epoch nanoseconds."""
        return os.stat(path).st_mtime_ns


class Disk:
    """The files of one storage folder, by name; raises only `StorageFull`, `StorageFailed` and
    `FileFailed`.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder

    def path(self, name: str) -> str:
        """Return the full path of a file of the folder."""
        return os.path.join(self.folder, name)

    def make_folder(self) -> None:
        """Create the folder if it does not exist, durably."""
        try:
            self._call("mkdir", "", self.files.makedirs, self.folder)
        except FileFailed as error:
            reason = getattr(error.__cause__, "strerror", None) or "input/output error"
            message = f"the storage folder {self.folder} cannot be created: {reason.lower()}"
            raise FileFailed(
                f"{message}; choose another with STORAGE_DIR", error.details
            ) from error
        above = os.path.dirname(os.path.abspath(self.folder))
        self._sync_path(above, above)

    def names(self) -> list[str]:
        """Return the names in the folder, sorted."""
        return sorted(self._call("listdir", "", self.files.listdir, self.folder))

    def open(self, name: str, flags: int) -> int:
        """Open a file of the folder."""
        return self._call("open", name, self.files.open, self.path(name), flags)

    def close(self, fd: int) -> None:
        """Close a file; errors are ignored because everything that matters was synced before."""
        try:
            self.files.close(fd)
        except OSError:
            return

    def size(self, name: str, fd: int) -> int:
        """Return the length of an open file."""
        return self._call("fstat", name, self.files.size, fd)

    def read(self, name: str, fd: int, count: int, offset: int) -> bytes:
        """Return `count` bytes from `offset`, fewer only at the end of the file."""
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
        """Make one write call; return the number of bytes written, which may be too few."""
        return self._call("write", name, self.files.pwrite, fd, data, offset)

    def write(self, name: str, fd: int, data: bytes, offset: int) -> int:
        """Write all bytes, in several calls if necessary; for files that are renamed afterwards."""
        done = self.write_once(name, fd, data, offset)
        while done < len(data):
            more = self.write_once(name, fd, data[done:], offset + done)
            if more == 0:
                raise self._failure(
                    "write", name, OSError(errno.ENOSPC, "the file takes no more bytes")
                )
            done += more
        return offset + done

    def truncate(self, name: str, fd: int, size: int) -> None:
        """Cut an open file."""
        self._call("truncate", name, self.files.truncate, fd, size)

    def allocate(self, name: str, fd: int, size: int) -> bool:
        """Allocate space; return False if the file system does not support it."""
        while True:
            try:
                self.files.allocate(fd, size)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno in _NOT_SUPPORTED:
                    return False
                raise self._failure("allocate", name, error) from error
            return True

    def fdatasync(self, name: str, fd: int) -> None:
        """Sync the content of a file; any error is final."""
        self._sync("fdatasync", name, self.files.fdatasync, fd)

    def fsync(self, name: str, fd: int) -> None:
        """Sync a file with its attributes; any error is final."""
        self._sync("fsync", name, self.files.fsync, fd)

    def sync_folder(self) -> None:
        """Make names durable after files were created, renamed or removed."""
        self._sync_path(self.folder, "")

    def rename(self, source: str, target: str) -> None:
        """Rename inside the folder, replacing; not durable before `sync_folder`."""
        self._call("rename", source, self.files.rename, self.path(source), self.path(target))

    def unlink(self, name: str) -> None:
        """Remove a file."""
        self._call("unlink", name, self.files.unlink, self.path(name))

    def discard(self, name: str) -> None:
        """Remove a file if possible; otherwise the next start removes it."""
        try:
            self.files.unlink(self.path(name))
        except OSError:
            return

    def replace(self, name: str, data: bytes) -> None:
        """Replace a small file atomically: a crash leaves the old content or the new content."""
        aside = name + ".tmp"
        try:
            fd = self.open(aside, CREATE)
            try:
                self.write(aside, fd, data, 0)
                # Before the rename: a file with its final name must have its content on the disk.
                self.fsync(aside, fd)
            finally:
                self.close(fd)
            self.rename(aside, name)
        except StorageFull:
            self.discard(aside)
            raise
        # After the rename: the new content must be durable on return.
        self.sync_folder()

    def free_bytes(self) -> int:
        """Return the free bytes on the file system of the folder."""
        return self._call("statvfs", "", self.files.free_bytes, self.folder)

    def lock(self, name: str, fd: int) -> bool:
        """Take the exclusive lock of an open file; False when another process holds it."""
        return self._call("lock", name, self.files.lock, fd)

    def is_named(self, name: str, fd: int) -> bool:
        """Return True if an open file still has its name; False if it was removed or replaced."""
        return self._call("stat", name, self.files.is_named, self.path(name), fd)

    def folder_time(self) -> int:
        """Return when a name in the folder was last changed, in epoch nanoseconds."""
        return self._call("stat", "", self.files.folder_time, self.folder)

    def _sync_path(self, path: str, name: str) -> None:
        try:
            fd = self._call("open", name, self.files.open, path, READ | os.O_DIRECTORY)
        except StorageFull as error:
            # Work cannot continue: the rename before this may or may not be durable.
            raise StorageFailed(error.message, error.details) from error
        try:
            self._sync("fsync", name, self.files.fsync, fd)
        finally:
            self.close(fd)

    def _sync(self, call: str, name: str, function: Callable[[int], None], fd: int) -> None:
        while True:
            try:
                function(fd)
            except InterruptedError:  # not an error of the disk, so a retry is safe
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
                raise self._failure(call, name, error) from error

    def _failure(self, call: str, name: str, error: OSError) -> StorageFull | FileFailed:
        details = {"call": call, "file": name, "errno": error.errno}
        if error.errno in NO_ROOM:
            return StorageFull(
                f"the disk of {self.folder} is full: {error.strerror or error}", details
            )
        return FileFailed(f"{call} of {self.path(name)} failed: {error.strerror or error}", details)
