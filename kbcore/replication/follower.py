"""Follower side of replication: fetch records from the leader, verify, store and apply them.

If the leader no longer has the records that are needed, or this node has no log of the leader yet,
the follower fetches a whole snapshot. If the two logs diverge, the terms decide: a log of a later
term replaces this one, a log of an earlier term never does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from kbcore.clock import Clock
from kbcore.durable.snapshot import Restorer
from kbcore.errors import BadShipment, Diverged, KBError, LogTruncated
from kbcore.plug.ports import LogRecord, LogSeed
from kbcore.replication.leader import LogCursor, Shipment
from kbcore.replication.wire_format import Unpacking, unframed
from kbcore.state.catalog import Catalog

FIRST_REST, LONGEST_REST = 0.05, 2.0
"""Delay between attempts in seconds: after the first failure, and at most.

The delay doubles with each failure. A follower must catch up within 5 seconds after the leader is
reachable again.
"""

BATCH_RECORDS, BATCH_BYTES = 256, 1 << 20
"""Records and bytes applied at a time, with one sync; other requests run between batches."""

_log = logging.getLogger("kbcore.follow")


class LogSource(Protocol):
    """A leader as a follower reaches it.

    Every failure is reported as BadShipment. Data from the leader is verified by the caller.
    """

    def read(self, cursor: LogCursor, wait_ms: int, max_bytes: int) -> Shipment:
        """Return the records after a cursor; the leader waits up to `wait_ms` for new ones.

        Raises LogTruncated, Diverged, BadShipment.
        """

    def snapshot(self) -> AbstractContextManager[Iterator[bytes]]:
        """Return the state of the leader, in pieces; raises BadShipment."""

    def close(self) -> None:
        """Close connections; a call in progress may fail."""


@dataclass(frozen=True, slots=True)
class NewState:
    """A whole state of the leader: snapshot for the log and the same state in memory.

    `last_time` is its last logged time in epoch milliseconds.
    """

    seed: LogSeed
    chunks: list[bytes]
    catalog: Catalog
    last_time: int


class Replica(Protocol):
    """The following node, as its `Follower` uses it."""

    def cursor(self) -> LogCursor | None:
        """Return the end of the node's log, or None if the log is empty."""

    def accepted(self, cursor: LogCursor) -> None:
        """Note that the log of the leader begins with the log of this node."""

    def take(self, records: list[LogRecord], is_current: Callable[[], bool]) -> None:
        """Store records durably and apply them, if `is_current` holds then."""

    def enter(self, epoch: int) -> None:
        """Record durably that the leader has entered a later term."""

    def empty_catalog(self) -> Catalog:
        """Return an empty catalog."""

    def become(self, state: NewState, is_current: Callable[[], bool]) -> None:
        """Replace the log and state of this node, if `is_current` holds then."""


@dataclass(slots=True)
class FollowerProgress:
    """Replication state of a follower; times are monotonic seconds, None for never.

    `head` is the leader's last known record, `goal` the leader's last record at first contact.
    `as_of` is a point in time at which the state here included everything the leader had synced.
    `trouble` says why replication does not advance, empty if it does. `refused` is true if it
    cannot resume without an operator.
    """

    head: int = 0
    epoch: int = 0
    goal: int | None = None
    contact: float | None = None
    as_of: float | None = None
    trouble: str = ""
    refused: bool = False
    bootstrapping: bool = False
    bytes: int = 0
    bootstraps: int = 0
    divergences: int = 0

    def with_new_leader(self) -> FollowerProgress:
        """Return the state before the first contact with another leader."""
        return FollowerProgress(
            as_of=self.as_of,
            bytes=self.bytes,
            bootstraps=self.bootstraps,
            divergences=self.divergences,
        )


class Follower:
    """Follows a leader step by step; `start` runs the steps in a thread until `stop`.

    `poll_ms` is the time that the leader may wait for new records. `snapshot_bytes` is the maximum
    size of a snapshot.
    """

    def __init__(
        self,
        source: LogSource,
        replica: Replica,
        clock: Clock,
        *,
        yield_now: Callable[[], None],
        poll_ms: int,
        max_bytes: int,
        snapshot_bytes: int,
    ) -> None:
        self.standing = FollowerProgress()
        self.begun = clock.monotonic()
        """Start time, in seconds of the node's clock."""
        self._source = source
        self._replica = replica
        self._clock = clock
        self._yield_now = yield_now
        self._poll_ms = poll_ms
        self._max_bytes = max_bytes
        self._snapshot_bytes = snapshot_bytes
        self._rest = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start following in a thread."""
        self._thread = threading.Thread(target=self._run, name="kbcore-follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following. A batch being applied is finished; a pending request is abandoned."""
        self._stop.set()
        self._source.close()

    def step(self) -> float:
        """Send a request and apply the answer; return the seconds until the next step."""
        try:
            self._advance()
        except KBError as error:
            return self._failed(error)
        self._rest = 0.0
        if self.standing.trouble:
            _log.info("the leader answers again")
        self.standing.trouble, self.standing.refused = "", False
        return 0.0

    def _is_current(self) -> bool:
        return not self._stop.is_set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                rest = self.step()
            except Exception as error:  # noqa: BLE001 - readiness reports it; the next step retries
                _log.exception("following failed")
                rest = self._failed(BadShipment(f"an unexpected failure: {type(error).__name__}"))
            if rest:
                self._stop.wait(rest)

    def _failed(self, error: KBError) -> float:
        if self._stop.is_set():
            return 0.0
        if error.message != self.standing.trouble:
            _log.warning("not following: %s", error.message)
        self.standing.trouble = error.message
        self._rest = min(LONGEST_REST, self._rest * 2 or FIRST_REST)
        return self._rest

    def _advance(self) -> None:
        cursor = self._replica.cursor()
        if cursor is None:
            self._bootstrap("there is nothing here yet", None)
            return
        sent = self._clock.monotonic()
        try:
            shipment = self._source.read(cursor, self._poll_ms, self._max_bytes)
        except LogTruncated:
            self._bootstrap("the leader no longer keeps what comes next", cursor)
            return
        except Diverged as error:
            self._judge(error, cursor)
            return
        if shipment.log_id != cursor.log_id:
            raise BadShipment("an answer from another log than the one that was asked for")
        self._same_or_later(shipment.epoch, cursor)
        self._replica.accepted(cursor)
        self._met(shipment.epoch, shipment.head)
        self._take(shipment, cursor.after)
        self.standing.bytes += len(shipment.data)
        after = self._replica.cursor()
        if after is not None and after.after >= shipment.head:
            self.standing.as_of = sent + shipment.waited

    def _met(self, epoch: int, head: int) -> None:
        standing = self.standing
        standing.contact = self._clock.monotonic()
        standing.epoch, standing.head = epoch, head
        if standing.goal is None:
            standing.goal = head

    def _take(self, shipment: Shipment, after: int) -> None:
        """Apply the new records of a shipment; skip known records, and stop at a gap."""
        batch: list[LogRecord] = []
        size = 0
        for record in unframed(shipment.data, shipment.log_id):
            if record.seq <= after:
                continue
            if record.seq != after + 1:
                raise BadShipment(f"record {record.seq} where {after + 1} should come")
            batch.append(record)
            after, size = record.seq, size + len(record.payload)
            if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
                self._replica.take(batch, self._is_current)
                batch, size = [], 0
                self._yield_now()
        if batch:
            self._replica.take(batch, self._is_current)

    def _same_or_later(self, epoch: int, cursor: LogCursor) -> None:
        if epoch < cursor.epoch:
            self._refuse(
                f"an old leader came back: it is in term {epoch}, this node in {cursor.epoch}"
            )
        if epoch > cursor.epoch:
            self._replica.enter(epoch)

    def _judge(self, error: Diverged, cursor: LogCursor) -> None:
        """Resolve diverged logs: a log of a later term replaces this one, any other is refused."""
        details = error.details or {}
        self.standing.divergences += 1
        epoch = details.get("epoch", 0)
        self._met(epoch, details.get("head", 0))
        if epoch > cursor.epoch:
            _log.warning(
                "%s: its term is %d, the one here %d; fetching the whole state again",
                error,
                epoch,
                cursor.epoch,
            )
            self._bootstrap("the logs have diverged", cursor)
            return
        self._refuse(
            f"{error.message} (its term is {epoch}, the one here {cursor.epoch}): the log here ends at {cursor.after}, the "
            f"leader's at {details.get('head')}. Nothing is thrown away: empty the storage of this node to make it follow"
        )

    def _refuse(self, why: str) -> None:
        self.standing.refused = True
        raise Diverged(why)

    def _bootstrap(self, why: str, cursor: LogCursor | None) -> None:
        """Fetch the whole state from the leader.

        The current state serves reads until the new one is complete, verified and durable.
        """
        _log.info("fetching the state of the leader: %s", why)
        catalog = self._replica.empty_catalog()
        self.standing.bootstrapping = True
        try:
            restorer, chunks = Restorer(catalog), list[bytes]()
            reading = Unpacking(self._snapshot_bytes)
            with self._source.snapshot() as pieces:
                for piece in pieces:
                    if self._stop.is_set():
                        raise BadShipment("following has ended")
                    for chunk in reading.feed(piece):
                        if not chunks and reading.seed is not None and cursor is not None:
                            self._not_earlier(reading.seed, cursor)
                        chunks.append(chunk)
                        restorer.feed(chunk)
                        self._yield_now()
            if reading.seed is None or not reading.whole:
                raise BadShipment("the snapshot ends too early")
            if cursor is not None:
                self._not_earlier(reading.seed, cursor)
            for tenant in catalog.tenants():
                tenant.seq = tenant.seq or reading.seed.seq
            self._met(reading.seed.epoch, max(self.standing.head, reading.seed.seq))
            self._replica.become(
                NewState(reading.seed, chunks, catalog, restorer.last), self._is_current
            )
        except BaseException:
            catalog.close()
            raise
        finally:
            self.standing.bootstrapping = False
        self.standing.bytes += reading.size
        self.standing.bootstraps += 1
        self.standing.goal = None  # the new goal is the leader's last record at the next contact
        _log.info("the state at record %d of log %s is here", reading.seed.seq, reading.seed.log_id)

    def _not_earlier(self, seed: LogSeed, cursor: LogCursor) -> None:
        """Refuse a snapshot older than this node's state, unless the leader is in a later term."""
        if seed.epoch > cursor.epoch:
            return
        if seed.epoch < cursor.epoch or seed.log_id != cursor.log_id:
            self._refuse(
                f"a snapshot of log {seed.log_id}, term {seed.epoch}, while this node is in term {cursor.epoch}"
            )
        if seed.seq < cursor.after:
            raise BadShipment(f"a snapshot at {seed.seq} while this node is at {cursor.after}")
