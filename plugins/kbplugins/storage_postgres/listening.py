"""LISTEN and NOTIFY: those that follow a log are woken when it has grown, instead of asking again and again."""

from __future__ import annotations

from kbplugins.storage_postgres.driver import Driver
from kbplugins.storage_postgres.session import read_meta


def channel_of(log_id: bytes) -> str:
    """Return the channel on which appends to a log are told; what is said there is the new head, as text."""
    return f"kbcore_{log_id.hex()}"


def wait_for(driver: Driver, channel: str, after: int, timeout: float) -> int:
    """Wait up to `timeout` seconds until the log goes beyond `after`; its head. Raises Unreachable."""
    connection = driver.connect("listen")
    try:
        connection.execute(f"LISTEN {channel}")
        # Asked after listening began: an append in between is either seen here or told.
        meta = read_meta(connection.execute)
        head = meta.head if meta is not None else 0
        if head <= after:
            for told in connection.notifies(timeout=timeout):
                head = int(told.payload)
                if head > after:
                    break
        return head
    except driver.psycopg.Error as error:
        raise driver.verdict(error) from error
    finally:
        connection.close()
