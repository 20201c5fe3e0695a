"""The external predicates of a node, how they are called, and the rules that depend on them."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from kbcore.config.settings import Config
from kbcore.errors import (
    BudgetExceeded,
    ConfigError,
    Conflict,
    ExternalRecursion,
    InvalidInput,
    KBError,
    NotReady,
    PredicateFailed,
    UnboundArgument,
)
from kbcore.plug.ports import Predicate, PredicateCall
from kbcore.reason.budget import Budget
from kbcore.scheduling import CallWithin
from kbplanner.compile.rules import ExternalRules, RuleSet
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.modes import Modes
from kbplanner.ir.schema import RelationSchema
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.jsonform import constant_from_json

MAX_CACHED_ROWS = 100_000
"""Rows of pure predicates that a node caches, counting inputs without rows as one."""

Values = tuple[str, ...]
"""Inputs of a call, or a row."""

Key = tuple[RelationSchema, str]
"""A relation and a mode of it, with `b` for "in" and `f` for "out"."""

EXTERNAL_PROBLEMS = (PredicateFailed, UnboundArgument, ExternalRecursion, Conflict)
"""Errors of a goal that depends on external predicates, beside those of every goal."""

log = logging.getLogger("kbcore.predicates")


class TextSearcher(Protocol):
    """Searches for stored facts of the tenant that a goal is asked of. It takes the locks itself.

    Results are the ids of the best facts of a scope with their scores, best first. They raise
    BudgetExceeded.
    """

    def matching(self, text: str, scope: str | None, budget: Budget) -> list[tuple[str, float]]:
        """Return the facts that share words with a text."""

    def nearest(self, text: str, scope: str | None, budget: Budget) -> list[tuple[str, float]]:
        """Return the facts whose vectors are near that of a text."""


Search = Callable[[TextSearcher, str, str | None, Budget], list[tuple[str, float]]]

SEARCHES: Mapping[str, Search] = {
    "matches_text": lambda searcher, *asked: searcher.matching(*asked),
    "near": lambda searcher, *asked: searcher.nearest(*asked),
}
"""The predicates (text, fact, score) that search the stored facts for a text."""


class ExternalPredicates:
    """The external predicates of a node: those of plugins, and the `searches` among SEARCHES.

    `on_failure` is called when a plugin fails.
    """

    def __init__(
        self,
        predicates: Mapping[str, Predicate],
        searches: Iterable[str],
        call_within: CallWithin,
        on_failure: Callable[[], None],
    ) -> None:
        self._call_within = call_within
        self._on_failure = on_failure
        self._predicates = {
            RelationSchema(each.name, each.arity): each for each in predicates.values()
        }
        self.searches = {RelationSchema(name, 3): SEARCHES[name] for name in searches}
        self.modes: Modes = {
            **{schema: modes_of(each) for schema, each in self._predicates.items()},
            **dict.fromkeys(self.searches, ("bff",)),
        }
        self.derived_modes: Modes = {schema.derived: own for schema, own in self.modes.items()}
        self.signatures = frozenset((schema.predicate, schema.arity) for schema in self.modes)
        self._cache = RowCache()

    def rules(self, rules: RuleSet, goal: RelationSchema) -> ExternalRules | None:
        """Return the form of rules with which a goal on a stored schema is evaluated; None if it
        depends on no external predicate.

        Raises Conflict if rules conclude an external predicate that the goal depends on.
        """
        modes = self.modes
        if goal not in modes and rules.reads.isdisjoint(modes):
            return None
        form = rules.with_external(modes)
        reached = form.external_of(goal)
        if not reached:
            return None
        for schema in reached:
            if schema in rules.derived:
                raise Conflict(
                    f"{schema} is an external predicate, but there are rules for it: retract them,"
                    " or disable what provides it",
                    {"reason": "external", "predicate": str(schema)},
                )
        return form

    def independent(self, rules: RuleSet) -> RuleSet:
        """Return the rules whose conclusions depend on no external predicate."""
        if rules.reads.isdisjoint(self.modes):
            return rules
        return rules.with_external(self.modes).independent()

    def check_new(self, signatures: Iterable[tuple[str, int]]) -> None:
        """Raise InvalidInput if facts or rules of these predicates cannot be stored."""
        for name, arity in self.signatures.intersection(signatures):
            raise InvalidInput(
                f"{name}/{arity} is an external predicate: facts and rules for it cannot be stored",
                {"kind": "external-predicate", "predicate": f"{name}/{arity}"},
            )

    def call(self, call: PredicateCall, schema: RelationSchema, budget: Budget) -> list[Values]:
        """Return the rows for the inputs of a call; raises PredicateFailed and BudgetExceeded."""
        predicate = self._predicates[schema]
        try:
            rows: list[Values] = self._call_within(partial(_rows, predicate, call), call.seconds)
        except TimeoutError:
            self._failed(schema, "timeout")
            budget.check_time()
            raise PredicateFailed(str(schema), "timeout") from None
        except (InvalidInput, NotReady):
            raise
        except _InvalidRows as error:
            self._failed(schema, str(error))
            raise PredicateFailed(str(schema), str(error)) from error
        except Exception as error:
            log.warning("predicate %s failed", schema, exc_info=True)
            self._on_failure()
            raise PredicateFailed(str(schema), "error") from error
        budget.check_time()
        if 0 < call.max_rows < len(rows):
            raise BudgetExceeded(
                f"{schema} gave more rows than the budget of the evaluation allows",
                "derivedRows",
                budget.limits.rows,
            )
        return rows

    def cached(self, key: Key, inputs: Iterable[Values]) -> dict[Values, tuple[Values, ...]]:
        """Return the rows that are cached for inputs of a pure predicate, by input."""
        return self._cache.get(key, inputs) if self._is_pure(key[0]) else {}

    def cache(self, key: Key, rows: Mapping[Values, Sequence[Values]]) -> None:
        """Cache the rows of inputs, if the predicate is pure."""
        if self._is_pure(key[0]):
            self._cache.put(key, rows)

    def _is_pure(self, schema: RelationSchema) -> bool:
        return schema in self._predicates and self._predicates[schema].pure

    def _failed(self, schema: RelationSchema, reason: str) -> None:
        log.warning("predicate %s failed: %s", schema, reason)
        self._on_failure()


def search_predicates(config: Config) -> tuple[str, ...]:
    """Return the predicates that SEARCH_PREDICATES names; raises ConfigError."""
    names = tuple(dict.fromkeys(config.search_predicates))
    for name in names:
        if name not in SEARCHES:
            choices = ", ".join(SEARCHES)
            raise ConfigError(f"SEARCH_PREDICATES={name!r} does not exist; choose from: {choices}")
    if "near" in names and config.embedder.lower() in ("", "none"):
        raise ConfigError("SEARCH_PREDICATES names near, which needs EMBEDDER")
    return names


def modes_of(predicate: Predicate) -> tuple[str, ...]:
    """Return the modes of a predicate, `b` for "in" and `f` for "out"."""
    return tuple("".join("b" if use == "in" else "f" for use in mode) for mode in predicate.modes)


class RowCache:
    """Rows of pure predicates by input, at most `MAX_CACHED_ROWS`, evicted least recently used
    first.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._rows: OrderedDict[tuple[Key, Values], tuple[Values, ...]] = OrderedDict()
        self._size = 0

    def get(self, key: Key, inputs: Iterable[Values]) -> dict[Values, tuple[Values, ...]]:
        """Return the cached rows of those inputs that are known."""
        known = {}
        with self._mutex:
            for values in inputs:
                rows = self._rows.get((key, values))
                if rows is not None:
                    self._rows.move_to_end((key, values))
                    known[values] = rows
        return known

    def put(self, key: Key, rows: Mapping[Values, Sequence[Values]]) -> None:
        """Cache the rows of inputs."""
        with self._mutex:
            for values, own in rows.items():
                if (key, values) not in self._rows:
                    self._rows[key, values] = tuple(own)
                    self._size += max(len(own), 1)
            while self._size > MAX_CACHED_ROWS:
                self._size -= max(len(self._rows.popitem(last=False)[1]), 1)


class _InvalidRows(Exception):
    """A predicate returned rows that are none; the message says why."""


def _rows(predicate: Predicate, call: PredicateCall) -> list[Values]:
    """Call a plugin and return its rows as texts, at most one more than the call accepts."""
    rows: list[Values] = []
    result = predicate.rows(call)
    limit = call.max_rows + 1 if call.max_rows else None
    try:
        iterator = iter(result)
    except TypeError:
        raise _InvalidRows(f"it returned {type(result).__name__} instead of rows") from None
    for row in islice(iterator, limit):
        if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != predicate.arity:
            raise _InvalidRows(f"a row must be a sequence of {counted(predicate.arity, 'value')}")
        rows.append(tuple([value if type(value) is str else _text(value) for value in row]))
    for row in rows:
        for text in row:
            if problem := DEFAULT_LIMITS.constant_problem(text):
                raise _InvalidRows(f"a value of a row is no constant: {problem}")
    return rows


def _text(value: object) -> str:
    try:
        return constant_from_json(value, "value")
    except KBError as error:
        raise _InvalidRows(error.message) from None
