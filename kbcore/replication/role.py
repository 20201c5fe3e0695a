"""What a node is in replication: nothing, a leader, or a follower until it is promoted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kbcore.clock import LoggedClock
from kbcore.config.settings import Config
from kbcore.durable.commit import Committer
from kbcore.errors import ConfigError, Conflict, LogTruncated, NotReady, StorageFailed
from kbcore.metrics import catalogue as m
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogRecord, LogSeed, LogStore, TakesOver
from kbcore.replication.follower import Follower, LogSource
from kbcore.replication.leader import Cursor, Leader, Progress
from kbcore.replication.leader_mark import leader_of, pledge
from kbcore.replication.wire_format import record_crc
from kbcore.state.access import Accesses, Uncounted
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeSet, Delta

NONE, LEADER, FOLLOWER = "none", "LEADER", "FOLLOWER"

MIN_SEQ_SECONDS = 2.0
"""How long a read waits for the place in the log it asks for."""

SILENT_SECONDS = 10.0
"""After so long without an answer a leader counts as lost."""

SHORTEST_TOKEN = 16
"""Characters of a REPLICATION_TOKEN; none is needed where whoever reaches a node may read everything anyway."""

POLL_BYTES = 1 << 20
MOST_SNAPSHOT_BYTES = 8 << 30
"""The largest state a follower fetches."""

_log = logging.getLogger("kbcore.replication")


def check_settings(config: Config) -> None:
    """Raise ConfigError where the settings of replication do not fit each other."""
    mode = config.replication_mode
    if mode == NONE:
        return
    if config.replication_token and len(config.replication_token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"REPLICATION_MODE={mode}: REPLICATION_TOKEN has to be a secret of {SHORTEST_TOKEN} characters or more, or none"
        )
    if config.storage_backend == "memory":
        raise ConfigError(
            f"REPLICATION_MODE={mode}: STORAGE_BACKEND=memory keeps no log to replicate"
        )
    if mode == FOLLOWER and not config.leader_url:
        raise ConfigError("REPLICATION_MODE=FOLLOWER: LEADER_URL has to say whom to follow")
    if mode == LEADER and config.fsync_policy != "always":
        raise ConfigError(
            f"REPLICATION_MODE=LEADER: FSYNC_POLICY has to be always, not {config.fsync_policy}: only what is synced is"
            " sent, or a crash of the leader would leave its followers ahead of it"
        )


@dataclass(frozen=True, slots=True)
class Promoted:
    """What a promotion came to: whose log goes on, in which term, after which record."""

    log_id: str
    epoch: int
    seq: int


def raise_term(config: Config) -> Promoted:
    """Promote a follower that is not running: enter a later term in its storage. Raises StorageBusy where it runs."""
    store = Plugins(config).open_storage()
    try:
        status = store.status()
        if not isinstance(store, TakesOver) or not status.head:
            raise ConfigError("there is no knowledge base, or its storage cannot be promoted")
        store.raise_epoch(status.epoch + 1)
        pledge(store, "")
        return Promoted(status.log_id, status.epoch + 1, status.head)
    finally:
        store.close()


class LastCommit(threading.local):
    """The place in the log of what the thread (under the server: the request) committed last, 0 for nothing yet."""

    seq = 0


class Replication:
    """The part of a runtime that replicates; implements `durable.follow.Replica`.

    `wrote` is called with what came with the log of the leader, `became` when all state was replaced, `led` when the node
    has become a leader. `replacing` is held while log and state are replaced, and by whoever needs them to stay.
    """

    def __init__(
        self,
        store: LogStore,
        catalog: Catalog,
        committer: Committer,
        clock: LoggedClock,
        config: Config,
        *,
        make_catalog: Callable[[], Catalog],
        offload_disk: Callable[[Callable[[], Any]], Any],
        pause: Callable[[], None],
        wrote: Callable[[ChangeSet, Delta], None],
    ) -> None:
        self.role = config.replication_mode
        self.follower: Follower | None = None
        self.leader = Leader(store, clock, config, pause)
        self.last_commit = LastCommit()
        self.on_became: list[Callable[[], None]] = []
        self.on_led: list[Callable[[], None]] = []
        self._config = config
        self._store = store
        self._catalog = catalog
        self._committer = committer
        self._clock = clock
        self._make_catalog = make_catalog
        self._offload_disk = offload_disk
        self._pause = pause
        self._wrote = wrote
        self._applied = Progress(store.status().head)
        self._last: tuple[int, int] | None = None
        self._promoting = threading.Lock()
        self.replacing = threading.Lock()
        self._lagging: set[str] = set()
        committer.wrote = self.leader.wrote
        if self.role == FOLLOWER and not isinstance(store, TakesOver):
            raise ConfigError(
                f"STORAGE_BACKEND={config.storage_backend} cannot follow another node"
            )
        # A follower's storage that is opened for something else is read only: a write would never reach the leader.
        committer.leader = config.leader_url if self.role == FOLLOWER else leader_of(store) or None
        if committer.leader is not None:
            self._count_accesses(catalog, False)

    # -- what every request may ask ----------------------------------------------------------------

    @property
    def leader_url(self) -> str | None:
        """Where writes are taken, None where they are taken here."""
        return self._committer.leader

    def lag_ms(self) -> int | None:
        """How old, at most, what a read here sees is, in milliseconds; None on a leader, and before anything has come."""
        if self.follower is None or self.role != FOLLOWER or self.follower.standing.as_of is None:
            return None
        return max(0, round((self._clock.monotonic() - self.follower.standing.as_of) * 1000))

    def wait_for(self, seq: int, seconds: float = MIN_SEQ_SECONDS) -> None:
        """Wait until all up to a place in the log is applied here; raises NotReady when that takes too long."""
        if self.role == FOLLOWER:
            reached = self._applied.wait(lambda: self._applied.reached >= seq, seconds, self._clock)
            at = self._applied.reached
        else:
            synced = self.leader.synced
            reached = synced.wait(lambda: self._store.status().head >= seq, seconds, self._clock)
            at = self._store.status().head
        if not reached:
            raise NotReady(
                f"not caught up: this node is at {at} and the request wants {seq}",
                {"reason": "not caught up", "wanted": seq, "applied": at},
            )

    def check(self) -> dict[str, Any]:
        """The check of readiness; a node that does not replicate has nothing to fail."""
        if self.role == NONE:
            return {"status": "pass", "message": "this node does not replicate"}
        if self.role == LEADER:
            followers = self.leader.followers()
            return {"status": "pass", "message": f"leader, {len(followers)} followers"}
        if self.follower is None:
            return {"status": "fail", "message": "follower, not started"}
        return self._follower_check(self.follower)

    def _follower_check(self, follower: Follower) -> dict[str, Any]:
        standing, now, applied = follower.standing, self._clock.monotonic(), self._applied.reached

        def found(status: str, message: str) -> dict[str, Any]:
            return {
                "status": status,
                "message": f"follower of {self._config.leader_url}: {message}",
            }

        if standing.refused:
            return found("fail", standing.trouble)
        if standing.goal is None and standing.contact is None:
            return found(
                "fail",
                f"no contact with the leader yet{standing.trouble and ': '}{standing.trouble}",
            )
        if standing.goal is None or applied < standing.goal or standing.as_of is None:
            return found("fail", f"catching up, at {applied} of {standing.head}")
        lag = now - standing.as_of
        if standing.contact is None or now - standing.contact > SILENT_SECONDS or standing.trouble:
            lost = found(
                "warn", f"the leader does not answer; what is read here is {lag:.0f} seconds old"
            )
            return lost if lag <= self._config.ready_stale_s else {**lost, "status": "fail"}
        if lag > self._config.ready_max_lag_s:
            return found("fail", f"{lag:.0f} seconds behind, at {applied} of {standing.head}")
        return found("pass", f"at {applied}")

    def describe(self) -> dict[str, Any]:
        """Role, log and how far it goes; on a leader its followers, on a follower how it stands with its leader."""
        status = self._store.status()
        shape: dict[str, Any] = {
            "role": self.role,
            "logId": status.log_id,
            "epoch": status.epoch,
            "head": status.head,
            "durable": status.durable,
            "snapshot": status.snapshot,
        }
        now = self._clock.monotonic()
        if self.role == FOLLOWER and self.follower is not None:
            standing = self.follower.standing
            silent = None if standing.contact is None else round((now - standing.contact) * 1000)
            shape["leader"] = {
                "url": self._config.leader_url,
                "head": standing.head,
                "epoch": standing.epoch,
                "lagRecords": max(0, standing.head - self._applied.reached),
                "lagMs": self.lag_ms(),
                "lastContactMs": silent,
                "bootstraps": standing.bootstraps,
                "divergences": standing.divergences,
                "trouble": standing.trouble or None,
            }
        shape["followers"] = [
            {
                "name": known.name,
                "seq": known.seq,
                "lagRecords": max(0, status.durable - known.seq),
                "lastContactMs": round((now - known.seen) * 1000),
            }
            for known in self.leader.followers()
        ]
        return shape

    def values(self) -> Iterator[tuple[m.MetricSpec, tuple[str, ...], float]]:
        """What there is to tell sinks of metrics."""
        if self.follower is not None:
            # One that was promoted lags behind nobody; one that has heard nothing yet has been silent since it began.
            standing, now, begun = (
                self.follower.standing,
                self._clock.monotonic(),
                self.follower.begun,
            )
            follows, applied = self.role == FOLLOWER, self._applied.reached
            as_of = begun if standing.as_of is None else standing.as_of
            yield m.REPLICATION_HEAD, (), standing.head
            yield m.REPLICATION_APPLIED, (), applied
            yield m.REPLICATION_LAG_RECORDS, (), max(0, standing.head - applied) * follows
            yield m.REPLICATION_LAG_SECONDS, (), max(0.0, now - as_of) * follows
            yield (
                m.REPLICATION_CONTACT,
                (),
                (now - (begun if standing.contact is None else standing.contact)) * follows,
            )
            yield m.REPLICATION_BYTES, (), standing.bytes
            yield m.REPLICATION_BOOTSTRAPS, (), standing.bootstraps
            yield m.REPLICATION_DIVERGENCES, (), standing.divergences
        if self.role == LEADER:
            durable = self._store.status().durable
            lags = {known.name: max(0, durable - known.seq) for known in self.leader.followers()}
            for name in {
                *self._lagging,
                *lags,
            }:  # what is forgotten must not stay as it was last seen
                yield m.FOLLOWER_LAG_RECORDS, (name,), lags.get(name, 0)
            self._lagging = set(lags)

    # -- following ---------------------------------------------------------------------------------

    def follow(self, source: LogSource, *, start: bool = True) -> Follower:
        """Begin to follow a leader, which the storage notes; with `start` in a thread of its own."""
        config = self._config
        self._offload_disk(lambda: pledge(self._store, config.leader_url))
        self.follower = Follower(
            source,
            self,
            self._clock,
            pause=self._pause,
            poll_ms=config.replication_poll_ms,
            max_bytes=POLL_BYTES,
            snapshot_bytes=MOST_SNAPSHOT_BYTES,
        )
        if start:
            self.follower.start()
        return self.follower

    def cursor(self) -> Cursor | None:
        """How far the log here goes; None where it is empty and of its own making."""
        status = self._store.status()
        if not status.head and not status.snapshot and not self._is_replica():
            return None
        return Cursor(
            status.log_id, status.epoch, status.head, self._last_crc(status.log_id, status.head)
        )

    def _is_replica(self) -> bool:
        """Whether an empty log was already taken over from the leader in this process."""
        return self.follower is not None and self.follower.standing.bootstraps > 0

    def _last_crc(self, log_id: str, head: int) -> int | None:
        if self._last is None or self._last[0] != head:
            try:
                found = next(self._store.read(head - 1), None) if head else None
            except LogTruncated:  # all there is is a snapshot
                found = None
            if found is None:
                return None
            self._last = head, record_crc(log_id, found)
        return self._last[1]

    def take(self, records: list[LogRecord]) -> None:
        """Make records of the leader durable and apply them."""
        taken = self._committer.take(records)
        self._last = records[-1].seq, record_crc(self._store.status().log_id, records[-1])
        for changes, delta in taken:
            self._wrote(changes, delta)
        self._applied.moved(records[-1].seq)

    def enter(self, epoch: int) -> None:
        """Note durably that the leader is in a later term."""
        _log.info("the leader is in term %d", epoch)
        self._raise(epoch)

    def empty_catalog(self) -> Catalog:
        """A state to be filled."""
        return self._make_catalog()

    def become(self, seed: LogSeed, chunks: list[bytes], catalog: Catalog, last_time: int) -> None:
        """Put the leader's log and state in the place of what is here."""

        def swap(_: int) -> None:
            if self._committer.leader is None:
                raise NotReady("this node does not follow another one")
            self._on_disk(lambda log: log.replace_with(seed, chunks))
            self._clock.seen(last_time)
            self._last = None
            self._count_accesses(catalog, False)
            self._catalog.become(catalog)

        with self.replacing:  # first: a snapshot that is being taken needs the committer to begin
            self._committer.exclusively(swap)
        self._applied.reached = seed.seq
        self._applied.wake()
        for tell in self.on_became:
            tell()

    # -- becoming a leader -------------------------------------------------------------------------

    def promote(self, *, force: bool = False) -> Promoted:
        """Make a follower take writes, in a later term than any it knows of, which is durable before the first write.

        Raises Conflict on a node that is no follower, and, unless forced, while the leader answers: two leaders would each
        take writes that the other never sees.
        """
        with self._promoting:
            follower = self.follower
            if self.role != FOLLOWER or follower is None:
                raise Conflict(
                    f"only a follower can be promoted; this node's role is {self.role}",
                    {"role": self.role},
                )
            standing = follower.standing
            if self.cursor() is None or standing.bootstrapping:
                raise Conflict(
                    "this follower has not got the leader's state yet", {"reason": "bootstrap"}
                )
            contact = standing.contact
            answers = (
                contact is not None
                and not standing.trouble
                and self._clock.monotonic() - contact < SILENT_SECONDS
            )
            if answers and not force:
                raise Conflict(
                    "the leader still answers; stop it first (or force the promotion)",
                    {"reason": "leader alive", "leader": self._config.leader_url},
                )

            def lead(head: int) -> Promoted:
                epoch = max(self._store.status().epoch, standing.epoch) + 1
                self._raise(epoch)
                self._on_disk(lambda log: pledge(self._store, ""))
                self._committer.leader = None
                self.role = LEADER
                self._count_accesses(self._catalog, True)
                return Promoted(self._store.status().log_id, epoch, head)

            done = self._committer.exclusively(lead)
            follower.stop()
        _log.warning(
            "promoted: this node leads log %s from record %d on, in term %d",
            done.log_id,
            done.seq + 1,
            done.epoch,
        )
        for tell in self.on_led:
            tell()
        return done

    def close(self) -> None:
        """Follow no more, and answer every follower that waits."""
        if self.follower is not None:
            self.follower.stop()
        self.leader.close()

    def _raise(self, epoch: int) -> None:
        self._on_disk(lambda log: log.raise_epoch(epoch))

    def _on_disk(self, change: Callable[[TakesOver], None]) -> None:
        log = self._store
        if not isinstance(log, TakesOver):
            raise ConfigError("this storage cannot follow another node")
        try:
            self._offload_disk(lambda: change(log))
        except StorageFailed as error:
            self._committer.give_up(error)
            raise

    @staticmethod
    def _count_accesses(catalog: Catalog, counted: bool) -> None:
        """A follower writes down no accesses: its state is the leader's."""
        catalog.counts = counted
        for tenant in catalog.tenants():
            if isinstance(tenant.accesses, Uncounted) is counted:
                tenant.accesses = Accesses() if counted else Uncounted()
