"""LISTEN and NOTIFY: followers of a log are woken when it has grown, instead of polling."""

from __future__ import annotations

from kbplugins.storage_postgres.driver import Driver
from kbplugins.storage_postgres.session import read_meta


def channel_of(log_id: bytes) -> str:
    """Return the channel on which appends to a log are announced, with the new head as text."""
    return f"kbcore_{log_id.hex()}"


def wait_for(driver: Driver, channel: str, after: int, timeout: float) -> int:
    """Wait up to `timeout` seconds until the log grows beyond `after`; return its head. Raises Unreachable."""
    connection = driver.connect("listen")
    try:
        connection.execute(f"LISTEN {channel}")
        # Read after LISTEN: an append in between is either seen here or announced.
        meta = read_meta(connection.execute)
        head = meta.head if meta is not None else 0
        if head <= after:
            for notification in connection.notifies(timeout=timeout):
                head = int(notification.payload)
                if head > after:
                    break
        return head
    except driver.psycopg.Error as error:
        raise driver.verdict(error) from error
    finally:
        connection.close()
