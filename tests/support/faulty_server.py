"""`kbcore serve` on a disk that fails at will: while the file `<folder>.fault` names a fault, calls
of the log meet it.

full     writes and reservations raise ENOSPC, and there is no free room
fsync    every sync raises EIO
slow     a sync under the interval policy takes half a second
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from kbcore import hookimpl
from kbcore.config import Config
from kbcore.plug.ports import LogStore
from kbplugins.storage_wal import WalStore
from kbplugins.storage_wal.files import OsFiles
from support.servers import Server


class AtWill(OsFiles):
    """The machine's files, and a file that says what fails."""

    def __init__(self, switch: str) -> None:
        self._switch = Path(switch)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self._no_room()
        return super().pwrite(fd, data, offset)

    def allocate(self, fd: int, size: int) -> None:
        self._no_room()
        super().allocate(fd, size)

    def free_bytes(self, path: str) -> int:
        return 0 if self._fault() == "full" else super().free_bytes(path)

    def fdatasync(self, fd: int) -> None:
        self._sync()
        super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self._sync()
        super().fsync(fd)

    def _no_room(self) -> None:
        if self._fault() == "full":
            raise OSError(errno.ENOSPC, "no room")

    def _sync(self) -> None:
        if self._fault() == "fsync":
            raise OSError(errno.EIO, "injected")
        if self._fault() == "slow":
            from gevent import monkey

            monkey.get_original("time", "sleep")(0.5)

    def _fault(self) -> str:
        try:
            return self._switch.read_text()
        except FileNotFoundError:
            return ""


class FaultyDisk:
    """The durable log on such a disk, as `faulty`."""

    @hookimpl
    def kb_storage_backends(self, config: Config) -> Mapping[str, Callable[[Config], LogStore]]:
        return {"faulty": lambda config: WalStore(config, fs=AtWill(f"{config.storage_dir}.fault"))}


class FaultyServer(Server):
    """A server on such a disk; `fault` says what fails from now on."""

    program = ("-m", "support.faulty_server")

    def __init__(self, folder: Path, **more: str) -> None:
        self._switch = Path(f"{folder}.fault")
        paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        super().__init__(folder, STORAGE_BACKEND="faulty", PYTHONPATH=paths, **more)

    def fault(self, name: str) -> None:
        if name:
            self._switch.with_suffix(".next").write_text(name)
            self._switch.with_suffix(".next").rename(self._switch)
        else:
            self._switch.unlink()


def main() -> int:
    from gevent import monkey

    monkey.patch_all()
    from kbserver.serve import run

    flags = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    config = Config.from_env().updated(
        {"PORT": flags["--port"], "STORAGE_DIR": flags["--storage-dir"]}
    )
    return run(config, plugins=[FaultyDisk()])


if __name__ == "__main__":
    sys.exit(main())
