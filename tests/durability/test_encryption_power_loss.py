"""Kills and power cuts at every call of the key folder, also one after the other."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.encryption import with_key
from support.runtimes import BASE

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.encryption import key_folder
from kbcore.encryption.key_folder import KeyFolder, keys_dir
from kbcore.encryption.master_key import create_key, key_in
from kbcore.encryption.sealer import Sealer
from kbcore.errors import ConfigError, StorageFull
from kbcore.node.opening import open_runtime
from kbcore.state.facts import Fact

LOG = "0123456789abcdef0123456789abcdef"
MASTER = bytes(range(32))


class Killed(BaseException):
    pass


class Disk:
    """Changes of names that no sync of their folder has made durable, and a fault at one call."""

    def __init__(self) -> None:
        self.calls = self.at = 0
        self.fault: BaseException = Killed()
        self.unsynced: list[tuple[str, Callable[[], None]]] = []
        self.folders: dict[int, str] = {}

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise self.fault

    def _change(self, path: str, undo: Callable[[], None]) -> None:
        self.unsynced.append((os.path.dirname(os.path.abspath(path)), undo))

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._count()
        os.mkdir(path, mode)
        self._change(path, lambda: os.rmdir(path))

    def link(self, source: str, target: str) -> None:
        self._count()
        os.link(source, target)
        self._change(target, lambda: os.unlink(target))

    def rename(self, source: str, target: str) -> None:
        self._count()
        before = Path(target).read_bytes() if os.path.exists(target) else None
        os.rename(source, target)

        def undo() -> None:
            os.rename(target, source)
            if before is not None:
                Path(target).write_bytes(before)

        self._change(target, undo)

    replace = rename

    def unlink(self, path: str) -> None:
        self._count()
        content = Path(path).read_bytes()
        os.unlink(path)
        self._change(path, lambda: Path(path).write_bytes(content) and None)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self._count()
        is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        fd = os.open(path, flags, mode)
        self.folders[fd] = os.path.abspath(path)
        if is_new:
            self._change(path, lambda: os.path.exists(path) and os.unlink(path))
        return fd

    def fsync(self, fd: int) -> None:
        self._count()
        os.fsync(fd)
        folder = self.folders.get(fd, "")
        if os.path.isdir(folder):
            self.unsynced = [each for each in self.unsynced if each[0] != folder]

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def power_cut(self) -> None:
        """Undo what is not durable, the last change first."""
        for _, undo in reversed(self.unsynced):
            undo()
        self.unsynced = []


@pytest.fixture
def disk(monkeypatch) -> Disk:
    faulty = Disk()
    monkeypatch.setattr(key_folder, "os", faulty)
    return faulty


def run(disk: Disk, at: int, work: Callable[[], object]) -> bool:
    """Do work with a kill at a call; True if it came to its end before."""
    disk.calls, disk.at = 0, at
    try:
        work()
    except Killed:
        return False
    finally:
        disk.at = 0
    return True


def test_what_was_sealed_opens_after_kills_and_a_power_cut(tmp_path, disk) -> None:
    sealed: list[tuple[Path, bytes]] = []

    def seal(folder: Path) -> None:
        sealer = Sealer(KeyFolder.need(str(folder), MASTER).log(LOG))
        key_id = sealer.keys.key_for(("db", "ann"), 1)
        sealed.append((folder, sealer.seal(key_id, b"text", b"place")))

    for at in range(1, 200):
        folder = tmp_path / f"{at}" / "keys"
        folder.parent.mkdir()
        is_whole = run(disk, at, lambda folder=folder: seal(folder))
        seal(folder)  # another process, after the kill
        disk.power_cut()
        if is_whole:
            break
    assert at > 20
    for folder, data in sealed:
        assert Sealer(KeyFolder.open(str(folder), MASTER).log(LOG)).open(data, b"place") == b"text"


def test_a_rotation_that_ends_in_a_power_cut_leaves_one_of_the_keys(tmp_path, disk) -> None:
    new = bytes(32)
    for at in range(1, 200):
        folder = str(tmp_path / str(at))
        data = Sealer(KeyFolder.need(folder, MASTER).log(LOG)).seal(bytes(8), b"text", b"")
        is_whole = run(disk, at, lambda f=folder: KeyFolder.open(f, MASTER).rewrap(new))
        disk.power_cut()
        opening = []
        for key in (MASTER, new):
            try:
                opening.append(KeyFolder.open(folder, key))
            except ConfigError:
                continue
        assert len(opening) == 1
        assert Sealer(opening[0].log(LOG)).open(data, b"") == b"text"
        if is_whole:
            KeyFolder.open(folder, new)
            break
    assert at > 5


def test_the_end_of_a_key_survives_kills_and_power_cuts(tmp_path, disk) -> None:
    """The key of a living tenant is never lost, and that of a deleted one is, at the latest by a
    second try.
    """
    for at in range(1, 200):
        folder = tmp_path / str(at)
        keys = KeyFolder.need(str(folder), MASTER).log(LOG)
        ids = {name: keys.key_for(("db", name), 1) for name in ("ann", "bob")}

        def delete(keys: key_folder.LogKeys = keys) -> None:
            keys.retire(("db", "bob"), 4)
            keys.destroy(5)

        is_whole = run(disk, at, delete)
        disk.power_cut()
        again = KeyFolder.open(str(folder), MASTER).log(LOG)
        again.retire(("db", "bob"), 4)
        again.destroy(5)
        after = KeyFolder.open(str(folder), MASTER).log(LOG)
        assert after.key(ids["ann"])
        assert after.key_for(("db", "ann"), 9) == ids["ann"]
        assert after.destroyed_at(ids["bob"]) == 4
        assert len(list((folder / LOG).iterdir())) == 2
        if is_whole:
            break
    assert at > 8


def test_a_full_disk_at_any_call_leaves_a_usable_folder(tmp_path, disk) -> None:
    disk.fault = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for at in range(1, 200):
        folder = tmp_path / str(at)

        def work(folder: Path = folder) -> None:
            keys = KeyFolder.need(str(folder), MASTER).log(LOG)
            keys.key_for(("db", "ann"), 1)
            keys.key_for(("db", "bob"), 1)
            keys.retire(("db", "bob"), 4)
            keys.destroy(5)
            KeyFolder.open(str(folder), MASTER).rewrap(MASTER)

        try:
            run(disk, at, work)
        except StorageFull:
            work()
            keys = KeyFolder.open(str(folder), MASTER).log(LOG)
            assert keys.key(keys.key_for(("db", "ann"), 9))
            assert not list(folder.rglob("*.retired"))
            continue
        break
    assert at > 30


ROTATE = """
import os, signal, sys
from dataclasses import replace
from kbcore.config import Config
from kbcore.encryption import key_folder
from kbcore.offline.encryption import rotate
folder, key, new, at = *sys.argv[1:4], int(sys.argv[4])
calls = 0
class Counting:
    def __getattr__(self, name):
        call = getattr(os, name)
        if name not in ("open", "fsync", "replace", "unlink", "listdir", "close", "fdopen"):
            return call
        def counted(*args, **more):
            global calls
            calls += 1
            if calls == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)
        return counted
key_folder.os = Counting()
rotate(replace(Config(), storage_dir=folder, encryption_key_file=key), new)
print(calls)
"""


def test_a_killed_rotation_beside_an_open_storage(tmp_path) -> None:
    config: Config = replace(
        with_key(BASE, str(tmp_path)), storage_dir=str(tmp_path / "data"), min_free_mb=0
    )
    files = [config.encryption_key_file, *(str(tmp_path / f"key-{n}") for n in range(40))]
    present, told = files[0], 0
    with open_runtime(config, clock=ManualClock()) as node:
        for at, new in enumerate(files[1:], 1):
            create_key(new)
            done = subprocess.run(
                [sys.executable, "-c", ROTATE, config.storage_dir, present, new, str(at)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={"PYTHONPATH": ":".join(sys.path)},
            )
            node.knowledge_base(tenant=f"t{at}").assert_facts([Fact("p", ("a",))])
            told += 1
            opening = []
            for file in (present, new):
                try:
                    KeyFolder.open(keys_dir(config), key_in(file, "key"))
                    opening.append(file)
                except ConfigError:
                    continue
            (present,) = opening
            if done.returncode != -signal.SIGKILL:
                assert present == new
                break
    assert at > 8
    assert len(list(Path(keys_dir(config)).glob("KEYS*"))) == 1
    with open_runtime(replace(config, encryption_key_file=present), clock=ManualClock()) as node:
        for n in range(1, told + 1):
            assert node.knowledge_base(tenant=f"t{n}").query_rows("p", ("a",))
