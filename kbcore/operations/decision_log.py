"""The decision log: a line of JSON for each goal that was answered, or the counts of decisions.

`DECISION_LOG` names a target: `file:PATH`, `statsd:HOST:PORT` or `webhook:URL`. A request only
appends to a bounded queue; a thread writes. What cannot be queued or written is counted.
Lines have no answers and no keys, and `***` in place of constants that a `@mask` declaration hides.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Any

import orjson

from kbcore.errors import KBError
from kbcore.operations.decision_targets import DecisionTarget, NotWritten
from kbcore.operations.evaluated_goal import KEY_NAME, EvaluatedGoal, InForce, Masks
from kbcore.operations.slow_log import REQUEST
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbcore.timestamps import iso_text, time_text
from kbplanner.ir.terms import Apply, Atom, BodyItem, Comparison, Literal
from kbplanner.syntax.printer import print_item, print_predicate, print_term

MASKED = "***"
"""Replacement of a masked constant in a line."""

MAX_WAITING = 20_000
"""Maximum number of decisions that wait to be written; further ones are dropped."""

WRITE_INTERVAL_S = 1.0
"""Seconds between two writes."""

MAX_KNOWN = 1000
"""Maximum number of tenants and scopes whose rule sets and masks are remembered."""

LINES_PER_WRITE = 1000
"""Maximum number of lines of one write."""

LINES_PER_YIELD = 100
"""Lines put together between two calls of `yield_now`: about a millisecond."""

MAX_GOAL_CHARS = 10_000
"""Logged length of a goal, in characters."""

CHARS_PER_PLACE = 1000
"""Characters of a goal for which it takes one place in the queue; so the queue takes at most some
tens of MiB.
"""

CHARS_PER_ARGUMENT = 64
"""Characters that stand for the memory of an argument beside its text."""

MAX_WORD_CHARS = 64
"""Maximum number of characters of a constant whose printed form is remembered."""

MAX_NAMED = 100
"""Maximum number of rule sets that a line names."""

_log = logging.getLogger("kbcore.decisions")


Decision = tuple[
    Sequence[BodyItem],
    str,
    str | None,
    InForce,
    int,
    int,
    str | None,
    float,
    int,
    int | None,
    int | None,
]
"""The contents of a line: the goal; request id and name of the key; rule sets with masks, and the
generation; number of answers, error code and seconds; the times now, `asOf` and `knownAt`.

It is one tuple, because thousands of them wait, and the collector of garbage looks at each.
"""


class DecisionLog:
    """Queue and writer of the decisions of one process.

    `count` gets an outcome (`written`, `dropped`, `failed`) and a number of lines. `yield_now` is
    called about once a millisecond while lines are put together.
    """

    def __init__(
        self,
        target: DecisionTarget,
        count: Callable[..., None],
        yield_now: Callable[[], None],
    ) -> None:
        self._target = target
        self._count = count
        self._yield_now = yield_now
        self._waiting: deque[Decision | bytes] = deque()
        self._lines: list[bytes] = []
        """Lines of the queue that were put together and are not written yet."""
        self._in_force: dict[tuple[int, str | None], tuple[int, int, InForce]] = {}
        self._has_failed = False
        self._draining = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kbcore-decisions", daemon=True)
        self._thread.start()

    def in_force(self, tenant: Tenant, scope: str | None) -> InForce:
        """Return what is in force in a scope; the caller holds the read lock."""
        rules, sets = tenant.rules, tenant.rule_sets
        known = self._in_force.get((tenant.serial, scope))
        if known is None or known[0] != rules.version or known[1] != sets.version:
            is_all = scope == ALL_SCOPES
            valid = (
                each
                for each in (sets.all() if sets.version else ())
                if is_all or each.scope in (None, scope)
            )
            named = [
                {"name": each.name, "version": each.version}
                | ({} if each.scope is None else {"scope": each.scope})
                for each in islice(valid, MAX_NAMED)
            ]
            members = {
                "database": tenant.database,
                "tenant": tenant.name,
                "scope": scope,
                "ruleSets": named,
            }
            masks = rules.masks(scope, all_scopes=is_all)
            known = rules.version, sets.version, InForce(orjson.dumps(members)[1:-1], masks)
            if len(self._in_force) >= MAX_KNOWN:
                self._in_force.clear()
            self._in_force[tenant.serial, scope] = known
        return known[2]

    def put(self, goal: EvaluatedGoal, at: int, known_at: int | None) -> None:
        """Queue the decision of a goal; drop it if the queue is full."""
        _, items, seconds, _, raised, options, in_force, generation, answers = goal
        if in_force is None:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._count("dropped", 1)
            return
        error = None if raised is None else _code_of(raised)
        if not self._target.needs_lines:
            outcome = b"error" if error is not None else b"true" if answers else b"false"
            self._waiting.append(outcome)
            return
        as_of = None if options is None else options.as_of
        if places := _chars_of(items) // CHARS_PER_PLACE:
            if len(self._waiting) + places >= MAX_WAITING:
                self._count("dropped", 1)
                return
            self._waiting.extend((b"",) * places)
        self._waiting.append(
            (
                items,
                REQUEST.get(),
                KEY_NAME.get(),
                in_force,
                generation,
                answers,
                error,
                seconds,
                at,
                as_of,
                known_at,
            )
        )

    def close(self) -> None:
        """Write what waits, and close the target."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        self._drain()
        if lost := len(self._lines) + sum(1 for each in self._waiting if each):
            self._count("failed", lost)
        self._target.close()

    def _run(self) -> None:
        while not self._stop.wait(WRITE_INTERVAL_S):
            self._drain()

    def _drain(self) -> None:
        """Write all that waits, unless the target wants it later."""
        with self._draining:
            while self._waiting or self._lines:
                self._put_together()
                if not self._lines:
                    return
                try:
                    written = self._target.write(self._lines)
                except NotWritten as problem:
                    if not self._has_failed:
                        self._has_failed = True
                        _log.warning("the decision log cannot be written: %s", problem)
                    if problem.is_kept:
                        return
                    self._count("failed", len(self._lines))
                    self._lines.clear()
                    continue
                self._has_failed = False
                self._count("written", written)
                del self._lines[:written]

    def _put_together(self) -> None:
        """Take decisions from the queue until there are enough lines for a write."""
        until_yield = LINES_PER_YIELD
        while self._waiting and len(self._lines) < LINES_PER_WRITE:
            decision = self._waiting.popleft()
            if decision:  # not a further place of the next one
                self._lines.append(decision if isinstance(decision, bytes) else line_of(decision))
            until_yield -= 1
            if not until_yield:
                until_yield = LINES_PER_YIELD
                self._yield_now()


def line_of(decision: Decision) -> bytes:
    """Return the line of a decision, with its end.

    The line is put together of parts, because it must take little of the time that a goal takes.
    """
    goal, request, key, in_force, generation, count, error, seconds, at, as_of, known_at = decision
    if error is None:
        holds, answers = b"true" if count else b"false", b"%d" % count
    else:
        holds = answers = b"null"
    times = b""
    if as_of is not None:
        times += b',"asOf":' + orjson.dumps(time_text(as_of))
    if known_at is not None:
        times += b',"knownAt":' + orjson.dumps(time_text(known_at))
    second, milliseconds = divmod(at, 1000)
    return (
        b'{"time":"%b.%03dZ","id":%b,"key":%b,%b,"goal":%b,"holds":%b,"answers":%b,"error":%b'
        b',"ms":%.3f,"generation":%d%b}\n'
    ) % (
        _second(second),
        milliseconds,
        orjson.dumps(request or None),
        orjson.dumps(key),
        in_force.members,
        orjson.dumps(goal_text(goal, in_force.masks, hides_all=in_force.hides_all)),
        holds,
        answers,
        orjson.dumps(error),
        seconds * 1000,
        generation,
        times,
    )


@lru_cache(maxsize=4)
def _second(second: int) -> bytes:
    return iso_text(second * 1000)[:-5].encode()


def _code_of(error: BaseException) -> str:
    return error.code if isinstance(error, KBError) else "INTERNAL_ERROR"


def goal_text(goal: Sequence[BodyItem], masks: Masks, *, hides_all: bool = False) -> str:
    """Return a goal as text with `***` for masked constants, wherever in the goal they are, or for
    all constants.

    Beside a masked argument all constants of comparisons are masked: they could be its value.
    """
    if hides_all:
        hidden = {
            arg
            for item in goal
            if isinstance(item, Literal)
            for arg in item.atom.args
            if isinstance(arg, str)
        }
        return _shortened(", ".join(_item_text(_hiding(item, hidden)) for item in goal))
    if not masks:
        return _shortened(", ".join(map(_item_text, goal)))
    hidden = set()
    is_masked = False
    for item in goal:
        if isinstance(item, Literal):
            atom = item.atom
            for index in masks.get((atom.predicate, atom.arity), ()):
                is_masked = True
                argument = atom.args[index]
                if isinstance(argument, str):
                    hidden.add(argument)
    if is_masked:
        goal = [_hiding(item, hidden) for item in goal]
    return _shortened(", ".join(map(_item_text, goal)))


def _chars_of(goal: Sequence[BodyItem]) -> int:
    """Return about how many characters of memory a goal takes."""
    chars = 0
    for item in goal:
        args: Sequence[Any] = (
            (item.left, item.right) if isinstance(item, Comparison) else item.atom.args
        )
        for arg in args:
            chars += CHARS_PER_ARGUMENT + (len(arg) if type(arg) is str else _chars_in(arg))
    return chars


def _chars_in(term: Any) -> int:
    """Return the characters in the names and constants of a variable or an expression."""
    if isinstance(term, Apply):
        return sum(
            CHARS_PER_ARGUMENT + (len(arg) if isinstance(arg, str) else _chars_in(arg))
            for arg in term.args
        )
    return len(term.name)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_GOAL_CHARS else text[:MAX_GOAL_CHARS] + "..."


def _item_text(item: BodyItem) -> str:
    """Return an item as `print_item` does; most are positive literals with words as arguments."""
    if type(item) is Literal and not item.negated:
        atom = item.atom
        args = atom.args
        if atom.positive and args:
            name = _predicate(atom.predicate, len(args))
            texts = [
                _word(arg) if type(arg) is str and len(arg) <= MAX_WORD_CHARS else print_term(arg)
                for arg in args
            ]
            return f"{name}({', '.join(texts)})"
    return print_item(item)


_predicate = lru_cache(maxsize=1024)(print_predicate)
_word = lru_cache(maxsize=8192)(print_term)


def _hiding(item: BodyItem, hidden: Collection[Any]) -> BodyItem:
    """Return an item with masked constants."""
    if isinstance(item, Comparison):
        return replace(
            item, left=_without_constants(item.left), right=_without_constants(item.right)
        )
    atom = item.atom
    args = tuple(MASKED if arg in hidden else arg for arg in atom.args)
    return replace(item, atom=Atom(atom.predicate, args, atom.positive))


def _without_constants(expression: Any) -> Any:
    if isinstance(expression, Apply):
        return replace(expression, args=tuple(map(_without_constants, expression.args)))
    return MASKED if isinstance(expression, str) else expression
