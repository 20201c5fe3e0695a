"""In-sync followers of a leader, for synchronous replication.

A write is acknowledged when every follower in the set has it on disk, and there is at least one. A
follower joins when it has everything that is visible, and leaves when it is silent or behind for
longer than the time limit. Each change of the set is recorded before it takes effect: a follower
that leaves is counted until then, and one that joins is counted from before. Therefore each member
of the recorded set has every acknowledged write (the in-sync replicas of Kafka).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kbcore.clock import Clock
from kbcore.durable.commit import Committer
from kbcore.errors import NotReady

NO_MEMBER = "no follower is in sync with this leader"

RETRY_SECONDS = 0.1
"""Time after which a change of the set that could not be recorded is tried again."""

_log = logging.getLogger("kbcore.replication")


@dataclass(slots=True)
class _Candidate:
    """A follower of this term: the last record it has on disk, and whether the set has it.

    `goal` is the last record at its previous request, `behind` a record that it lacks, and since
    when. `asking` counts its requests in progress, `seen` is the time of the last one.
    """

    name: str
    seq: int = 0
    goal: int | None = None
    behind: tuple[int, float] | None = None
    seen: float = 0.0
    asking: int = 0
    is_member: bool = False
    is_joining: bool = False
    has_lost_data: bool = False

    @property
    def is_counted(self) -> bool:
        """True if no write is acknowledged without this follower."""
        return self.is_member or self.is_joining

    def expect(self, seq: int, now: float) -> None:
        """Note that record `seq` is on the leader's disk."""
        if self.behind is not None and self.seq >= self.behind[0]:
            self.behind = None
        if self.behind is None and self.seq < seq:
            self.behind = seq, now

    def is_late(self, now: float, limit: float) -> bool:
        """Return True if the follower is silent, or lacks a record, for longer than `limit`."""
        is_silent = not self.asking and now - self.seen > limit
        return is_silent or (self.behind is not None and now - self.behind[1] > limit)


class InSync:
    """The in-sync set of a leader in one term, and the confirmation of writes.

    `record` stores a new set durably and raises NotReady if it cannot. `members` are the followers
    of a set that was recorded before; they count as long as they do not leave. Records up to
    `start` are visible already.
    """

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        seconds: float,
        *,
        start: int,
        members: Sequence[str] = (),
        record: Callable[[Sequence[str]], None] | None = None,
        progressed: Callable[[], None],
    ) -> None:
        self._committer = committer
        self._clock = clock
        self._seconds = seconds
        self._record = record
        self._progressed = progressed
        self._position = self._durable = start
        self._start = start
        self._mutex = threading.Lock()
        self._changed = threading.Event()
        self._closed = False
        self._trouble = ""
        now = clock.monotonic()
        self._known = {
            name: _Candidate(name, behind=(start, now), seen=now, is_member=True)
            for name in members
        }
        self.members: frozenset[str] = frozenset(members)
        """Names of the followers in the set."""
        self.is_settled = not members
        """True once every member has the records up to `start`."""
        self._thread = threading.Thread(target=self._run, name="kbcore-in-sync", daemon=True)

    def start(self) -> None:
        """Begin to change the set in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Confirm nothing more, and end the thread."""
        with self._mutex:
            self._closed = True
        self._changed.set()

    def admit(self) -> None:
        """Raise NotReady if a write could not be acknowledged now. Takes no lock."""
        if not self.members:
            raise NotReady(
                f"{NO_MEMBER}: this write was not carried out",
                {"reason": "no follower in sync", "outcome": "not_done"},
            )

    def wrote(self, seq: int) -> None:
        """Note that the records up to `seq` are on the leader's disk."""
        with self._mutex:
            self._durable = max(seq, self._durable)
            now = self._clock.monotonic()
            for each in self._known.values():
                if each.is_counted:
                    each.expect(seq, now)

    @contextmanager
    def asking(self, name: str, seq: int) -> Iterator[None]:
        """Note a request of a follower that has the records up to `seq` on disk, while it lasts.

        Raises NotReady if the follower has lost records that it had confirmed, until it has left
        the set.
        """
        candidate = self._arrived(name, seq)
        try:
            yield
        finally:
            with self._mutex:
                candidate.asking -= 1
                candidate.seen = self._clock.monotonic()

    def _arrived(self, name: str, seq: int) -> _Candidate:
        with self._mutex:
            now = self._clock.monotonic()
            each = self._known.setdefault(name, _Candidate(name))
            if each.is_counted and seq < each.seq:
                each.has_lost_data = True
                self._changed.set()
                raise NotReady("this follower has lost records; it leaves the in-sync set first")
            keeps_up = seq >= self._durable or (each.goal is not None and seq >= each.goal)
            each.seq, each.goal, each.seen = seq, self._durable, now
            each.asking += 1
            if not each.is_counted and keeps_up:
                each.is_joining, each.behind = True, None
                self._changed.set()
            each.expect(self._durable, now)
            self._advance()
            if each.is_joining and seq >= self._position:
                self._changed.set()
        return each

    def restarts(self, name: str) -> None:
        """Note that a follower fetches a snapshot: it has none of the records.

        Raises NotReady until it has left the set.
        """
        with self._mutex:
            each = self._known.get(name)
            if each is not None and each.is_counted:
                each.has_lost_data = True
                self._changed.set()
                raise NotReady("this follower has lost its log; it leaves the in-sync set first")

    def _advance(self) -> None:
        """Confirm what every counted follower has; the caller holds the mutex."""
        if self._closed or not self.members:
            return
        position = min(each.seq for each in self._known.values() if each.is_counted)
        self.is_settled = self.is_settled or position >= self._start
        position = min(position, self._durable)
        if position > self._position:
            self._position = position
            self._committer.confirm(position)
            self._progressed()

    # -- changes of the set ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            try:
                is_done = self.review()
            except Exception:  # noqa: BLE001 - the set stays as it is, and the next review tries again
                _log.exception("the in-sync set could not be reviewed")
                is_done = False
            self._changed.wait(self._seconds / 4 if is_done else RETRY_SECONDS)
            self._changed.clear()

    def review(self) -> bool:
        """Change the set if a follower joins or leaves; return False if that must be repeated.

        For one thread at a time: the one of `start`, or a test.
        """
        now = self._clock.monotonic()
        with self._mutex:
            joining, leaving = self._due_changes(now)
            members = (self.members - leaving) | joining
            is_unchanged = self._closed or members == self.members
            if is_unchanged:
                self._advance()
        if is_unchanged:
            if not members:  # a write may have been admitted just before the last one left
                self._committer.give_up_waiting(NO_MEMBER)
            return True
        if not self._record_members(members):
            return False
        self._change(members, joining, leaving)
        return True

    def _due_changes(self, now: float) -> tuple[set[str], set[str]]:
        """Return the followers that join the set and those that leave it at `now`.

        Joining followers that are late or have lost data have to begin again, and late followers
        outside the set are forgotten. The caller holds the mutex.
        """
        joining, leaving = set[str](), set[str]()
        for each in list(self._known.values()):
            is_late = each.is_late(now, self._seconds)
            if each.is_joining and (is_late or each.has_lost_data):
                each.is_joining = each.has_lost_data = False
            if each.is_member and (is_late or each.has_lost_data):
                leaving.add(each.name)
            if is_late and not each.is_counted:
                del self._known[each.name]
            elif each.is_joining and each.seq >= self._position:
                joining.add(each.name)
        return joining, leaving

    def _record_members(self, members: frozenset[str]) -> bool:
        """Record a new set durably; return False if that is not possible now."""
        try:
            if self._record is not None:
                self._record(sorted(members))
        except NotReady as error:
            if error.message != self._trouble:
                _log.warning("the in-sync set could not be recorded: %s", error.message)
            self._trouble = error.message
            return False
        self._trouble = ""
        return True

    def _change(self, members: frozenset[str], joining: set[str], leaving: set[str]) -> None:
        with self._mutex:
            for name in joining:
                self._known[name].is_member, self._known[name].is_joining = True, False
            for name in leaving:
                del self._known[name]  # its next request makes a new candidate
            self.members = members
            self.is_settled = self.is_settled or not members
            self._advance()
        if joining:
            _log.info("in sync now: %s; the set is %s", _listed(joining), _listed(members))
        if leaving:
            _log.warning(
                "not in sync any more: %s; the set is %s", _listed(leaving), _listed(members)
            )
        if not members:
            _log.error("%s: writes are refused", NO_MEMBER)
            self._committer.give_up_waiting(NO_MEMBER)


def _listed(names: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "empty"
