"""One node of a cluster: its lease, the shards that it holds, and the exchange of shards.

Every node computes the same assignment of shards to live nodes (`assignment.py`). A node acquires
the leases of free shards that are assigned to it. A shard of another live node changes its node by
a handover: the new owner reads the log along, asks the owner to release the shard, and continues
where it has read to, so that the pause is short.

Safety depends on the storage, not on leases or clocks: a log that another node has opened refuses
every write of the node that had it before. The leases say who opens which log, and until when a
node may answer reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, TypeVar

from kbcore.clock import boot_seconds
from kbcore.cluster.assignment import Member, Placement, assign
from kbcore.cluster.control import ClusterControl, members_of
from kbcore.cluster.ownership import HeldShard, Ownership
from kbcore.cluster.records import (
    LEASES,
    LEAVING_LEASE,
    NODE_LEASE,
    SHARD_LEASE,
    ClusterRecord,
    find_placement,
    shard_lease,
    shard_of_lease,
)
from kbcore.config.settings import Config
from kbcore.durable.recovery import Recovered, catch_up, recover
from kbcore.errors import Conflict, KBError, LogCorrupted, NotReady
from kbcore.metrics import catalogue as m
from kbcore.node.instruments import Value
from kbcore.node.other_processes import Directory
from kbcore.node.readiness import Check
from kbcore.node.runtime import Runtime
from kbcore.node.shard import RecoveredLog, new_catalog
from kbcore.node.shard_layout import SYSTEM
from kbcore.plug.coordination import Coordinator, Held, Lease, renew_all
from kbcore.plug.ports import LogReader, LogRecord, LogStore
from kbcore.scheduling import Offload
from kbcore.state.catalog import Catalog
from kbplanner.syntax.diagnostics import counted

T = TypeVar("T")

STEPS = 5
"""Renewals of the leases, and looks at those of the others, per time to live."""

MARGIN = 0.1
"""Part of the time to live before its end in which a node does not rely on a lease: clocks may run
at different speeds.
"""

DRAIN_SECONDS = 0.5
"""Time that requests under way have to end before their shard is released."""

BEHIND_RECORDS = 64
"""A reader this close to the end of the log of its shard asks the owner to release it."""

MAX_ROUNDS = 20
"""Rounds of reading along; a log that grows faster is taken over as it is then."""

READ_RECORDS = 256
"""Records read at a time, so that other work goes on between."""

_log = logging.getLogger("kbcore.cluster")


class OtherNodes(Protocol):
    """Calls of a node to the others. They raise NotReady if a node does not answer."""

    def directory(self) -> Directory | None:
        """Return the directory of the node with the system shard; None if this node has it."""

    def release(self, url: str, shard: int, to: str) -> None:
        """Make the node at an address release a shard to the node named `to`; raises Conflict."""


class LogPlaces(Protocol):
    """The logs of a cluster's shards."""

    def open(self, shard: int) -> LogStore:
        """Open the log of a shard as its only writer."""

    def reader(self, shard: int) -> LogReader:
        """Open the log of a shard for reading."""


@dataclass(slots=True)
class Counts:
    """Events of a node since its start, for its metrics."""

    taken: int = 0
    handed_over: int = 0
    lost: int = 0


class ClusterNode:
    """A node: `member` describes it, `call` runs calls of the coordinator and `read` those of the
    storage where they hold up no other work.
    """

    def __init__(
        self,
        member: Member,
        record: ClusterRecord,
        coordinator: Coordinator,
        config: Config,
        places: LogPlaces,
        *,
        call: Offload,
        read: Offload,
    ) -> None:
        self.member = member
        self.record = record
        self.ownership = Ownership(member.name, record.shards)
        self.members: Mapping[str, Member] = {}
        self.targets: Mapping[int, str] = {}
        self.placement = Placement()
        self.counts = Counts()
        self.on_node_lost: list[Callable[[str], None]] = []
        """Called with the name of a node that is not alive any more."""
        self.others: OtherNodes | None = None
        self._coordinator = coordinator
        self._config = config
        self._places = places
        self._call, self._read = call, read
        self._runtime: Runtime | None = None
        self._lease: Lease | None = None
        self._leaving: Lease | None = None
        self._valid_until = 0.0
        self._closing: set[int] = set()
        self._not_before: dict[int, float] = {}
        self._trouble = ""
        self._stop = threading.Event()
        self._work = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in (
                (self._keep_leases, "kbcore-cluster"),
                (self._take_shards, "kbcore-cluster-shards"),
            )
        ]

    @property
    def ttl(self) -> float:
        """Time to live of the leases in seconds."""
        return self._config.cluster_ttl_ms / 1000

    def start(self, runtime: Runtime, others: OtherNodes) -> None:
        """Join the cluster, or try again until it can: a lease from before a restart ends first."""
        self._runtime, self.others = runtime, others
        try:
            self.step()
        except NotReady as error:
            self._report(error)
        for thread in self._threads:
            thread.start()

    def close(self, seconds: float) -> None:
        """Leave the cluster: the other nodes take over the shards, for which it waits `seconds`."""
        deadline = boot_seconds() + seconds
        if self._threads[0].is_alive():
            self._announce_leave()
            while self.ownership.held and len(self.members) > 1 and boot_seconds() < deadline:
                self._stop.wait(self.ttl / STEPS)
        self._stop.set()
        self._work.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for shard in list(self.ownership.held):
            with suppress(KBError):  # what is left ends with its lease
                self._give_up(shard)
        self._call(self._coordinator.close)

    def _announce_leave(self) -> None:
        """Tell the other nodes, by a lease, that they get the shards of this one."""
        self.member = replace(self.member, is_leaving=True)
        name, ttl_ms = LEAVING_LEASE + self.member.name, self._config.cluster_ttl_ms
        try:
            self._leaving = self._ask(lambda coordinator: coordinator.acquire(name, ttl_ms, b""))
        except KBError as error:
            self._report(error)

    def url_of(self, name: str) -> str:
        """Return the address of a live node; raises NotReady for others."""
        try:
            return self.members[name].url
        except KeyError:
            raise NotReady(f"node {name} is not alive") from None

    def open_shards(self) -> list[int]:
        """Return the shards that requests may use on this node."""
        held = list(self.ownership.held.items())
        return sorted(shard for shard, each in held if each.is_open)

    def may_answer(self) -> bool:
        """Return True if this node has joined and its lease has not ended."""
        return self._lease is not None and boot_seconds() < self._valid_until

    @property
    def name(self) -> str:
        """Name of this node."""
        return self.member.name

    def check(self) -> Check:
        """Return the check of the readiness report."""
        if not self.may_answer():
            return {"status": "fail", "message": "this node is not in the cluster at the moment"}
        message = f"{len(self.open_shards())} of {counted(self.count, 'shard')}, {counted(len(self.members), 'node')}"
        if self.member.is_leaving:
            return {"status": "fail", "message": f"{message}; this node is leaving"}
        missing = self.count - len(self.ownership.owners())
        if missing:
            return {
                "status": "warn",
                "message": f"{message}; {counted(missing, 'shard')} without a node",
            }
        return {"status": "pass", "message": message}

    def values(self) -> Iterator[Value]:
        """Yield the current metrics."""
        yield m.CLUSTER_NODES, (), len(self.members)
        yield m.CLUSTER_UNOWNED, (), self.count - len(self.ownership.owners())
        yield m.CLUSTER_TAKEN, (), self.counts.taken
        yield m.CLUSTER_HANDED_OVER, (), self.counts.handed_over
        yield m.CLUSTER_LOST, (), self.counts.lost

    def control(self, use: Callable[[ClusterControl], T]) -> T:
        """Let an operator see or change the cluster; raises NotReady, and what `use` raises."""
        return self._ask(lambda coordinator: use(ClusterControl(coordinator, self.record)))

    @property
    def count(self) -> int:
        """Number of shards of the cluster."""
        return self.record.shards

    # -- leases ------------------------------------------------------------------------------------

    def _keep_leases(self) -> None:
        while not self._stop.is_set():
            begun = boot_seconds()
            try:
                self.step()
                if self._trouble:
                    _log.info("the coordinator answers again")
                self._trouble = ""
            except KBError as error:
                self._report(error)
            except Exception:  # noqa: BLE001 - the leases end by themselves; the next step tries again
                _log.exception("a step of the cluster failed")
            self._stop.wait(max(0.0, self.ttl / STEPS - (boot_seconds() - begun)))

    def _report(self, error: KBError) -> None:
        if error.message != self._trouble:
            _log.warning("the coordinator: %s", error.message)
        self._trouble = error.message

    def step(self) -> None:
        """Renew the leases, and look at those of the other nodes."""
        self._renew()
        if self._lease is None:
            self._join()
        self._look()
        self._work.set()

    def _ask(self, question: Callable[[Coordinator], T]) -> T:
        answer: T = self._call(lambda: question(self._coordinator))
        return answer

    def _valid_from(self, begun: float) -> float:
        return begun + self.ttl * (1 - MARGIN)

    def _join(self) -> None:
        begun = boot_seconds()
        name, value = NODE_LEASE + self.member.name, self.member.encode()
        ttl_ms = self._config.cluster_ttl_ms
        self._lease = self._ask(lambda coordinator: coordinator.acquire(name, ttl_ms, value))
        if self._lease is None:
            raise NotReady(
                f"another process is node {self.member.name}, or was a moment ago: each node needs an"
                " ADVERTISE_URL of its own"
            )
        self._valid_until = self._valid_from(begun)

    def _renew(self) -> None:
        held = list(self.ownership.held.items())
        leases = [each.lease for _, each in held]
        if (own := self._lease) is not None:
            leases.append(own)
        if not leases:
            return
        if self._leaving is not None:
            leases.insert(len(held), self._leaving)
        begun = boot_seconds()
        results = self._ask(lambda coordinator: renew_all(coordinator, leases))
        for (shard, each), is_renewed in zip(held, results, strict=False):
            if is_renewed:
                each.valid_until = max(each.valid_until, self._valid_from(begun))
            elif self.ownership.held.get(shard) is each:
                _log.warning("the lease on shard %d is lost", shard)
                self._lose(shard, each)
        if own is not None and own is self._lease:
            if results[-1]:
                self._valid_until = self._valid_from(begun)
            else:
                _log.warning("the lease of this node is lost; it joins again")
                self._lease = None

    def _look(self) -> None:
        listed = self._ask(
            lambda coordinator: (coordinator.leases(LEASES), find_placement(coordinator))
        )
        leases, self.placement = listed
        before, self.members = self.members, members_of(leases)
        owners: dict[int, tuple[str, int]] = {}
        for held in leases:
            if held.name.startswith(SHARD_LEASE):
                name = Member.decode(held.value).name
                # Without the lease of its node an owner answers nothing: its requests wait for the
                # next one. `on_node_lost` ends those that were sent to it before.
                if self._has(held) if name == self.member.name else name in self.members:
                    owners[shard_of_lease(held.name)] = name, held.token
        self.targets = assign(self.record.shards, list(self.members.values()), self.placement)
        self.ownership.learn(owners)
        for name in before.keys() - self.members.keys():
            for call in self.on_node_lost:
                call(name)

    def _has(self, held: Held) -> bool:
        """Return True if a listed lease of this node is one that this process holds."""
        mine = self.ownership.held.get(shard_of_lease(held.name))
        return mine is not None and mine.lease.token == held.token

    # -- shards that this node loses ---------------------------------------------------------------

    def failed(self, shard: int) -> None:
        """Give up a shard whose log failed, or that another node has opened."""
        held = self.ownership.held.get(shard)
        if held is not None:
            lease = held.lease
            self._lose(shard, held)
            with suppress(KBError):  # it ends by itself
                self._ask(lambda coordinator: coordinator.release(lease))

    def _lose(self, shard: int, held: HeldShard) -> None:
        """Forget a shard at once, and close it in the background."""
        self.counts.lost += 1
        self.ownership.drop(shard)
        if held.is_open:
            self._closing.add(shard)
            threading.Thread(
                target=self._close_lost, args=(shard,), name="kbcore-cluster-close", daemon=True
            ).start()

    def _close_lost(self, shard: int) -> None:
        try:
            self.runtime.close_shard(shard)
        except KBError as error:
            _log.warning("shard %d could not be closed: %s", shard, error.message)
        finally:
            self._closing.discard(shard)
            self._work.set()

    def release(self, shard: int, to: str) -> None:
        """Release a shard to the node named `to`, after the requests that use it.

        Raises Conflict if it is not open here or belongs to another node.
        """
        if self.targets.get(shard) != to:
            self._look()  # the other node may have seen a change of the cluster earlier
        if self.targets.get(shard) != to:
            raise Conflict(f"shard {shard} is not assigned to {to}", {"shard": shard})
        held = self.ownership.leave(shard, DRAIN_SECONDS)
        if held is None:
            raise Conflict(f"shard {shard} is not open on {self.member.name}", {"shard": shard})
        self._end(shard, held, to)
        self.counts.handed_over += 1
        _log.info("shard %d is released to %s", shard, to)

    def _give_up(self, shard: int) -> None:
        """Release a shard that no node has asked for, because this one stops."""
        held = self.ownership.leave(shard, 0.0)
        if held is not None:
            self._end(shard, held, "")

    def _end(self, shard: int, held: HeldShard, to: str) -> None:
        self._closing.add(shard)
        try:
            self.runtime.close_shard(shard)
            lease = held.lease
            self._ask(lambda coordinator: coordinator.release(lease))
        finally:
            self.ownership.drop(shard, to)
            self._closing.discard(shard)

    # -- shards that this node takes ---------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """The state of the node's shards; it exists from the start on."""
        if self._runtime is None:
            raise AssertionError("the node is not started")
        return self._runtime

    def _take_shards(self) -> None:
        while not self._stop.is_set():
            shard = self._next_shard()
            if shard is None:
                self._work.wait(self.ttl)
                self._work.clear()
                continue
            try:
                self._take(shard)
            except KBError as error:
                level = logging.INFO if isinstance(error, NotReady) else logging.WARNING
                _log.log(level, "shard %d could not be opened: %s", shard, error.message)
                pause = self.ttl / STEPS if isinstance(error, NotReady) else self.ttl
                self._not_before[shard] = boot_seconds() + pause
            except Exception:  # noqa: BLE001 - one damaged shard must not stop the others
                _log.exception("shard %d could not be opened", shard)
                self._not_before[shard] = boot_seconds() + self.ttl

    def _next_shard(self) -> int | None:
        """Return the next shard to take: free ones first, the system shard before all others."""
        now, owners = boot_seconds(), self.ownership.owners()
        candidates = [
            shard
            for shard, name in self.targets.items()
            if name == self.member.name
            and shard not in self.ownership.held
            and shard not in self._closing
            and self._not_before.get(shard, 0.0) <= now
        ]
        return min(candidates, key=lambda shard: (shard in owners, shard), default=None)

    def _take(self, shard: int) -> None:
        if shard != SYSTEM:
            self._directory()  # without it no shard can be opened: do not begin
        owner = self.ownership.owners().get(shard)
        if owner is None or owner == self.member.name or owner not in self.members:
            self._take_free(shard)
        else:
            self._take_over(shard, owner)

    def _take_free(self, shard: int) -> None:
        held = self._acquire(shard)
        if held is None:
            self._not_before[shard] = boot_seconds() + self.ttl / STEPS
            return
        with self._giving_back(shard, held):
            log = self._recovered(shard)
            self._open(shard, held, log)
        self.counts.taken += 1
        _log.info("shard %d is open with %s", shard, counted(log.recovered.head, "record"))

    def _recovered(self, shard: int) -> RecoveredLog:
        """Read a log and open it. A reader verifies what it reads, so that it is read once only.

        If the newest snapshot is damaged, opening the log finds an older one.
        """
        reader: LogReader = self._read(lambda: self._places.reader(shard))
        catalog = new_catalog(self._config)
        try:
            recovered = recover(_InParts(reader, self._read), catalog)
        except LogCorrupted as error:
            _log.warning("shard %d: %s", shard, error.message)
            store: LogStore = self._read(lambda: self._places.open(shard))
            catalog, recovered = new_catalog(self._config), Recovered(0, 0, 0)
        else:
            store = self._read(reader.open)
        finally:
            self._read(reader.close)
        return RecoveredLog(store, catalog, self._completed(store, catalog, recovered))

    def _take_over(self, shard: int, owner: str) -> None:
        """Take a shard from another node, with its log read before the pause begins."""
        others = self._others()
        reader: LogReader = self._read(lambda: self._places.reader(shard))
        try:
            parts, catalog = _InParts(reader, self._read), new_catalog(self._config)
            recovered = recover(parts, catalog)
            for _ in range(MAX_ROUNDS):
                before, recovered = recovered, catch_up(parts, catalog, recovered)
                if recovered.head - before.head <= BEHIND_RECORDS:
                    break
            others.release(self.url_of(owner), shard, self.member.name)
            held = self._acquire(shard)
            if held is None:
                raise NotReady("another node has acquired it")
            with self._giving_back(shard, held):
                store: LogStore = self._read(reader.open)
                recovered = self._completed(store, catalog, recovered)
                self._open(shard, held, RecoveredLog(store, catalog, recovered))
        finally:
            self._read(reader.close)
        self.counts.taken += 1
        _log.info(
            "shard %d is taken over from %s with %s",
            shard,
            owner,
            counted(recovered.head, "record"),
        )

    def _completed(self, store: LogStore, catalog: Catalog, recovered: Recovered) -> Recovered:
        """Return the state at the end of the log; close the log if it cannot be read."""
        parts = _InParts(store, self._read)
        try:
            return (
                catch_up(parts, catalog, recovered) if recovered.head else recover(parts, catalog)
            )
        except BaseException:
            store.close(clean=False)
            raise

    def _acquire(self, shard: int) -> HeldShard | None:
        begun = boot_seconds()
        name, value = shard_lease(shard), self.member.encode()
        ttl_ms = self._config.cluster_ttl_ms
        lease = self._ask(lambda coordinator: coordinator.acquire(name, ttl_ms, value))
        return None if lease is None else self.ownership.hold(shard, lease, self._valid_from(begun))

    @contextmanager
    def _giving_back(self, shard: int, held: HeldShard) -> Iterator[None]:
        """Release the lease of a shard if it cannot be opened."""
        try:
            yield
        except BaseException:
            if self.ownership.held.get(shard) is held:
                self.ownership.drop(shard)
            with suppress(KBError):  # it ends by itself
                self._ask(lambda coordinator: coordinator.release(held.lease))
            raise

    def _open(self, shard: int, held: HeldShard, log: RecoveredLog) -> None:
        """Serve a shard, unless its lease was lost while it was read.

        The directory is asked for now, when no other node can change the shard any more, so that it
        has every database that the shard can have.
        """
        try:
            directory = None if shard == SYSTEM else self._directory()
            if self.ownership.held.get(shard) is not held:
                raise NotReady("its lease was lost while it was read")
            self.runtime.open_shard(shard, log, directory)
        except BaseException:
            log.store.close(clean=False)
            raise
        if self.ownership.held.get(shard) is not held:
            self.runtime.close_shard(shard)
            raise NotReady("its lease was lost while it was opened")
        self.ownership.opened(shard)
        if shard == SYSTEM:
            self.runtime.align_again()

    def _others(self) -> OtherNodes:
        if self.others is None:
            raise AssertionError("the node is not started")
        return self.others

    def _directory(self) -> Directory:
        """Return the present directory; raises NotReady while no node has the system shard."""
        directory = self._others().directory()
        return self.runtime.directory() if directory is None else directory


class _InParts:
    """A log whose reads run where they hold up no other work, a part at a time."""

    def __init__(self, log: LogStore | LogReader, read: Offload) -> None:
        self._of, self._read = log, read

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot as the log does."""
        snapshot: tuple[int, Iterator[bytes]] | None = self._read(self._of.load_snapshot)
        if snapshot is None:
            return None
        seq, chunks = snapshot
        return seq, self._parts(chunks, 1)

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return the records as the log does."""
        records = self._read(lambda: self._of.read(after))
        return self._parts(records, READ_RECORDS)

    def _parts(self, items: Iterable[T], count: int) -> Iterator[T]:
        each = iter(items)
        while part := self._read(lambda: list(islice(each, count))):
            yield from part
