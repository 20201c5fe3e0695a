"""A log made in an empty folder that begins with a snapshot instead of nothing: restored or salvaged."""

from __future__ import annotations

from collections.abc import Iterable

from kbcore.clock import Clock
from kbcore.errors import AlreadyExists
from kbcore.plug.ports import LogSeed
from kbplugins.storage_wal import lock, opening, snapshots
from kbplugins.storage_wal import manifest as manifests
from kbplugins.storage_wal.files import Disk
from kbplugins.storage_wal.manifest import Manifest


def plant(
    disk: Disk, clock: Clock, seed: LogSeed, chunks: Iterable[bytes], segment_bytes: int
) -> None:
    """Make the files; durable on return. At 0 there is no snapshot, and the chunks are not asked for.

    MANIFEST comes last: a crash before leaves a folder that no start takes for a log. Raises AlreadyExists.
    """
    disk.make_folder()
    if names := [name for name in disk.names() if name != lock.NAME]:
        raise AlreadyExists(
            f"{disk.folder} is not empty: there is {names[0]}", {"directory": disk.folder}
        )
    held = lock.take(disk)
    try:
        log_id = bytes.fromhex(seed.log_id)
        if seed.seq:
            snapshots.write(disk, log_id, seed.epoch, seed.seq, clock.now_ms(), chunks)
        tail = opening.begin(disk, clock, log_id, seed.epoch, seed.seq + 1, 0, 0, segment_bytes)
        tail.close()
        snapshot_seqs = (seed.seq,) if seed.seq else ()
        manifests.save(
            disk,
            Manifest(seed.log_id, seed.epoch, (seed.seq + 1,), snapshot_seqs, durable=seed.seq),
        )
    finally:
        disk.close(held)
