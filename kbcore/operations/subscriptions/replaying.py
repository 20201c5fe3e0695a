"""Changes of a standing goal that are no longer in memory, computed again from the log.

The state of the tenant at the beginning is rebuilt in a catalog of its own, and the goal is
followed there through the records of the log, with the code that keeps goals current.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from kbcore.durable.earlier_states import EarlierStates
from kbcore.errors import BudgetExceeded, KBError, LogTruncated
from kbcore.reason.budget import Budget
from kbcore.state.subscriptions import StatePosition
from kbcore.state.tenant import Tenant
from kbcore.subscriptions.goal import Evaluator, StandingGoal
from kbcore.subscriptions.history import AnswerChange
from kbcore.subscriptions.journals import Journals

MAX_CHANGES = 2000
MAX_ROWS = 20_000
"""Changes, and rows of all of them together, that are computed and kept at a time."""

MAX_GOALS = 20
"""Goals of a tenant whose changes are kept."""


@dataclass(frozen=True, slots=True)
class GoalChange:
    """The answers that appeared and disappeared with a commit, or when facts expired.

    `event_id` names the change, to read the next ones from. `seq` is the sequence number of the
    last commit of the new state, `previous_seq` that of the state before it: normally the commit
    before. `at` is the time of the new state in epoch milliseconds.
    """

    event_id: str
    seq: int
    previous_seq: int
    at: int
    appeared: list[dict[str, object]]
    disappeared: list[dict[str, object]]

    @property
    def moment(self) -> StatePosition:
        """The new state."""
        return StatePosition(self.seq, self.at)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The changes of a goal after the state `start`, up to the state `end`."""

    start: StatePosition
    end: StatePosition
    changes: list[GoalChange]

    def covers(self, position: StatePosition) -> bool:
        """Return True if the changes after a state are among these."""
        return not position.precedes(self.start) and position.precedes(self.end)

    def after(self, position: StatePosition) -> list[GoalChange]:
        """Return the changes after a state that is covered."""
        return [change for change in self.changes if position.precedes(change.moment)]


class ReplayedChanges:
    """The changes of the goals of a tenant that were computed last, so that pages share the work.

    `replaying` is held during a replay: there is one at a time for each tenant.
    """

    def __init__(self) -> None:
        self.replaying = threading.Lock()
        self._known: dict[tuple[str, str, str | None], Replayed] = {}

    def get(self, goal: StandingGoal, position: StatePosition) -> Replayed | None:
        """Return changes that begin at a state or before, None if there are none."""
        known = self._known.get(_name_of(goal))
        return known if known is not None and known.covers(position) else None

    def put(self, goal: StandingGoal, replayed: Replayed) -> None:
        """Keep changes, in place of earlier ones of the goal."""
        self._known.pop(_name_of(goal), None)
        self._known[_name_of(goal)] = replayed
        while len(self._known) > MAX_GOALS:
            del self._known[next(iter(self._known))]

    def close(self) -> None:
        """Forget all changes."""
        self._known.clear()


def _name_of(goal: StandingGoal) -> tuple[str, str, str | None]:
    """Return what tells a goal from an earlier one with its id."""
    return goal.id, goal.goal, goal.scope


class GoalReplay:
    """One replay of a goal. `evaluator` makes the evaluator of a rebuilt tenant, `show` returns the
    external form of a change there, and `seen_in` a function that returns what the goal sees of it.
    """

    def __init__(
        self,
        states: EarlierStates,
        goal: StandingGoal,
        evaluator: Callable[[Tenant], Evaluator],
        show: Callable[[Tenant, StandingGoal, AnswerChange], GoalChange],
        budget: Budget,
        seen_in: Callable[[Tenant, Budget], Callable[[], Tenant]],
    ) -> None:
        self._states = states
        self._seen_in = seen_in
        self._goal = StandingGoal(
            goal.id, goal.goal, goal.body, goal.scope, goal.ttl_ms, goal.expires_at
        )
        self._new_evaluator = evaluator
        self._show = show
        self._budget = budget
        self._changes: list[GoalChange] = []
        self._rows = 0

    def run(self, since: StatePosition, until: StatePosition) -> Replayed | None:
        """Return the changes after a state, up to another one or as many as are kept at a time.

        None if they cannot be known: the log does not go back so far, the goal could not be
        evaluated in a state in between, the tenant was emptied in between, or the budget does not
        suffice for the first change.
        """
        try:
            if self._follow(since, until):
                return Replayed(since, until, self._changes)
        except BudgetExceeded:
            pass
        except (LogTruncated, _ReplayGap):
            return None
        except KBError:  # the goal had ended in this state
            return None
        finally:
            self._goal.close()
        if not self._changes:
            return None
        return Replayed(since, self._changes[-1].moment, self._changes)

    def _follow(self, since: StatePosition, until: StatePosition) -> bool:
        """Follow the goal; return True if that went up to the end."""
        states = self._states
        states.restore(since.seq, since.at)
        whole = states.tenant(since.at)
        with whole.lock.write():
            whole.advance(since.at)
        seen = self._seen_in(whole, self._budget)
        self._begin_in(seen())
        self._check_time(since)
        with self._tenant.lock.read():
            self._goal.begin(self._evaluator, since, self._budget)
        self._journals.watch([self._goal])
        seq = since.seq
        for change in states.records(until.seq):
            self._advance(seq, min(change.at, until.at))
            states.apply(change)
            if states.tenant(change.at) is not whole:
                raise _ReplayGap
            if (now := seen()) is not self._tenant:  # all of it was copied again
                self._goal.move(self._tenant.engine, now.engine)
                self._begin_in(now)
            seq = change.seq
            self._observe(seq)
            if len(self._changes) >= MAX_CHANGES or self._rows >= MAX_ROWS:
                return False
        self._advance(seq, until.at)
        self._check_time(until)
        return True

    def _begin_in(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._evaluator = self._new_evaluator(tenant)
        self._journals = Journals(tenant)

    def _check_time(self, moment: StatePosition) -> None:
        """Raise an error if facts that are valid in a state have ceased to be: the clock went
        back.
        """
        if self._tenant.at(0) > moment.at:
            raise _ReplayGap

    def _advance(self, seq: int, at: int) -> None:
        """Let facts begin and cease to be valid, one time after the other."""
        while (due := self._tenant.next_due()) is not None and due <= at:
            with self._tenant.lock.write():
                self._tenant.advance(due)
            self._observe(seq)

    def _observe(self, seq: int) -> None:
        tenant, goal = self._tenant, self._goal
        moment = StatePosition(seq, tenant.at(0))
        changed = self._journals.take()
        partition = tenant.partition(goal.scope)
        with tenant.lock.read():
            facts = {} if partition is None else changed.get(partition.key, {})
            goal.advance(self._evaluator, facts, moment, self._budget)
            news = goal.history.after(goal.history.start)
            for change in [] if isinstance(news, StatePosition) else news:
                self._changes.append(self._show(tenant, goal, change))
                self._rows += change.row_count
        goal.history.begin(moment)
        self._journals.watch([goal])


class _ReplayGap(Exception):
    """The changes are not a sequence of differences: the tenant was emptied, or its clock went
    back.
    """
