"""Automatic failover: the nodes of a cluster elect their leader through a coordinator.

The leader holds a lease and renews it three times per time to live. It answers only while the lease
is valid by its own clock. When the lease has ended, a node of the in-sync set that the coordinator
keeps acquires it, enters a later term, and leads; the others follow it. A leader that has lost the
lease becomes a follower.

Safety depends on the coordinator and on terms, not on clocks: the set is changed only by the holder
of the lease, in one step with the check of the lease, and before a write is acknowledged without a
member. Clocks matter for reads alone: an old leader must notice in time that its lease has ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from kbcore.clock import boot_seconds
from kbcore.config.settings import Config
from kbcore.errors import KBError, NotReady
from kbcore.plug.coordination import Coordinator, Lease
from kbcore.plug.ports import LogStatus
from kbcore.replication.follower import LogSource
from kbcore.replication.leadership import (
    LEADER_LEASE,
    LeaderAddress,
    Leadership,
    node_name,
)
from kbcore.scheduling import Offload

T = TypeVar("T")

Connect = Callable[[Config], LogSource]
"""Opens a connection to the leader that the settings name."""

RENEWALS = 3
"""Renewals of the lease per time to live."""

LOOKS = 5
"""Times per time to live that a follower looks for the leader."""

MARGIN = 0.1
"""Part of the time to live before its end in which the leader does not rely on the lease: clocks
may run at different speeds."""

_log = logging.getLogger("kbcore.failover")


class FailoverNode(Protocol):
    """The node as its election uses it; `Replication` implements it."""

    def log_status(self) -> LogStatus:
        """Return the status of the log."""

    def was_coordinated(self) -> bool:
        """Return True if the log has been part of a cluster with a coordinator before."""

    def is_replacing(self) -> bool:
        """Return True while the whole state is fetched from a leader."""

    def lead(
        self, term: int, members: Sequence[str], record: Callable[[Sequence[str]], None]
    ) -> None:
        """Lead in a term, with the in-sync set of the last leader."""

    def step_down(self, age: float) -> None:
        """Become a follower whose state was current `age` seconds ago."""

    def follow_leader(self, leader: str, source: LogSource) -> None:
        """Follow a leader by its address."""

    def lose_leader(self) -> None:
        """Refuse writes without naming a leader."""


class Failover:
    """Takes part in the election of the leader, in a thread of its own.

    `call` runs a call of the coordinator, which may wait for several seconds.
    """

    def __init__(
        self,
        node: FailoverNode,
        config: Config,
        open_coordinator: Callable[[], Coordinator],
        connect: Connect,
        call: Offload,
    ) -> None:
        self.name = node_name(config.advertise_url)
        self._node = node
        self._config = config
        self._open_coordinator = open_coordinator
        self._connect = connect
        self._offload = call
        self._address = LeaderAddress(self.name, config.advertise_url)
        self._coordinator: Coordinator | None = None
        self._lease: Lease | None = None
        self._leadership: Leadership | None = None
        self._valid_until = 0.0
        self._followed = 0
        self._trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kbcore-failover", daemon=True)

    def start(self) -> None:
        """Connect to the coordinator and take part; raises ConfigError for an unusable URL.

        A coordinator that does not answer is tried again.
        """
        try:
            self._connected()
        except NotReady as error:
            self._report(error)
        self._thread.start()

    def close(self) -> None:
        """Stop taking part, and release the lease so that another node can lead at once."""
        self._stop.set()
        self._valid_until = 0.0
        if self._thread.is_alive():
            self._thread.join()
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            self._offload(coordinator.close)

    # -- the lease ---------------------------------------------------------------------------------

    @property
    def token(self) -> int | None:
        """The fencing token of the lease, None on a follower."""
        return None if self._lease is None else self._lease.token

    def remaining(self) -> float:
        """Return the seconds for which the leader may rely on its lease, 0 if it may not."""
        return max(0.0, self._valid_until - boot_seconds())

    def check_lease(self, outcome: str | None) -> None:
        """Raise NotReady if this leader may have been replaced; `outcome` is that of a write."""
        if boot_seconds() >= self._valid_until:
            details = {"reason": "lease", **({"outcome": outcome} if outcome else {})}
            raise NotReady("this node may not be the leader any more", details)

    # -- the election ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                seconds = self.step()
                if self._trouble:
                    _log.info("the coordinator answers again")
                self._trouble = ""
            except KBError as error:
                self._report(error)
                seconds = self._ttl / LOOKS
            except Exception:  # noqa: BLE001 - the lease ends by itself; the next step tries again
                _log.exception("the election failed")
                seconds = self._ttl / LOOKS
            self._stop.wait(seconds)

    def _report(self, error: KBError) -> None:
        if error.message != self._trouble:
            _log.warning("the coordinator: %s", error.message)
        self._trouble = error.message

    def step(self) -> float:
        """Renew the lease, or look for the leader; return the seconds until the next step."""
        if self._lease is None:
            self._seek()
        else:
            self._renew(self._lease)
        return self._ttl / (LOOKS if self._lease is None else RENEWALS)

    @property
    def _ttl(self) -> float:
        """The time to live of the lease in seconds."""
        ttl_ms = self._config.cluster_ttl_ms if self._lease is None else self._lease.ttl_ms
        return ttl_ms / 1000

    def _ask(self, question: Callable[[Coordinator], T]) -> T:
        coordinator = self._connected()
        answer: T = self._offload(lambda: question(coordinator))
        return answer

    def _connected(self) -> Coordinator:
        if self._coordinator is None:
            self._coordinator = self._offload(self._open_coordinator)
        return self._coordinator

    def _renew(self, lease: Lease) -> None:
        begun = boot_seconds()
        if self._ask(lambda coordinator: coordinator.renew(lease)):
            self._rely_on(lease, begun)
            return
        self._valid_until = min(self._valid_until, boot_seconds())
        _log.warning("the lease with token %d is lost: this node follows from now on", lease.token)
        self._lease = None
        self._node.step_down(boot_seconds() - self._valid_until)

    def _rely_on(self, lease: Lease, begun: float) -> None:
        if not self._stop.is_set():
            self._valid_until = begun + lease.ttl_ms / 1000 * (1 - MARGIN)

    def _seek(self) -> None:
        held = next(
            (
                held
                for held in self._ask(lambda coordinator: coordinator.leases(LEADER_LEASE))
                if held.name == LEADER_LEASE
            ),
            None,
        )
        if held is None:
            self._node.lose_leader()
            self._run_for_leader()
        elif held.token != self._followed:
            leader = LeaderAddress.decode(held.value)
            if leader.name == self.name:
                return  # the lease of this node before its restart, which ends soon
            self._check_cluster()
            _log.info("%s leads, with token %d", leader.url, held.token)
            config = replace(self._config, leader_url=leader.url, replication_name=self.name)
            self._node.follow_leader(leader.url, self._connect(config))
            self._followed = held.token

    def _check_cluster(self) -> None:
        """Raise NotReady if this node has data that a leader of another cluster would replace."""
        status = self._node.log_status()
        is_new = self._config.replication_mode == "LEADER" and not self._node.was_coordinated()
        if is_new and status.head:
            last = self._stored()
            if last is not None and last.log_id != status.log_id:
                raise NotReady(
                    "it has the record of another cluster, whose data would replace those of this node:"
                    " use a folder, schema or path of its own in COORDINATOR_URL, or"
                    " REPLICATION_MODE=FOLLOWER to replace them"
                )

    def _run_for_leader(self) -> None:
        """Acquire the lease and lead, if this node has every acknowledged write."""
        if not self._may_lead(self._stored()):
            return
        begun = boot_seconds()
        ttl_ms, value = self._config.cluster_ttl_ms, self._address.encode()
        lease = self._ask(lambda coordinator: coordinator.acquire(LEADER_LEASE, ttl_ms, value))
        if lease is None:
            return
        try:
            is_leading = self._lead(lease)
        except BaseException:
            self._give_back(lease)
            raise
        if is_leading:
            self._lease = lease
            self._rely_on(lease, begun)
        else:
            self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        try:
            self._ask(lambda coordinator: coordinator.release(lease))
        except NotReady as error:  # it ends by itself
            self._report(error)

    def _lead(self, lease: Lease) -> bool:
        """Lead with a new lease, unless the set has changed before it was acquired.

        The term is stored before this node enters it, so that no other node ever leads in it.
        """
        last = self._stored()
        if not self._may_lead(last):
            return False
        status = self._node.log_status()
        leadership = Leadership(
            max(status.epoch, last.term if last is not None else 0) + 1,
            status.log_id,
            self.name,
            () if last is None else tuple(name for name in last.in_sync if name != self.name),
        )
        value = leadership.encode()
        if not self._ask(lambda coordinator: coordinator.store(lease, value)):
            return False

        def record(names: Sequence[str]) -> None:
            changed = replace(leadership, in_sync=tuple(names)).encode()
            if not self._ask(lambda coordinator: coordinator.store(lease, changed)):
                raise NotReady("the lease is lost")

        self._node.lead(leadership.term, leadership.in_sync, record)
        _log.warning("this node leads in term %d, with token %d", leadership.term, lease.token)
        return True

    def _stored(self) -> Leadership | None:
        value = self._ask(lambda coordinator: coordinator.stored(LEADER_LEASE))
        return None if value is None else Leadership.decode(value)

    def _may_lead(self, last: Leadership | None) -> bool:
        """Return True if this node has every write that a leader has acknowledged."""
        if last is None:
            if self._config.replication_mode != "LEADER":
                return False
            if self._node.was_coordinated():
                raise NotReady(
                    "it has no record of this cluster, to which the log of this node belongs;"
                    " see docs/operations/replication.md"
                )
            return True
        status = self._node.log_status()
        return (
            self.name in (last.leader, *last.in_sync)
            and status.log_id == last.log_id
            and status.epoch <= last.term
            and status.writable
            and not self._node.is_replacing()
        )
