"""Creation of a log in an empty folder that begins with a snapshot: restored or salvaged."""

from __future__ import annotations

from collections.abc import Iterable

from kbcore.clock import Clock
from kbcore.errors import AlreadyExists
from kbcore.plug.ports import LogSeed
from kbplugins.storage_wal import lock, snapshots
from kbplugins.storage_wal import manifest as manifests
from kbplugins.storage_wal.files import Disk
from kbplugins.storage_wal.manifest import Manifest
from kbplugins.storage_wal.segment import SegmentHeader, Tail


def plant(
    disk: Disk, clock: Clock, seed: LogSeed, chunks: Iterable[bytes], segment_bytes: int
) -> None:
    """Create the files, durably. A log that begins at 0 has no snapshot and does not read `chunks`.

    MANIFEST is written last: after a crash before that, no start takes the folder for a log.
    Raises AlreadyExists.
    """
    disk.make_folder()
    if names := [name for name in disk.names() if name != lock.NAME]:
        raise AlreadyExists(
            f"{disk.folder} is not empty: it has {names[0]}", {"directory": disk.folder}
        )
    held = lock.take(disk)
    try:
        log_id = bytes.fromhex(seed.log_id)
        if seed.seq:
            snapshots.write(
                disk, snapshots.SnapshotHeader(log_id, seed.epoch, seed.seq, clock.now_ms()), chunks
            )
        header = SegmentHeader(log_id, seed.epoch, seed.seq + 1, 0, clock.now_ms())
        Tail.begin(disk, header, 0, segment_bytes).close()
        snapshot_seqs = (seed.seq,) if seed.seq else ()
        manifests.save(
            disk,
            Manifest(seed.log_id, seed.epoch, (seed.seq + 1,), snapshot_seqs, durable=seed.seq),
        )
    finally:
        disk.close(held)
