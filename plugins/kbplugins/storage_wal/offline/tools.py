"""Operator tools for a folder that no process has open: check, salvage, create."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kbcore.clock import Clock, SystemClock
from kbcore.config import Config
from kbcore.plug.ports import LogSeed
from kbcore.plug.sealed_store import Encryption
from kbplugins.storage_wal import lock
from kbplugins.storage_wal.files import Disk, Files, OsFiles
from kbplugins.storage_wal.offline import contents, fsck
from kbplugins.storage_wal.offline import seed as planting
from kbplugins.storage_wal.offline.salvage import Salvage
from kbplugins.storage_wal.store import WalStore


class WalTools:
    """`StorageTools` for folders of the durable log; tests replace `fs`, `clock` and
    `segment_bytes`.
    """

    def __init__(
        self,
        config: Config,
        *,
        fs: Files | None = None,
        clock: Clock | None = None,
        segment_bytes: int | None = None,
    ) -> None:
        self._config = config
        self._fs = fs or OsFiles()
        self._clock = clock or SystemClock()
        self._segment_bytes = segment_bytes or config.wal_segment_mb << 20
        self._encryption = Encryption(config)

    def check(self, folder: str) -> dict[str, Any]:
        """Read and check a whole log without changing it."""
        disk = Disk(self._fs, folder)
        held = lock.take_to_read(disk)
        try:
            report = fsck.check(disk)
            if "logId" in report:
                contents.check(disk, report, self._encryption)
            return report
        finally:
            if held is not None:
                disk.close(held)

    def plant(self, folder: str, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Create a log in an empty folder that begins with a snapshot, which is stored as it is."""
        planting.plant(Disk(self._fs, folder), self._clock, seed, chunks, self._segment_bytes)

    def salvage(
        self,
        folder: str,
        to: str,
        *,
        skip_damaged: bool,
        owners: Callable[[bytes], Iterable[tuple[str, str]]],
        logged_at: Callable[[bytes], int | None],
    ) -> dict[str, Any]:
        """Copy the intact records of a damaged log into an empty folder, in a new term."""
        disk = Disk(self._fs, folder)
        held = lock.take_to_read(disk)
        try:
            salvage = Salvage(
                disk, owners, logged_at, skip_damaged=skip_damaged, encryption=self._encryption
            )
            seed = salvage.seed
            self.plant(to, seed, self._encryption.planted(seed, salvage.chunks()))
            config = replace(self._config, storage_dir=to, fsync_policy="always", min_free_mb=0)
            store = self._encryption.opened(
                WalStore(config, fs=self._fs, clock=self._clock, segment_bytes=self._segment_bytes)
            )
            try:
                for batch in salvage.batches():
                    store.append(batch)
                store.sync()
            finally:
                store.close()
            return salvage.report()
        finally:
            if held is not None:
                disk.close(held)
