"""A snapshot in one transaction, over a connection of its own so that appends continue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from zlib import crc32

from kbcore.errors import KBError, SnapshotFailed, StorageFailed, TooLarge
from kbcore.plug.ports import LogSeed
from kbplugins import table_log
from kbplugins.storage_postgres.driver import Driver, Unreachable
from kbplugins.table_log import MAX_PAYLOAD, SnapshotRow

T = TypeVar("T")


def save(
    driver: Driver,
    token: bytes,
    start: int,
    seq: int,
    chunks: Iterable[bytes],
    *,
    keep: list[int],
    begin: bool,
) -> SnapshotRow:
    """Store a snapshot and delete those not to keep; with `begin` the log begins with it.

    Raises StorageFull or SnapshotFailed with nothing changed, and what making the chunks raises.
    """
    return _transaction(
        driver,
        seq,
        lambda connection: _save(driver, connection, token, start, seq, chunks, keep, begin),
    )


def _transaction(driver: Driver, seq: int, work: Callable[[Any], T]) -> T:
    try:
        connection = driver.connect("snapshot")
    except Unreachable as error:
        raise SnapshotFailed(f"snapshot at {seq} was not stored: {error}") from None
    try:
        with connection.transaction():
            return work(connection)
    except driver.psycopg.Error as error:
        verdict = driver.verdict(error)
        if isinstance(verdict, KBError) and not isinstance(verdict, StorageFailed):
            raise verdict from error
        raise SnapshotFailed(f"snapshot at {seq} was not stored: {verdict}") from error
    finally:
        connection.close()


def replace(
    driver: Driver, token: bytes, seed: LogSeed, chunks: Iterable[bytes]
) -> SnapshotRow | None:
    """Replace the log by another, in one transaction; return its snapshot, None for a log from 0 on."""
    log_id = bytes.fromhex(seed.log_id)

    def work(connection: Any) -> SnapshotRow | None:
        row = None
        if seed.seq:
            row = _save(
                driver, connection, token, table_log.seed(log_id), seed.seq, chunks, [], False
            )
        else:
            connection.execute("SET LOCAL synchronous_commit = on")
            connection.execute("DELETE FROM kbcore_snapshots")
            connection.execute("DELETE FROM kbcore_chunks")
        connection.execute("DELETE FROM kbcore_log")
        moved = connection.execute(
            "UPDATE kbcore_meta SET log_id = %s, epoch = %s, first = %s, head = %s WHERE writer = %s",
            (log_id, seed.epoch, seed.seq + 1, seed.seq, token),
        )
        if moved.rowcount != 1:
            raise SnapshotFailed(f"{driver.place}: another writer has taken over")
        return row

    return _transaction(driver, seed.seq, work)


def _save(
    driver: Driver,
    connection: Any,
    token: bytes,
    start: int,
    seq: int,
    chunks: Iterable[bytes],
    keep: list[int],
    begin: bool,
) -> SnapshotRow:
    # Under every policy: nothing may depend on a snapshot that the server could still lose.
    connection.execute("SET LOCAL synchronous_commit = on")
    cursor = connection.cursor(binary=True)
    query = "SELECT nextval(pg_get_serial_sequence('kbcore_snapshots', 'id')) FROM kbcore_meta WHERE writer = %s"
    id_row = cursor.execute(query, (token,)).fetchone()
    if id_row is None:
        raise SnapshotFailed(f"{driver.place}: another writer has taken over")
    id = id_row[0]
    count = size = crc = 0
    with cursor.copy(
        "COPY kbcore_chunks (snapshot, number, crc, data) FROM STDIN (FORMAT BINARY)"
    ) as copy:
        copy.set_types(["int8", "int8", "int8", "bytea"])
        for chunk in chunks:
            if len(chunk) > MAX_PAYLOAD:
                raise TooLarge(
                    f"a snapshot chunk of {len(chunk)} bytes is over the limit of {MAX_PAYLOAD}"
                )
            copy.write_row((id, count, crc32(chunk), bytes(chunk)))
            count, size, crc = count + 1, size + len(chunk), crc32(chunk, crc)
    row = SnapshotRow(
        id, seq, count, size, crc, table_log.snapshot_check(start, seq, count, size, crc)
    )
    cursor.execute(
        "INSERT INTO kbcore_snapshots VALUES (%s, %s, %s, %s, %s, %s)",
        (id, seq, count, size, crc, row.check),
    )
    _verify(cursor, row)
    kept_ids = [*keep, id]
    cursor.execute("DELETE FROM kbcore_snapshots WHERE NOT id = ANY(%s)", (kept_ids,))
    cursor.execute("DELETE FROM kbcore_chunks WHERE NOT snapshot = ANY(%s)", (kept_ids,))
    if begin:
        moved = cursor.execute(
            "UPDATE kbcore_meta SET first = %s, head = %s WHERE head = 0 AND writer = %s",
            (seq + 1, seq, token),
        )
        if moved.rowcount != 1:
            raise SnapshotFailed(f"{driver.place}: the log is not empty any more")
    return row


def _verify(cursor: Any, row: SnapshotRow) -> None:
    """Verify that the server returns what was written, before the snapshot counts."""
    crc = number = 0
    for number in range(row.chunks):
        chunk = cursor.execute(
            "SELECT crc, data FROM kbcore_chunks WHERE snapshot = %s AND number = %s",
            (row.id, number),
        ).fetchone()
        if chunk is None or crc32(chunk[1]) != chunk[0]:
            raise SnapshotFailed(
                f"snapshot at {row.seq} was not stored: chunk {number} was not read back as it was written"
            )
        crc = crc32(chunk[1], crc)
    if crc != row.crc:
        raise SnapshotFailed(
            f"snapshot at {row.seq} was not stored: it was not read back as it was written"
        )
