"""Settings of a connection: time limits and retries."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

RETRIED_STATUSES = frozenset((429, 503))
"""Statuses of answers that say that the same request may succeed later."""

MAX_DOUBLINGS = 32
"""Doublings of a delay after which it is larger than any limit; more would overflow a float."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds; None means no limit.

    `connect` is for a new connection, `read` for the next bytes of an answer, `write` for sending,
    and `pool` for a free connection. `events` is the longest silence of an event stream: a server
    sends a comment every 15 s. A call with `timeout_ms` waits at least that long for its answer.
    """

    connect: float | None = 5.0
    read: float | None = 60.0
    write: float | None = 30.0
    pool: float | None = 10.0
    events: float | None = 45.0


@dataclass(frozen=True, slots=True)
class Retries:
    """Repeated requests: after connection errors, and after answers with status 429 and 503.

    `attempts` is the number of repetitions. The delay before a repetition is random, up to
    `first_delay` seconds before the first one and doubled for each further one up to `max_delay`.
    `Retry-After` of an answer is the minimum; an answer that asks for more than `max_retry_after`
    seconds is not waited for.

    `events` is the number of times in a row that a stream of events which was open before is opened
    again without success; None means without end.
    """

    attempts: int = 4
    first_delay: float = 0.1
    max_delay: float = 5.0
    max_retry_after: float = 30.0
    events: int | None = None

    def delay(self, attempt: int, retry_after: float | None) -> float | None:
        """Return the seconds to wait after a failed attempt (from 0), or None to give up."""
        if attempt >= self.attempts:
            return None
        if retry_after is None:
            return self.jitter(attempt)
        return None if retry_after > self.max_retry_after else retry_after + self.jitter(attempt)

    def jitter(self, attempt: int) -> float:
        """Return random seconds to wait after a failed attempt (from 0), at most `max_delay`."""
        longest = self.first_delay * 2 ** min(attempt, MAX_DOUBLINGS)
        return random.uniform(0, min(self.max_delay, longest))  # noqa: S311


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a connection.

    With `idempotency` every write has a key, so that a server carries it out once even if it is
    sent again. With `read_your_writes` reads wait on a follower until it has the writes of this
    connection.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: Retries = field(default_factory=Retries)
    idempotency: bool = True
    read_your_writes: bool = True
    max_connections: int = 100


class Reconnection:
    """The delays before a stream of events is opened again.

    Until it was open once `Retries.attempts` limits the failures, so that a wrong address is
    reported; afterwards `Retries.events` limits those in a row. A knowledge base in this process
    does not come back, so for it `attempts` is the limit of both.
    """

    def __init__(self, retries: Retries, *, is_in_process: bool) -> None:
        self._retries = retries
        self._limit_when_open = retries.attempts if is_in_process else retries.events
        self._limit: int | None = retries.attempts
        self._failures = 0

    def opened(self) -> None:
        """Note that the server has answered."""
        self._limit = self._limit_when_open

    def received(self) -> None:
        """Note that a message came after the greeting: earlier failures no longer count."""
        self._failures = 0

    def delay(self, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait after one more failure, None to give up."""
        if self._limit is not None and self._failures >= self._limit:
            return None
        delay = (retry_after or 0.0) + self._retries.jitter(self._failures)
        self._failures += 1
        return delay


class Positions:
    """The position in the log of the last write of this connection, for each tenant."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._positions: dict[tuple[str, str], int] = {}

    def get(self, database: str, tenant: str) -> int | None:
        """Return the position of the last write to a tenant, None if there was none."""
        return self._positions.get((database, tenant))

    def advance(self, database: str, tenant: str, seq: int) -> None:
        """Record the position of a write."""
        with self._mutex:
            key = (database, tenant)
            self._positions[key] = max(seq, self._positions.get(key, 0))
