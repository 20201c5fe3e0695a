"""Goals that a Python program follows: their answers, and how they change."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import TracebackType

from kbcore.errors import NotFound
from kbcore.operations.subscriptions.replaying import GoalChange
from kbcore.operations.subscriptions.subscribing import DEFAULT_TTL_MS, GoalAnswers
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.arguments import body_of
from kbcore.python_api.handle import PythonHandle
from kbcore.state.facts import Row
from kbplanner.ir.terms import BodyItem
from kbtypes.results import AnswersChanged
from kbtypes.values import Arg

MAX_WAIT_SECONDS = 60.0
"""Time after which a waiting reader renews its goal."""

Answer = tuple[str, ...]


class FollowedGoal:
    """A goal whose answers are kept current. Iterating waits for the next change, without an end.

    Changes are read by one thread at a time. `close`, or the end of a `with` block, ends the
    subscription.
    """

    def __init__(
        self, kb: TenantKB, body: Sequence[BodyItem], scope: str | None, ttl_ms: int
    ) -> None:
        self._kb = kb
        self._body = tuple(body)
        self._scope = scope
        self._ttl_ms = ttl_ms
        self._woken = threading.Event()
        self._closed = False
        self._pending: list[AnswersChanged] = []
        first = self._subscribe()
        self._answers: set[Answer] = set(map(_answer, first.answers))

    @property
    def answers(self) -> frozenset[Answer]:
        """The answers after the last change that was read."""
        return frozenset(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def changes(self) -> list[AnswersChanged]:
        """Return the changes since the last call, oldest first, without waiting."""
        self._read()
        changes, self._pending = self._pending, []
        for change in changes:
            self._apply(change)
        return changes

    def wait(self, seconds: float | None = None) -> AnswersChanged | None:
        """Return the next change; wait for it at most `seconds`, or (None) without an end.

        Returns None if there was no change in time, or the goal was closed.
        """
        clock = self._kb.clock
        deadline = None if seconds is None else clock.monotonic() + seconds
        while not self._closed:
            self._woken.clear()
            if not self._pending:
                self._read()
            if self._pending:
                change = self._pending.pop(0)
                self._apply(change)
                return change
            left = MAX_WAIT_SECONDS if deadline is None else deadline - clock.monotonic()
            if left <= 0:
                return None
            due = self._kb.next_due_seconds()
            self._woken.wait(min(left, MAX_WAIT_SECONDS, MAX_WAIT_SECONDS if due is None else due))
        return None

    def close(self) -> None:
        """End the subscription; a thread that waits gets None."""
        self._closed = True
        self._woken.set()
        self._stop()
        self._kb.end_goal(self._id)

    def __iter__(self) -> Iterator[AnswersChanged]:
        while (change := self.wait()) is not None:
            yield change

    def __enter__(self) -> FollowedGoal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _subscribe(self) -> GoalAnswers:
        first = self._kb.subscribe_goal(self._body, scope=self._scope, ttl_ms=self._ttl_ms)
        self._id, self._since = first.goal.id, first.event_id
        self._stop = first.goal.listen(self._woken.set)
        return first

    def _read(self) -> None:
        """Add new changes to those that wait; changes that were lost become one difference."""
        try:
            changes = self._kb.goal_changes(self._id, self._since, limit=None)
            whole = self._kb.goal_answers(self._id) if changes is None else None
        except NotFound:  # not renewed in time, or the tenant was emptied
            changes, whole = None, self._subscribe()
        if whole is not None:
            self._since = whole.event_id
            known, now = self._known(), set(map(_answer, whole.answers))
            if now != known:
                difference = sorted(now - known), sorted(known - now)
                self._pending.append(AnswersChanged(*difference, whole.seq, whole.at))
        elif changes:
            self._since = changes[-1].event_id
            self._pending += map(_changed, changes)

    def _known(self) -> set[Answer]:
        """Return the answers after the changes that wait."""
        known = set(self._answers)
        for change in self._pending:
            known.difference_update(change.disappeared)
            known.update(change.appeared)
        return known

    def _apply(self, change: AnswersChanged) -> None:
        self._answers.difference_update(change.disappeared)
        self._answers.update(change.appeared)


class PythonFollowing(PythonHandle):
    """Goals whose answers are kept current."""

    def follow(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        ttl_ms: int = DEFAULT_TTL_MS,
    ) -> FollowedGoal:
        """Keep the answers of a goal current, and tell how they change.

        `follow("ancestor(ann, ?who)")` has the answers in `answers`; iterating it waits for each
        change. Each commit that changes the answers is one change, exactly as a new evaluation
        after the commit would show. The goal ends `ttl_ms` milliseconds after its last use. Raises
        InvalidInput for a goal that depends on `now()` or on predicates of plugins, RateLimited
        beyond the number of goals per tenant, and BudgetExceeded.
        """
        return FollowedGoal(self.kb, body_of(goal, args), scope, ttl_ms)


def _answer(row: Row) -> Answer:
    return tuple(row["args"]) if "args" in row else tuple(row["bindings"].values())


def _changed(change: GoalChange) -> AnswersChanged:
    appeared, disappeared = (
        [_answer(row) for row in rows] for rows in (change.appeared, change.disappeared)
    )
    return AnswersChanged(appeared, disappeared, change.seq, change.at)
