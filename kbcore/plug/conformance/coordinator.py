"""Conformance tests of coordinators; plugin authors import them from `kbcore.plug.conformance`."""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import uuid
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import pytest

from kbcore.errors import InvalidInput
from kbcore.plug.conformance.base import Conformance
from kbcore.plug.coordination import (
    Change,
    ChangeKind,
    Coordinator,
    Lease,
    Watch,
    renew_all,
)

LONG_MS = 60_000
"""A time to live that does not end during a test."""

DEADLINE_SECONDS = 30
NAMES = ("", "a", "a/b", "a%", "a_", "..", ".", "\0", "'\"\\\n", "é", "東京\U0010ffff", "x" * 1000)
VALUES = (b"", b"\0", bytes(range(256)), b"v" * 65_536)


class CoordinatorConformance(Conformance, abstract=True):
    """Tests of the contract of `Coordinator`.

    Subclass it, name it `Test...`, and implement `make_coordinator`. `ttl_ms` is a short time to
    live that the coordinator does not round up.
    """

    factory = "make_coordinator"
    ttl_ms: ClassVar[int] = 1000

    @abstractmethod
    def make_coordinator(self) -> Coordinator:
        """Open another coordinator on the same leases; it is also called in a forked process."""

    @pytest.fixture
    def opened(self) -> Iterator[Callable[[], Coordinator]]:
        """Yield a function that opens a coordinator, which is closed at the end of the test."""
        coordinators: list[Coordinator] = []

        def make() -> Coordinator:
            coordinators.append(self.make_coordinator())
            return coordinators[-1]

        yield make
        for coordinator in coordinators:
            coordinator.close()

    @pytest.fixture
    def first(self, opened: Callable[[], Coordinator]) -> Coordinator:
        """Return a coordinator."""
        return opened()

    @pytest.fixture
    def second(self, opened: Callable[[], Coordinator]) -> Coordinator:
        """Return another coordinator on the same leases."""
        return opened()

    @pytest.fixture
    def name(self) -> str:
        """Return a name that no other test uses."""
        return f"test/{uuid.uuid4().hex}"

    # -- one holder -------------------------------------------------------------------------------

    def test_a_held_name_is_not_acquired(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check what the holder and everybody else get."""
        lease = first.acquire(name, LONG_MS, b"first")
        assert lease is not None
        assert (lease.name, lease.value) == (name, b"first")
        assert lease.token > 0
        assert lease.ttl_ms >= LONG_MS
        assert second.acquire(name, LONG_MS, b"second") is None
        assert first.acquire(name, LONG_MS, b"again") is None
        assert [(held.name, held.token, held.value) for held in second.leases(name)] == [
            (name, lease.token, b"first")
        ]
        assert first.renew(lease)

    def test_one_of_many_acquires(self, opened: Callable[[], Coordinator], name: str) -> None:
        """Check that of eight threads on four coordinators one succeeds, time after time."""
        coordinators = [opened() for _ in range(4)] * 2
        tokens = []
        for _ in range(10):
            leases = _at_once(
                [lambda c=c: c.acquire(name, LONG_MS, b"") for c in coordinators]  # type: ignore[misc]
            )
            winners = [number for number, lease in enumerate(leases) if lease is not None]
            assert len(winners) == 1
            tokens.append(leases[winners[0]].token)
            coordinators[winners[0]].release(leases[winners[0]])
        assert tokens == sorted(set(tokens))

    def test_a_release_frees_the_name_at_once(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check that the next holder does not wait and has a larger token."""
        token = 0
        for coordinator in (first, second, second, first):
            lease = coordinator.acquire(name, LONG_MS, b"")
            assert lease is not None
            assert lease.token > token
            token = lease.token
            coordinator.release(lease)
            assert not coordinator.renew(lease)
            assert list(coordinator.leases(name)) == []
            coordinator.release(lease)

    def test_close_frees_the_names(self, opened: Callable[[], Coordinator], name: str) -> None:
        """Check that tokens continue after every coordinator was closed."""
        earlier = opened()
        lease = earlier.acquire(name, LONG_MS, b"")
        earlier.close()
        earlier.close()
        next_lease = opened().acquire(name, LONG_MS, b"")
        assert lease is not None
        assert next_lease is not None
        assert next_lease.token > lease.token

    def test_names_do_not_affect_each_other(self, first: Coordinator, second: Coordinator) -> None:
        """Check two names with a common beginning."""
        prefix = uuid.uuid4().hex
        assert first.acquire(prefix, LONG_MS, b"") is not None
        assert second.acquire(prefix + "a", LONG_MS, b"") is not None

    # -- time to live -----------------------------------------------------------------------------

    def test_a_lease_ends_after_its_time_to_live(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check that it ends not much earlier, and cannot be renewed or released afterwards."""
        start = time.monotonic()
        lease = first.acquire(name, self.ttl_ms, b"")
        assert lease is not None
        assert lease.ttl_ms == self.ttl_ms
        other = _until(lambda: second.acquire(name, LONG_MS, b"other"))
        assert time.monotonic() - start > self.ttl_ms / 1000 * 0.9
        assert other.token > lease.token
        assert not first.renew(lease)
        first.release(lease)
        assert second.renew(other)
        assert [held.token for held in first.leases(name)] == [other.token]

    def test_a_lease_that_ended_is_not_renewed(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check it where the name is still free."""
        lease = first.acquire(name, self.ttl_ms, b"")
        assert lease is not None
        _until(lambda: not second.leases(name))
        assert not first.renew(lease)
        assert list(first.leases(name)) == []

    def test_renewing_keeps_the_lease(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check that no other coordinator acquires the name for three times its time to live."""
        lease = first.acquire(name, self.ttl_ms, b"")
        assert lease is not None
        end = time.monotonic() + 3 * self.ttl_ms / 1000
        while time.monotonic() < end:
            renewed = time.monotonic()
            assert first.renew(lease)
            assert second.acquire(name, self.ttl_ms, b"") is None
            threading.Event().wait(self.ttl_ms / 20_000)
        assert [held.token for held in second.leases(name)] == [lease.token]
        _until(lambda: second.acquire(name, LONG_MS, b""))
        assert time.monotonic() - renewed > self.ttl_ms / 1000 * 0.9

    def test_many_leases_are_renewed_together(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check that each lease has its own result, also where the coordinator has one call for
        all.
        """
        leases = [first.acquire(f"{name}/{number}", LONG_MS, b"") for number in range(3)]
        held = [lease for lease in leases if lease is not None]
        other = second.acquire(f"{name}/other", LONG_MS, b"")
        assert other is not None
        first.release(held[1])
        wrong = replace(held[2], token=held[2].token + 1)
        assert list(renew_all(first, [*held, wrong])) == [True, False, True, False]
        assert list(renew_all(second, [other])) == [True]
        assert list(renew_all(first, [])) == []

    def test_a_stopped_holder_loses_the_lease(self, first: Coordinator, name: str) -> None:
        """Check a process that SIGSTOP stops for longer than the time to live."""
        with _holder(self.make_coordinator, name, self.ttl_ms) as (process, pipe):
            token = _received(pipe)
            os.kill(process.pid, signal.SIGSTOP)
            lease = _until(lambda: first.acquire(name, LONG_MS, b"next"))
            assert lease.token > token
            os.kill(process.pid, signal.SIGCONT)
            pipe.send("renew")
            assert _received(pipe) is False
            assert first.renew(lease)

    def test_a_stopped_holder_does_not_renew_a_free_name(
        self, first: Coordinator, name: str
    ) -> None:
        """Check that its renewal fails even if the name is still free."""
        with _holder(self.make_coordinator, name, self.ttl_ms) as (process, pipe):
            assert _received(pipe)
            os.kill(process.pid, signal.SIGSTOP)
            _until(lambda: not first.leases(name))
            os.kill(process.pid, signal.SIGCONT)
            pipe.send("renew")
            assert _received(pipe) is False

    def test_the_lease_of_a_killed_process_ends(self, first: Coordinator, name: str) -> None:
        """Check that another process acquires the name, with a larger token."""
        with _holder(self.make_coordinator, name, self.ttl_ms) as (process, pipe):
            token = _received(pipe)
            os.kill(process.pid, signal.SIGKILL)
            lease = _until(lambda: first.acquire(name, LONG_MS, b""))
            assert lease.token > token

    # -- names and values -------------------------------------------------------------------------

    def test_names_are_any_text(self, first: Coordinator, second: Coordinator, name: str) -> None:
        """Check that names are listed as they are, in order, by exact prefix."""
        for tail in NAMES:
            assert first.acquire(name + tail, LONG_MS, tail.encode()) is not None
        for prefix in NAMES:
            expected = sorted(name + tail for tail in NAMES if tail.startswith(prefix))
            assert [held.name for held in second.leases(name + prefix)] == expected
        assert {held.name for held in second.leases("")} >= {name + tail for tail in NAMES}
        for held in second.leases(name):
            assert held.value == held.name[len(name) :].encode()

    def test_values_are_any_bytes(self, first: Coordinator, second: Coordinator, name: str) -> None:
        """Check values of every length and byte."""
        for number, value in enumerate(VALUES):
            lease = first.acquire(f"{name}{number}", LONG_MS, value)
            assert lease is not None
            assert lease.value == value
        assert [held.value for held in second.leases(name)] == list(VALUES)

    def test_unusable_arguments_are_refused(self, first: Coordinator, name: str) -> None:
        """Check times to live out of range, text without a UTF-8 form, and a long value."""
        for unusable, ttl_ms, value in (
            (name, 0, b""),
            (name, -1, b""),
            (name, 86_400_001, b""),
            ("\ud800", LONG_MS, b""),
            (name, LONG_MS, b"v" * 65_537),
        ):
            with pytest.raises(InvalidInput):
                first.acquire(unusable, ttl_ms, value)
        with pytest.raises(InvalidInput):
            first.leases("\ud800")
        with pytest.raises(InvalidInput):
            first.watch("\ud800")
        assert list(first.leases(name)) == []

    # -- stored values ----------------------------------------------------------------------------

    def test_a_stored_value_stays(self, first: Coordinator, second: Coordinator, name: str) -> None:
        """Check that it outlives renewals and leases, and is replaced by the next holder's."""
        assert second.stored(name) is None
        lease = first.acquire(name, LONG_MS, b"held")
        assert lease is not None
        assert second.stored(name) is None
        for value in (b"", b"v" * 65_536, b"\0first"):
            assert first.store(lease, value)
            assert first.renew(lease)
            assert second.stored(name) == value
        assert [(held.name, held.value) for held in second.leases(name)] == [(name, b"held")]
        first.release(lease)
        assert second.stored(name) == b"\0first"
        later = second.acquire(name, LONG_MS, b"")
        assert later is not None
        assert first.stored(name) == b"\0first"
        assert second.store(later, b"second")
        assert first.stored(name) == b"second"
        second.close()
        assert first.stored(name) == b"second"

    def test_nothing_is_stored_without_the_lease(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check a lease that was released, has ended, or was acquired by another coordinator."""
        lease = first.acquire(name, self.ttl_ms, b"")
        assert lease is not None
        assert first.store(lease, b"first")
        _until(lambda: not second.leases(name))
        assert not first.store(lease, b"late")
        later = second.acquire(name, LONG_MS, b"")
        assert later is not None
        assert not first.store(lease, b"late")
        second.release(later)
        assert not second.store(later, b"late")
        assert first.stored(name) == b"first"
        with pytest.raises(InvalidInput):
            second.store(later, b"v" * 65_537)
        with pytest.raises(InvalidInput):
            first.stored("\ud800")

    # -- watches ----------------------------------------------------------------------------------

    def test_a_watch_reports_changes(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check acquisitions and ends, by release and by time, of names with the prefix only."""
        before = first.acquire(f"{name}/before", LONG_MS, b"")
        watch = second.watch(f"{name}/")
        assert iter(watch) is watch
        assert first.acquire(f"{name}-other", LONG_MS, b"") is not None
        lease = first.acquire(f"{name}/a", LONG_MS, b"v")
        assert before is not None
        assert lease is not None
        assert _next(watch) == Change(ChangeKind.HELD, lease.name, lease.token, b"v")
        first.release(lease)
        assert _next(watch) == Change(ChangeKind.FREE, lease.name, lease.token)
        short = first.acquire(f"{name}/b", 2 * self.ttl_ms, b"")
        assert short is not None
        assert _next(watch) == Change(ChangeKind.HELD, short.name, short.token)
        assert _next(watch) == Change(ChangeKind.FREE, short.name, short.token)
        first.release(before)
        assert _next(watch) == Change(ChangeKind.FREE, before.name, before.token)

    def test_a_watch_ignores_renewals(self, first: Coordinator, name: str) -> None:
        """Check that a renewed lease is not reported again."""
        watch = first.watch(name)
        lease = first.acquire(name, LONG_MS, b"")
        assert lease is not None
        assert _next(watch) == Change(ChangeKind.HELD, name, lease.token)
        for _ in range(3):
            assert first.renew(lease)
        later = first.acquire(f"{name}/later", LONG_MS, b"")
        assert later is not None
        assert _next(watch) == Change(ChangeKind.HELD, later.name, later.token)

    @pytest.mark.parametrize("ended", ["watch", "coordinator"])
    def test_a_closed_watch_ends(self, first: Coordinator, name: str, ended: str) -> None:
        """Check a watch that is closed by another thread, by itself or with its coordinator."""
        watch = first.watch(name)
        reported: list[Change] = []
        thread = threading.Thread(target=lambda: reported.extend(watch), daemon=True)
        thread.start()
        lease = first.acquire(name, LONG_MS, b"")
        _until(lambda: reported)
        (watch if ended == "watch" else first).close()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
        assert lease is not None
        assert reported[0] == Change(ChangeKind.HELD, name, lease.token)
        with pytest.raises(StopIteration):
            next(watch)
        watch.close()

    def test_two_watches_report_the_same(
        self, first: Coordinator, second: Coordinator, name: str
    ) -> None:
        """Check watches of two coordinators on eight names."""
        watches = [first.watch(name), second.watch(name)]
        tokens: dict[str, int] = {}
        for number in range(8):
            lease = (first if number % 2 else second).acquire(f"{name}{number}", LONG_MS, b"")
            assert lease is not None
            tokens[lease.name] = lease.token
        for watch in watches:
            changes = [_next(watch) for _ in range(8)]
            assert {change.name: change.token for change in changes} == tokens


def _at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Return the results of calls that start together, each in a thread."""
    results: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(number: int) -> None:
        barrier.wait()
        results[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _until(check: Callable[[], Any]) -> Any:
    """Call a function until its result is true, and return the result."""
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end:
        result = check()
        if result:
            return result
        threading.Event().wait(0.02)
    raise AssertionError(f"not within {DEADLINE_SECONDS} s")


def _next(watch: Watch) -> Change:
    """Return the next change; fail if no change comes in time."""
    results: list[Change] = []
    thread = threading.Thread(target=lambda: results.append(next(watch)), daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)
    assert results, f"no change within {DEADLINE_SECONDS} s"
    return results[0]


def _received(pipe: Connection) -> Any:
    assert pipe.poll(DEADLINE_SECONDS), "the other process does not answer"
    return pipe.recv()


def _hold(make: Callable[[], Coordinator], name: str, ttl_ms: int, pipe: Connection) -> None:
    """Acquire a name, send the token, and send the result of a renewal when told to."""
    coordinator = make()
    lease: Lease | None = coordinator.acquire(name, ttl_ms, b"")
    pipe.send(lease and lease.token)
    pipe.recv()
    assert lease is not None
    pipe.send(coordinator.renew(lease))
    pipe.recv()


@contextmanager
def _holder(
    make: Callable[[], Coordinator], name: str, ttl_ms: int
) -> Iterator[tuple[Any, Connection]]:
    """Run a process that holds a lease, and kill it at the end."""
    context = multiprocessing.get_context("fork")
    pipe, theirs = context.Pipe()
    process = context.Process(target=_hold, args=(make, name, ttl_ms, theirs), daemon=True)
    with warnings.catch_warnings():
        # Python warns of a fork beside threads; the child uses nothing that they may have locked.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    try:
        theirs.close()
        yield process, pipe
    finally:
        process.kill()
        process.join()
        process.close()
        pipe.close()
