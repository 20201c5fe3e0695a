"""Predicates whose rows plugins provide: which there are, and the rows of one request.

A goal that depends on such a predicate is evaluated over the rows that are known, at first none.
The passes make *demand* for the predicate: the inputs that the rules have for it. If the run ends
with inputs that are not known, `RowsNeeded` ends the evaluation. The caller releases the locks,
calls the plugins with all these inputs at once, and evaluates again. When a run ends without new
inputs, its answers are those over the whole relation: no clause whose premises hold reads a row for
other inputs (magic sets).

The rows belong to one request, so nothing has to be invalidated. Rows of predicates that are
declared pure are also kept by the node, by input.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
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
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.plan import ExternalDemand
from kbplanner.compile.rules import ExternalRules, RuleSet
from kbplanner.engine.backend import Engine, Relation
from kbplanner.evaluate.evaluate import GoalRun
from kbplanner.evaluate.loaded import Bind
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.modes import Modes
from kbplanner.ir.numbers import number_text
from kbplanner.ir.schema import RelationSchema
from kbplanner.syntax.jsonform import constant_from_json

MAX_INPUTS = 1000
"""Inputs in one call of a plugin."""

MAX_KEPT_ROWS = 100_000
"""Rows of pure predicates that a node keeps, counting inputs without rows as one."""

Values = tuple[str, ...]
"""Inputs of a call, or a row."""

Key = tuple[RelationSchema, str]
"""A relation and a mode of it, with `b` for "in" and `f` for "out"."""

EXTERNAL_PROBLEMS = (PredicateFailed, UnboundArgument, ExternalRecursion, Conflict)
"""Errors of a goal that depends on external predicates, beside those of every goal."""

log = logging.getLogger("kbcore.predicates")


class RowsNeeded(Exception):
    """The end of an evaluation that needs rows of external predicates: `fetch`, then evaluate again.

    It is not raised to clients. `fetch` must be called without a lock.
    """

    def __init__(
        self, rows: ExternalRows, scope: str | None, inputs: Mapping[Key, Sequence[Values]]
    ) -> None:
        super().__init__("rows of external predicates are needed")
        self.rows = rows
        self._scope = scope
        self._inputs = inputs

    def fetch(self, budget: Budget, searcher: TextSearcher) -> None:
        """Call the plugins, and search with `searcher`; raises PredicateFailed and BudgetExceeded."""
        for key, inputs in self._inputs.items():
            for start in range(0, len(inputs), MAX_INPUTS):
                batch = inputs[start : start + MAX_INPUTS]
                self.rows.fetch(self._scope, key, batch, budget, searcher)


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
        self._kept = KeptRows()

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
                "rows",
                budget.limits.rows,
            )
        return rows

    def kept(self, key: Key, inputs: Iterable[Values]) -> dict[Values, tuple[Values, ...]]:
        """Return the rows that are kept for inputs of a pure predicate, by input."""
        return self._kept.get(key, inputs) if self._is_pure(key[0]) else {}

    def keep(self, key: Key, rows: Mapping[Values, Sequence[Values]]) -> None:
        """Keep the rows of inputs, if the predicate is pure."""
        if self._is_pure(key[0]):
            self._kept.put(key, rows)

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


class KeptRows:
    """Rows of pure predicates by input, at most `MAX_KEPT_ROWS`, evicted least recently used first."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._rows: OrderedDict[tuple[Key, Values], tuple[Values, ...]] = OrderedDict()
        self._size = 0

    def get(self, key: Key, inputs: Iterable[Values]) -> dict[Values, tuple[Values, ...]]:
        """Return the kept rows of those inputs that are known."""
        known = {}
        with self._mutex:
            for values in inputs:
                rows = self._rows.get((key, values))
                if rows is not None:
                    self._rows.move_to_end((key, values))
                    known[values] = rows
        return known

    def put(self, key: Key, rows: Mapping[Values, Sequence[Values]]) -> None:
        """Keep the rows of inputs."""
        with self._mutex:
            for values, own in rows.items():
                if (key, values) not in self._rows:
                    self._rows[key, values] = tuple(own)
                    self._size += max(len(own), 1)
            while self._size > MAX_KEPT_ROWS:
                self._size -= max(len(self._rows.popitem(last=False)[1]), 1)


@dataclass(slots=True)
class _Known:
    """The rows of one predicate that are known in a scope, and the inputs they are complete for."""

    inputs: dict[str, set[Values]] = field(default_factory=dict)
    rows: dict[Values, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Loaded:
    """The rows of a predicate as a relation of an engine; `count` of the known rows are in it."""

    engine: Engine
    relation: Relation
    count: int = 0


class ExternalRows:
    """The rows of external predicates that one request knows.

    They are the same for the whole request. Methods other than `fetch` are called with the tenant's
    read lock held.
    """

    def __init__(self, predicates: ExternalPredicates, tenant: Tenant) -> None:
        self._predicates = predicates
        self._database, self._tenant = tenant.database, tenant.name
        self._known: dict[tuple[str | None, RelationSchema], _Known] = {}
        self._loaded: dict[tuple[str | None, RelationSchema], _Loaded] = {}
        self._count = 0

    def bind(self, tenant: Tenant, partition: Partition, stored: Bind) -> Bind:
        """Return `stored` with the known rows of external predicates in a partition.

        Raises Conflict if there are stored facts of an external predicate that is read.
        """

        def bind(schema: RelationSchema) -> Relation:
            if schema not in self._predicates.modes:
                return stored(schema)
            facts = partition.get(schema)
            if facts is not None and facts.relation.counts().live:
                raise Conflict(
                    f"{schema} is an external predicate, but facts of it are stored: retract them,"
                    " or disable what provides it",
                    {"reason": "external", "predicate": str(schema)},
                )
            return self._relation(tenant.engine, partition.name, schema)

        return bind

    def supply(self, run: GoalRun, tenant: Tenant, partition: Partition, budget: Budget) -> bool:
        """Give a run that has ended the rows for its demand that are kept.

        Return False if it has all rows that it demands, True if it has to be continued. Raises
        RowsNeeded if plugins have to be called.
        """
        scope = partition.name
        needed: dict[Key, Sequence[Values]] = {}
        grown = False
        for demand in run.goal.plan.external:
            inputs = self._demanded(run, demand, tenant.engine, scope, budget)
            if not inputs:
                continue
            key = demand.relation, demand.mode
            kept = self._predicates.kept(key, inputs)
            if kept:
                self._add(scope, key, kept)
                grown = True
            unknown = [values for values in inputs if values not in kept]
            if unknown:
                needed[key] = unknown
        if grown:
            for demand in run.goal.plan.external:
                self._relation(tenant.engine, scope, demand.relation)
            return True
        if needed:
            raise RowsNeeded(self, scope, needed)
        return False

    def fetch(
        self,
        scope: str | None,
        key: Key,
        inputs: Sequence[Values],
        budget: Budget,
        searcher: TextSearcher,
    ) -> None:
        """Call a plugin for inputs, or search for them; raises PredicateFailed and BudgetExceeded."""
        schema, mode = key
        budget.check_time()
        search = self._predicates.searches.get(schema)
        if search is not None:
            for (text,) in inputs:
                facts = search(searcher, text, scope, budget)
                rows = [(text, fact, number_text(round(score, 6))) for fact, score in facts]
                self._add(scope, key, {(text,): rows})
            return
        left = budget.limits.rows - self._count
        if budget.limits.rows and left <= 0:
            raise BudgetExceeded.of_run("rows", budget.limits.rows)
        call = PredicateCall(
            self._database,
            self._tenant,
            scope,
            tuple("in" if mark == "b" else "out" for mark in mode),
            tuple(zip(*inputs, strict=True)),
            len(inputs),
            left if budget.limits.rows else 0,
            budget.deadline - budget.clock.monotonic(),
        )
        places = [index for index, mark in enumerate(mode) if mark == "b"]
        by_input: dict[Values, list[Values]] = {values: [] for values in inputs}
        for row in budget.paced(self._predicates.call(call, schema, budget)):
            own = by_input.get(tuple([row[index] for index in places]))
            if own is not None:
                own.append(row)
        self._predicates.keep(key, by_input)
        self._add(scope, key, by_input)

    def close(self) -> None:
        """Drop the relations."""
        for loaded in self._loaded.values():
            loaded.relation.drop()
        self._loaded.clear()

    def _demanded(
        self,
        run: GoalRun,
        demand: ExternalDemand,
        engine: Engine,
        scope: str | None,
        budget: Budget,
    ) -> list[Values]:
        """Return the inputs that a run demands and that are not known, sorted."""
        relation = run.run.relation(demand.slot)
        arity = demand.mode.count("b")
        rows, ids = relation.match([0] * arity, yield_now=budget.yield_now)
        texts = engine.texts(rows)
        inputs: Iterable[Values] = (
            zip(*[iter(texts)] * arity, strict=True) if arity else [()] * min(len(ids), 1)
        )
        known = self._known.get((scope, demand.relation))
        asked = known.inputs.get(demand.mode, set()) if known else set()
        return sorted(values for values in budget.paced(inputs) if values not in asked)

    def _add(self, scope: str | None, key: Key, rows: Mapping[Values, Sequence[Values]]) -> None:
        schema, mode = key
        known = self._known.setdefault((scope, schema), _Known())
        known.inputs.setdefault(mode, set()).update(rows)
        before = len(known.rows)
        known.rows.update(dict.fromkeys(chain.from_iterable(rows.values())))
        self._count += len(known.rows) - before

    def _relation(self, engine: Engine, scope: str | None, schema: RelationSchema) -> Relation:
        """Return the relation with all known rows of a predicate."""
        key = scope, schema
        loaded = self._loaded.get(key)
        if loaded is None or loaded.engine is not engine:
            if loaded is not None:
                loaded.relation.drop()
            loaded = self._loaded[key] = _Loaded(engine, engine.relation(schema.arity))
        known = self._known.get(key)
        if known is not None and loaded.count < len(known.rows):
            new = list(islice(known.rows, loaded.count, None))
            symbols = engine.intern_many(list(chain.from_iterable(new)))
            loaded.relation.insert(array("I", symbols), len(new))
            loaded.count = len(known.rows)
        return loaded.relation


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
            raise _InvalidRows(f"a row must be a sequence of {predicate.arity} values")
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
