"""A file system in memory that fails when told to, and forgets what was not synced when the power
goes.

It implements `kbplugins.storage_wal.files.Files`. Every call counts; `fault` names what happens at
call `at`:

* ENOSPC, EIO, EINTR: the call raises it and does nothing;
* short: a read or write moves only part of the bytes;
* crash: the call does nothing, and neither does any later one: the process is gone.

After a crash, `killed()` is the file system another process finds, `power_cut(rng)` the one the
machine finds when it boots: of everything since the last sync, any part may be there. That is
harsher than journaling file systems: sectors of one write, writes of one file, and names of one
folder are all kept or lost independently.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field

SECTOR = 512
BELOW = ("bootstrap.tmp",)
"""Folders there may be in the folder."""

CHANGING = frozenset(("open-new", "write", "allocate", "truncate", "rename", "unlink", "mkdir"))
SYNCS = frozenset(("fsync", "fdatasync"))


class Crash(BaseException):
    """The process is gone: no handler of its own runs, and none of its calls does anything."""


@dataclass
class Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    holder: int | None = None

    def sync(self) -> None:
        for offset, data in self.pending:
            if data is None:
                resize(self.synced, offset)
            else:
                put(self.synced, offset, data)
        self.pending.clear()

    def lose(self) -> None:
        """A failed sync: the pages stay readable and count as clean, so no later sync will write
        them.
        """
        self.pending.clear()

    def after_power_cut(self, rng: random.Random, mode: str) -> Inode:
        image = bytearray(self.synced)
        for offset, data in self.pending:
            if data is None:  # a change of the size
                if keeps(rng, mode):
                    resize(image, offset)
                continue
            for start in range(0, len(data), SECTOR):
                piece = data[start : start + SECTOR]
                if mode == "torn" and rng.random() < 0.2:
                    piece = piece[: rng.randrange(len(piece) + 1)]
                if keeps(rng, mode):
                    put(image, offset + start, piece)
        return Inode(image, bytearray(image))


def keeps(rng: random.Random, mode: str) -> bool:
    return mode == "kept" or (mode == "torn" and rng.random() < 0.5)


def resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


def put(image: bytearray, offset: int, data: bytes) -> None:
    if offset > len(image):
        resize(image, offset)
    image[offset : offset + len(data)] = data


class FaultyFiles:
    """A folder of files, with folders below it. `at` counts calls from 1; with `sticky` the fault
    stays from there on.
    """

    def __init__(
        self, folder: str = "/data", *, at: int = 0, fault: str = "", sticky: bool = False
    ) -> None:
        self.folder = folder
        self.at = at
        self.fault = fault
        self.sticky = sticky
        self.room: int | None = None
        self.calls = 0
        self.changes = 0  # of names
        self.hit = ""  # the call the fault met
        self.crashed = False
        self.trace: list[str] = []
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.history: dict[str, list[Inode | None]] = {}
        self.fds: dict[int, Inode | None] = {}
        self.folders: dict[int, str] = {}
        self.next_fd = 100

    # -- what comes after ---------------------------------------------------

    def killed(self) -> FaultyFiles:
        """What another process finds after this one was killed: all that was handed to the
        kernel.
        """
        after = FaultyFiles(self.folder)
        after.names = dict(self.names)
        after.durable_names = dict(self.durable_names)
        after.history = {name: list(states) for name, states in self.history.items()}
        for inode in self.names.values():
            inode.holder = None
        return after

    def power_cut(self, rng: random.Random, mode: str = "torn") -> FaultyFiles:
        """What is found after the power went: unsynced sectors and names all dropped, all kept, or
        torn at random.
        """
        after = FaultyFiles(self.folder)
        images: dict[int, Inode] = {}
        for name in {*self.durable_names, *self.names, *self.history}:
            states = [self.durable_names.get(name), *self.history.get(name, [])]
            state = (
                states[0]
                if mode == "dropped"
                else states[-1]
                if mode == "kept"
                else rng.choice(states)
            )
            if state is not None:
                if id(state) not in images:
                    images[id(state)] = state.after_power_cut(rng, mode)
                after.names[name] = images[id(state)]
        after.durable_names = dict(after.names)
        return after

    def copy(self) -> FaultyFiles:
        """An independent copy of the content, all of it durable."""
        return self.power_cut(random.Random(0), "kept")

    def open_files(self) -> int:
        return len(self.fds)

    # -- Files --------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        name = self._name(path)
        new = name not in self.names if name else False
        self._call("open-new" if new else "open", name)
        if not name:
            inode = None
        elif new:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = Inode()
            self._link(name, inode)
        else:
            inode = self.names[name]
            if flags & os.O_TRUNC and inode.data:
                inode.data.clear()
                inode.pending.append((0, None))
        self.next_fd += 1
        self.fds[self.next_fd] = inode
        self.folders[self.next_fd] = "" if inode is not None else self._folder(path)
        return self.next_fd

    def close(self, fd: int) -> None:
        self._call("close", "")
        inode = self.fds.pop(fd)
        if inode is not None and inode.holder == fd:
            inode.holder = None

    def size(self, fd: int) -> int:
        self._call("fstat", "")
        return len(self._inode(fd).data)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        if self._call("read", "") == "short":
            count = max(1, count // 2)
        return bytes(self._inode(fd).data[offset : offset + count])

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        if self._call("write", "") == "short":
            data = data[: len(data) // 2]
        inode = self._inode(fd)
        room = self.free_room()
        if room is not None and offset + len(data) > len(inode.data) + room:
            data = data[: max(0, len(inode.data) + room - offset)]
            if not data:
                raise OSError(errno.ENOSPC, "no room")
        put(inode.data, offset, data)
        inode.pending.append((offset, bytes(data)))
        return len(data)

    def truncate(self, fd: int, size: int) -> None:
        self._call("truncate", "")
        self._resize(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        self._call("allocate", "")
        inode = self._inode(fd)
        room = self.free_room()
        if room is not None and size > len(inode.data) + room:
            self._resize(
                fd, len(inode.data) + room // 2
            )  # as posix_fallocate may: part of it, then the error
            raise OSError(errno.ENOSPC, "no room")
        if size > len(inode.data):
            self._resize(fd, size)

    def fdatasync(self, fd: int) -> None:
        self._call("fdatasync", "", fd)
        self._inode(fd).sync()

    def fsync(self, fd: int) -> None:
        self._call("fsync", "", fd)
        inode = self.fds[fd]
        if inode is not None:
            inode.sync()
        else:
            for name in {*self.names, *self.durable_names, *self.history}:
                if os.path.dirname(name) == self.folders[fd]:
                    self.durable_names.pop(name, None)
                    if name in self.names:
                        self.durable_names[name] = self.names[name]
                    self.history.pop(name, None)

    def rename(self, source: str, target: str) -> None:
        self._call("rename", self._name(source))
        inode = self.names[self._name(source)]
        self._link(self._name(target), inode)
        self._link(self._name(source), None)

    def unlink(self, path: str) -> None:
        self._call("unlink", self._name(path))
        if self._name(path) not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._link(self._name(path), None)

    def listdir(self, path: str) -> list[str]:
        self._call("listdir", "")
        below = self._folder(path)
        inside = [
            name[len(below) + 1 if below else 0 :]
            for name in self.names
            if not below or name.startswith(below + "/")
        ]
        return sorted({name.partition("/")[0] for name in inside})

    def makedirs(self, path: str) -> None:
        self._call("mkdir", "")

    def free_bytes(self, path: str) -> int:
        self._call("statvfs", "")
        room = self.free_room()
        return 1 << 40 if room is None else room

    def lock(self, fd: int) -> bool:
        self._call("lock", "")
        inode = self._inode(fd)
        if inode.holder is not None:
            return False
        inode.holder = fd
        return True

    def is_named(self, path: str, fd: int) -> bool:
        self._call("stat", self._name(path))
        return self.names.get(self._name(path)) is self._inode(fd)

    def folder_time(self, path: str) -> int:
        self._call("stat", "")
        return self.changes

    # -- inside -------------------------------------------------------------

    def free_room(self) -> int | None:
        if self.room is None:
            return None
        linked = {id(inode): len(inode.data) for inode in self.names.values()}
        return max(0, self.room - sum(linked.values()))

    def _call(self, call: str, name: str, synced: int = 0) -> str:
        if self.crashed:
            raise Crash
        self.calls += 1
        self.trace.append(f"{call} {name}".strip())
        if not self.at or self.calls < self.at or (self.calls > self.at and not self.sticky):
            return ""
        if self.fault == "short":
            if call in ("read", "write"):
                self.hit = self.hit or call
                return "short"
            return ""
        if self.fault == "ENOSPC" and call not in CHANGING and call not in SYNCS:
            return ""
        self.hit = self.hit or call
        if self.fault == "crash":
            self.crashed = True
            raise Crash
        if self.fault == "EINTR":
            raise InterruptedError(errno.EINTR, "interrupted")
        inode = self.fds.get(synced)
        if inode is not None:
            inode.lose()
        raise OSError(getattr(errno, self.fault), f"injected at call {self.calls}")

    def _inode(self, fd: int) -> Inode:
        inode = self.fds[fd]
        assert inode is not None
        return inode

    def _resize(self, fd: int, size: int) -> None:
        inode = self._inode(fd)
        resize(inode.data, size)
        inode.pending.append((size, None))

    def _link(self, name: str, inode: Inode | None) -> None:
        self.changes += 1
        if inode is None:
            self.names.pop(name, None)
        else:
            self.names[name] = inode
        self.history.setdefault(name, []).append(inode)

    def _name(self, path: str) -> str:
        """The name in the folder, or in one below it; empty for folders themselves and what is
        above.
        """
        below = self._folder(path)
        return "" if below in ("", *BELOW) else below

    def _folder(self, path: str) -> str:
        return os.path.relpath(path, self.folder) if path.startswith(self.folder + "/") else ""
