"""Replication role of a node: none, leader, or follower until it is promoted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kbcore.config.lint import MIN_SECRET_CHARS
from kbcore.config.settings import Config
from kbcore.durable.commit import Committer
from kbcore.errors import ConfigError, Conflict, LogTruncated, NotReady, StorageFailed
from kbcore.metrics import catalogue as m
from kbcore.plug.coordination import Coordinator
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogRecord, LogStatus, LogStore, RemembersLeader, TakesOver
from kbcore.replication.failover import Connect, Failover
from kbcore.replication.follower import Follower, FollowerProgress, LogSource, NewState
from kbcore.replication.in_sync import NO_MEMBER, InSync
from kbcore.replication.leader import Leader, LogCursor, ReceivedProgress
from kbcore.replication.wire_format import record_crc
from kbcore.scheduling import Scheduling
from kbcore.state.access import Accesses, Uncounted
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeSet, Delta
from kbplanner.syntax.diagnostics import counted

NONE, LEADER, FOLLOWER = "none", "LEADER", "FOLLOWER"

MIN_SEQ_SECONDS = 2.0
"""Default time in seconds that a read waits for a sequence number."""

SILENT_SECONDS = 10.0
"""Seconds without an answer after which a leader counts as lost."""

POLL_BYTES = 1 << 20
MAX_SNAPSHOT_BYTES = 8 << 30
"""Maximum size of a snapshot that a follower fetches, in bytes."""

_log = logging.getLogger("kbcore.replication")


def check_settings(config: Config) -> None:
    """Raise ConfigError if the replication settings contradict each other."""
    mode = config.replication_mode
    if config.cluster_url:
        if mode != NONE:
            raise ConfigError(
                f"REPLICATION_MODE={mode}: the nodes of a cluster (CLUSTER_URL) share one storage and do not replicate"
            )
    elif config.coordinator_url:
        _check_coordinated(config)
    if mode == NONE:
        if config.replication_sync:
            raise ConfigError(
                "REPLICATION_SYNC is set, but this node does not replicate: set REPLICATION_MODE to LEADER or FOLLOWER"
            )
        return
    # An empty token is for networks in which every client may read everything.
    if 0 < len(config.replication_token) < MIN_SECRET_CHARS:
        raise ConfigError(
            f"REPLICATION_MODE={mode}: REPLICATION_TOKEN must be empty or have at least {MIN_SECRET_CHARS} characters"
        )
    if config.storage_backend == "memory":
        raise ConfigError(
            f"REPLICATION_MODE={mode}: STORAGE_BACKEND=memory keeps no log to replicate"
        )
    if mode == FOLLOWER and not config.leader_url and not config.coordinator_url:
        raise ConfigError("REPLICATION_MODE=FOLLOWER: set LEADER_URL to the address of the leader")
    if mode == LEADER and config.fsync_policy != "always":
        raise ConfigError(
            f"REPLICATION_MODE=LEADER: FSYNC_POLICY must be always, not {config.fsync_policy}; otherwise a crash of the"
            " leader would leave its followers ahead of it"
        )
    if is_sync(config) and config.fsync_policy != "always":
        raise ConfigError(
            f"REPLICATION_SYNC: FSYNC_POLICY must be always, not {config.fsync_policy}; otherwise a follower would"
            " confirm writes that it can lose"
        )


def _check_coordinated(config: Config) -> None:
    if config.replication_mode == NONE:
        raise ConfigError(
            "COORDINATOR_URL: set REPLICATION_MODE=LEADER on the node that has the data at the first start, and FOLLOWER"
            " on the others; the coordinator decides afterwards"
        )
    if not config.advertise_url:
        raise ConfigError(
            "COORDINATOR_URL: set ADVERTISE_URL to the address at which the other nodes reach this one"
        )


def is_sync(config: Config) -> bool:
    """Return True if a leader with these settings waits for followers that are in sync."""
    return config.replication_sync or bool(config.coordinator_url)


# -- leader mark: stores in the log which leader the log follows -------------------------------
# While the mark is set, only records from that leader may be appended. The settings name the leader
# too, but a command on the folder of a stopped follower does not see the settings of its server.


def leader_of(store: LogStore) -> str:
    """Return the leader's address, or "" if the storage has or supports no leader mark."""
    return store.leader() if isinstance(store, RemembersLeader) else ""


def set_leader_mark(store: LogStore, leader: str) -> None:
    """Set the leader mark durably, "" to clear it; raises StorageFull, StorageFailed."""
    if isinstance(store, RemembersLeader) and store.leader() != leader:
        store.remember(leader)


def check_leader_mark(store: LogStore, config: Config) -> None:
    """Raise ConfigError if a node would lead with the storage of an unpromoted follower."""
    if config.coordinator_url:
        return
    if config.replication_mode == "LEADER" and (leader := leader_of(store)):
        raise follower_storage_error(leader, "REPLICATION_MODE=LEADER")


def follower_storage_error(leader: str, setting: str) -> ConfigError:
    """Return the error for serving the storage of a follower as a standalone node."""
    return ConfigError(
        f"{setting}: this storage follows {leader}; start it with REPLICATION_MODE=FOLLOWER, or make it a leader first"
        " with `kbcore promote`"
    )


@dataclass(frozen=True, slots=True)
class Promotion:
    """Result of a promotion: the log id, the new term, and the record it follows."""

    log_id: str
    epoch: int
    seq: int


def raise_term(config: Config) -> Promotion:
    """Promote a stopped follower by entering a later term in its storage.

    Raises StorageBusy if the follower is running.
    """
    store = Plugins(config).open_storage()
    try:
        status = store.status()
        if not isinstance(store, TakesOver) or not status.head:
            raise ConfigError("the storage has no knowledge base or cannot be promoted")
        store.raise_epoch(status.epoch + 1)
        set_leader_mark(store, "")
        return Promotion(status.log_id, status.epoch + 1, status.head)
    finally:
        store.close()


class LastCommit(threading.local):
    """Sequence number of the last commit of the thread (in the server: of the request), or 0."""

    seq = 0


class Replication:
    """Replication in a runtime; implements `durable.follow.Replica`.

    `wrote` is called with the records that arrived from the leader, `became` after all state was
    replaced, and `led` when the node has become a leader. `replacing` is held while log and state
    are replaced, and by callers that need them to stay unchanged.
    """

    def __init__(
        self,
        committer: Committer,
        config: Config,
        scheduling: Scheduling,
        wrote: Callable[[ChangeSet, Delta], None],
    ) -> None:
        self._committer = committer
        self._store = store = committer.store
        self._catalog = committer.catalog
        self._clock = committer.clock
        self._config = config
        self._scheduling = scheduling
        self._wrote = wrote
        self._is_coordinated = bool(config.coordinator_url)
        self.role = FOLLOWER if self._is_coordinated else config.replication_mode
        self.turn = 0
        """Number of changes of the role so far."""
        self.failover: Failover | None = None
        """The election of the leader, if a coordinator decides about the role."""
        self.follower: Follower | None = None
        self.leader = Leader(store, self._clock, config, scheduling.yield_now)
        self.last_commit = LastCommit()
        self.on_became: list[Callable[[], None]] = []
        self.on_role: list[Callable[[], None]] = []
        """Called after the node has become a leader, or a follower again."""
        self._standing = FollowerProgress()
        """State of replication from the current leader, or the last one."""
        self._applied = ReceivedProgress(store.status().head)
        self._last: tuple[int, int] | None = None
        self._promoting = threading.Lock()
        self.replacing = threading.Lock()
        self._lagging: set[str] = set()
        committer.wrote = self.leader.wrote
        committer.applied_late = wrote
        if self.role == FOLLOWER and not isinstance(store, TakesOver):
            raise ConfigError(
                f"STORAGE_BACKEND={config.storage_backend} cannot follow another node"
            )
        # A follower's storage opened by a tool is read-only: a write would not reach the leader.
        if self._is_coordinated:
            committer.leader = ""
        elif self.role == FOLLOWER:
            committer.leader = config.leader_url
        else:
            committer.leader = leader_of(store) or None
        if committer.leader is not None:
            self._count_accesses(self._catalog, False)
        if self.role == LEADER and is_sync(config):
            self._committer.exclusively(self._hold)

    def _hold(
        self,
        head: int,
        members: Sequence[str] = (),
        record: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """Let writes wait for followers from now on; within `exclusively`."""
        in_sync = InSync(
            self._committer,
            self._clock,
            self._config.replication_sync_timeout_ms / 1000,
            start=head,
            members=members,
            record=record,
            progressed=self.leader.synced.wake,
        )
        self._committer.held, self._committer.admitting = True, self._admit
        self.leader.in_sync = in_sync
        in_sync.start()

    def _admit(self) -> None:
        """Raise NotReady if a write could not be acknowledged now."""
        if self.failover is not None:
            self.failover.check_lease("not_done")
        if (in_sync := self.leader.in_sync) is not None:
            in_sync.admit()

    def check_answer(self, turn: int) -> None:
        """Raise NotReady if an answer that was begun in this turn may be outdated.

        With a coordinator, a leader answers only while its lease is valid and the in-sync set has
        everything that is visible, and a follower only if it knows the age of its state. Without
        one every answer is allowed.
        """
        if self.failover is None:
            return
        if turn != self.turn:
            raise NotReady("the role of this node has changed during the request")
        if self.role == FOLLOWER:
            if self.lag_ms() is None:
                raise NotReady("this follower has had no contact with a leader yet")
            return
        self.failover.check_lease(None)
        if (in_sync := self.leader.in_sync) is not None and not in_sync.is_settled:
            raise NotReady("this node leads, but its followers have not confirmed its state yet")

    # -- queries of every request ----------------------------------------------------------------

    @property
    def leader_url(self) -> str | None:
        """Return the address that accepts writes, "" if it is unknown, None if this node does."""
        return self._committer.leader

    @property
    def accepts_writes(self) -> bool:
        """True if this node leads, or does not replicate, and a write could be acknowledged now."""
        if self.leader_url is not None:
            return False
        try:
            self._admit()
        except NotReady:
            return False
        return True

    def lag_ms(self) -> int | None:
        """Return the maximum age of the state that reads see, in milliseconds.

        The result is None on a leader, and before the first answer of the leader.
        """
        if self.role != FOLLOWER or self._standing.as_of is None:
            return None
        return max(0, round((self._clock.monotonic() - self._standing.as_of) * 1000))

    def wait_for(self, seq: int, seconds: float = MIN_SEQ_SECONDS) -> None:
        """Wait until the log is applied up to `seq`; raises NotReady after `seconds`."""
        if self.role == FOLLOWER:
            reached = self._applied.wait(lambda: self._applied.reached >= seq, seconds, self._clock)
            at = self._applied.reached
        else:
            synced = self.leader.synced
            reached = synced.wait(lambda: self._committer.visible >= seq, seconds, self._clock)
            at = self._committer.visible
        if not reached:
            raise NotReady(
                f"not caught up: this node is at {at} and the request requires {seq}",
                {"reason": "not caught up", "wanted": seq, "applied": at},
            )

    def check(self) -> dict[str, Any]:
        """Return the readiness check; a node without replication always passes."""
        if self.role == NONE:
            return {"status": "pass", "message": "this node does not replicate"}
        if self.role == LEADER:
            message = f"leader, {counted(len(self.leader.followers()), 'follower')}"
            if (in_sync := self.leader.in_sync) is None:
                return {"status": "pass", "message": message}
            message = f"{message}, {len(in_sync.members)} in sync"
            if self.failover is not None:
                message = f"{message}, term {self._store.status().epoch}"
                if not self.failover.remaining():
                    return {"status": "fail", "message": f"{message}; its lease has ended"}
                message = f"{message}, lease for {self.failover.remaining():.1f} s"
            if not in_sync.members:
                return {
                    "status": "warn",
                    "message": f"{message}; {NO_MEMBER}: writes are refused",
                }
            return {"status": "pass", "message": message}
        if self.follower is None:
            problem = "there is no leader" if self._is_coordinated else "not started"
            return {"status": "fail", "message": f"follower, {problem}"}
        return self._follower_check(self.follower)

    def _follower_check(self, follower: Follower) -> dict[str, Any]:
        standing, now, applied = follower.standing, self._clock.monotonic(), self._applied.reached

        def found(status: str, message: str) -> dict[str, Any]:
            return {
                "status": status,
                "message": f"follower of {self.leader_url or 'a lost leader'}: {message}",
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
                "warn",
                f"the leader does not answer; what is read here is {counted(round(lag), 'second')} old",
            )
            return lost if lag <= self._config.ready_stale_s else {**lost, "status": "fail"}
        if lag > self._config.ready_max_lag_s:
            return found(
                "fail", f"{counted(round(lag), 'second')} behind, at {applied} of {standing.head}"
            )
        return found("pass", f"at {applied}")

    def describe(self) -> dict[str, Any]:
        """Return the role, the log and its position.

        On a leader the result lists its followers, on a follower the replication state.
        """
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
                "url": self.leader_url or None,
                "head": standing.head,
                "epoch": standing.epoch,
                "lagRecords": max(0, standing.head - self._applied.reached),
                "lagMs": self.lag_ms(),
                "lastContactMs": silent,
                "bootstraps": standing.bootstraps,
                "divergences": standing.divergences,
                "trouble": standing.trouble or None,
            }
        if self.failover is not None and self.failover.token is not None:
            remaining_ms = round(self.failover.remaining() * 1000)
            shape["lease"] = {"token": self.failover.token, "remainingMs": remaining_ms}
        in_sync = self.leader.in_sync
        members = in_sync.members if in_sync is not None else frozenset()
        shape["followers"] = [
            {
                "name": known.name,
                "seq": known.seq,
                "lagRecords": max(0, status.durable - known.seq),
                "lastContactMs": round((now - known.seen) * 1000),
                "inSync": known.name in members,
            }
            for known in self.leader.followers()
        ]
        return shape

    def values(self) -> Iterator[tuple[m.MetricSpec, tuple[str, ...], float]]:
        """Yield the metric values of replication."""
        if self.follower is not None:
            # A promoted node has no lag. Before first contact, silence counts from the start.
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
        if self.role != NONE:
            yield m.IS_LEADER, (), int(self.role == LEADER)
            yield m.TERM, (), self._store.status().epoch
            yield m.ROLE_CHANGES, (), self.turn
        if self.failover is not None:
            yield m.LEASE_SECONDS, (), self.failover.remaining()
        if (in_sync := self.leader.in_sync) is not None:
            yield m.IN_SYNC_FOLLOWERS, (), len(in_sync.members)
        if self.role == LEADER:
            durable = self._store.status().durable
            lags = {known.name: max(0, durable - known.seq) for known in self.leader.followers()}
            for name in {
                *self._lagging,
                *lags,
            }:  # reset the gauges of forgotten followers
                yield m.FOLLOWER_LAG_RECORDS, (name,), lags.get(name, 0)
            self._lagging = set(lags)

    # -- following ---------------------------------------------------------------------------------

    def follow(self, source: LogSource, *, start: bool = True) -> Follower:
        """Follow a leader and set the leader mark; with `start`, run in a separate thread."""
        config = self._config
        mark = self._committer.leader or config.leader_url
        self._scheduling.offload_disk(lambda: set_leader_mark(self._store, mark))
        self.follower = Follower(
            source,
            self,
            self._clock,
            yield_now=self._scheduling.yield_now,
            poll_ms=config.replication_poll_ms,
            max_bytes=POLL_BYTES,
            snapshot_bytes=MAX_SNAPSHOT_BYTES,
        )
        self.follower.standing = self._standing = self._standing.with_new_leader()
        if start:
            self.follower.start()
        return self.follower

    def cursor(self) -> LogCursor | None:
        """Return the end of the log, or None if the log is empty and not a replica."""
        status = self._store.status()
        if not status.head and not status.snapshot and not self._is_replica():
            return None
        return LogCursor(
            status.log_id,
            status.epoch,
            status.head,
            self._last_crc(status.log_id, status.head),
            status.durable,
        )

    def _is_replica(self) -> bool:
        """Return true if an empty log was taken over from the leader in this process."""
        return self._standing.bootstraps > 0

    def _last_crc(self, log_id: str, head: int) -> int | None:
        if self._last is None or self._last[0] != head:
            try:
                record = next(self._store.read(head - 1), None) if head else None
            except LogTruncated:  # the log has only a snapshot
                record = None
            if record is None:
                return None
            self._last = head, record_crc(log_id, record)
        return self._last[1]

    def accepted(self, cursor: LogCursor) -> None:
        """Apply the unconfirmed writes of this node from its time as a leader: the new leader has
        them.
        """
        if self._committer.unconfirmed:
            self._committer.confirm(cursor.after)
            self._committer.exclusively(self._applied.moved)  # when everything is applied

    def take(self, records: list[LogRecord], is_current: Callable[[], bool]) -> None:
        """Store records of the leader durably and apply them."""
        taken = self._committer.take(records, is_current)
        self._last = records[-1].seq, record_crc(self._store.status().log_id, records[-1])
        for changes, delta in taken:
            self._wrote(changes, delta)
        self._applied.moved(records[-1].seq)

    def enter(self, epoch: int) -> None:
        """Record durably that the leader has entered a later term."""
        _log.info("the leader is in term %d", epoch)
        self._raise(epoch)

    def empty_catalog(self) -> Catalog:
        """Return an empty catalog."""
        return self._catalog.new_empty()

    def become(self, state: NewState, is_current: Callable[[], bool]) -> None:
        """Replace the log and state of this node with the leader's."""

        def swap(_: int) -> None:
            if self._committer.leader is None or not is_current():
                raise NotReady("this node does not follow that leader any more")
            self._on_disk(lambda log: log.replace_with(state.seed, state.chunks))
            self._committer.drop_unconfirmed()
            self._clock.seen(state.last_time)
            self._last = None
            self._count_accesses(state.catalog, False)
            self._catalog.become(state.catalog)

        with self.replacing:  # taken before the committer, which a snapshot in progress needs
            self._committer.exclusively(swap)
        self._applied.reached = state.seed.seq
        self._applied.wake()
        for tell in self.on_became:
            tell()

    # -- becoming a leader -------------------------------------------------------------------------

    def promote(self, *, force: bool = False) -> Promotion:
        """Make a follower accept writes, in a later term than any it knows.

        The term is durable before the first write. Raises Conflict if the node is not a follower
        and, unless forced, while the leader answers: two leaders would accept writes unknown to
        each other.
        """
        if self._is_coordinated:
            raise Conflict(
                "the coordinator decides which node leads; stop the leader to move its role",
                {"role": self.role},
            )
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
                    "this follower has not received the state of the leader yet",
                    {"reason": "bootstrap"},
                )
            contact = standing.contact
            answers = (
                contact is not None
                and not standing.trouble
                and self._clock.monotonic() - contact < SILENT_SECONDS
            )
            if answers and not force:
                raise Conflict(
                    "the leader still answers; stop it first, or force the promotion",
                    {"reason": "leader alive", "leader": self._config.leader_url},
                )

            def lead(head: int) -> Promotion:
                epoch = max(self._store.status().epoch, standing.epoch) + 1
                self._begin_term(epoch)
                if is_sync(self._config):
                    self._hold(head)
                return Promotion(self._store.status().log_id, epoch, head)

            done = self._committer.exclusively(lead)
            follower.stop()
        _log.warning(
            "promoted: this node leads log %s from record %d on, in term %d",
            done.log_id,
            done.seq + 1,
            done.epoch,
        )
        for tell in self.on_role:
            tell()
        return done

    def _begin_term(self, epoch: int) -> None:
        """Become the leader in a later term, before the first write; within `exclusively`."""
        self._raise(epoch)
        # With a coordinator the mark stays, so that the log is not opened without one.
        mark = self._config.advertise_url if self._is_coordinated else ""
        self._on_disk(lambda log: set_leader_mark(self._store, mark))
        self._committer.leader = None
        self.role = LEADER
        self.turn += 1
        self._count_accesses(self._catalog, True)

    # -- the role as a coordinator decides it (`failover.Node`) ------------------------------------

    def log_status(self) -> LogStatus:
        """Return the status of the log."""
        return self._store.status()

    def was_coordinated(self) -> bool:
        """Return True if the log has a leader mark: it belongs to a cluster already."""
        return bool(leader_of(self._store))

    def is_replacing(self) -> bool:
        """Return True while the whole state is fetched from a leader."""
        return self._standing.bootstrapping

    def lead(
        self, term: int, members: Sequence[str], record: Callable[[Sequence[str]], None]
    ) -> None:
        """Lead in a term that was recorded, with the in-sync set of the last leader."""
        if self.follower is not None:
            self.follower.stop()
        # What this node wrote in an earlier term belongs to the log that it leads with now.
        self._committer.confirm(self._store.status().head)

        def lead(head: int) -> None:
            self._begin_term(term)
            self._hold(head, members, record)

        self._committer.exclusively(lead)
        for tell in self.on_role:
            tell()

    def step_down(self, age: float) -> None:
        """Become a follower, whose state was current `age` seconds ago, of a leader to be known."""
        if (in_sync := self.leader.in_sync) is not None:
            in_sync.close()

        def follow(_: int) -> None:
            self._committer.leader = ""
            self._committer.held, self._committer.admitting = False, None
            self.leader.in_sync = None
            self.role = FOLLOWER
            self.turn += 1
            self._standing.as_of = self._clock.monotonic() - age
            self._count_accesses(self._catalog, False)

        self._committer.exclusively(follow)
        self._committer.give_up_waiting("this node does not lead any more")
        self.follower = None
        self._applied.reached = self._committer.visible
        for tell in self.on_role:
            tell()

    def follow_leader(self, leader: str, source: LogSource) -> None:
        """Follow a leader by its address, instead of the one before."""
        if self.follower is not None:
            self.follower.stop()
        self._committer.leader = leader
        self.follow(source)

    def take_part(self, open_coordinator: Callable[[], Coordinator], connect: Connect) -> None:
        """Take part in the election of the leader; raises ConfigError for an unusable URL."""
        self.failover = Failover(
            self, self._config, open_coordinator, connect, self._scheduling.offload_wait
        )
        self.failover.start()

    def lose_leader(self) -> None:
        """Refuse writes without naming a leader, until there is one."""
        self._committer.leader = ""

    def close(self) -> None:
        """Stop following, and answer every follower that waits.

        A leader whose writes wait for followers takes no more writes, and lets those that wait end.
        """
        if self.follower is not None:
            self.follower.stop()
        if (in_sync := self.leader.in_sync) is not None:
            self._committer.close()
            self.leader.synced.wait(
                lambda: self._committer.is_idle or not in_sync.members,
                self._config.replication_sync_timeout_ms / 1000,
                self._clock,
            )
            in_sync.close()
            self._committer.end_waiting("this node stops")
        if self.failover is not None:
            self.failover.close()
        self.leader.close()

    def _raise(self, epoch: int) -> None:
        self._on_disk(lambda log: log.raise_epoch(epoch))

    def _on_disk(self, change: Callable[[TakesOver], None]) -> None:
        log = self._store
        if not isinstance(log, TakesOver):
            raise ConfigError("this storage cannot follow another node")
        try:
            self._scheduling.offload_disk(lambda: change(log))
        except StorageFailed as error:
            self._committer.give_up(error)
            raise

    @staticmethod
    def _count_accesses(catalog: Catalog, counted: bool) -> None:
        """Set access counting; a follower counts no accesses, because its state is the leader's."""
        catalog.counts = counted
        for tenant in catalog.tenants():
            if isinstance(tenant.accesses, Uncounted) is counted:
                tenant.accesses = Accesses() if counted else Uncounted()
