"""Rows of external predicates for one request, and the evaluation that asks for them.

A goal that depends on such a predicate is evaluated over the rows that are known, at first none.
The passes make *demand* for the predicate: the inputs that the rules have for it. If the run ends
with inputs that are not known, `RowsNeeded` ends the evaluation. The caller releases the locks,
calls the plugins with all these inputs at once, and evaluates again. When a run ends without new
inputs, its answers are those over the whole relation: no clause whose premises hold reads a row for
other inputs (magic sets).

The rows belong to one request, so nothing has to be invalidated. The node also
caches rows of predicates that are declared pure, by input.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from kbcore.errors import BudgetExceeded, Conflict
from kbcore.plug.ports import PredicateCall
from kbcore.reason.budget import Budget
from kbcore.reason.external.predicates import (
    ExternalPredicates,
    Key,
    TextSearcher,
    Values,
)
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.plan import ExternalDemand
from kbplanner.engine.backend import Engine, Relation
from kbplanner.evaluate.evaluate import GoalRun
from kbplanner.evaluate.loaded import Bind
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.values.numbers import number_text

MAX_INPUTS = 1000
"""Inputs in one call of a plugin."""


class RowsNeeded(Exception):
    """The end of an evaluation that needs rows of external predicates: `fetch`, then evaluate
    again.

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
        """Call the plugins, and search with `searcher`; raises PredicateFailed and
        BudgetExceeded.
        """
        for key, inputs in self._inputs.items():
            for start in range(0, len(inputs), MAX_INPUTS):
                batch = inputs[start : start + MAX_INPUTS]
                self.rows.fetch(self._scope, key, batch, budget, searcher)


@dataclass(slots=True)
class _KnownRows:
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
    """Rows of external predicates, as far as they are known to one request.

    They are the same for the whole request. Methods other than `fetch` are called with the tenant's
    read lock held.
    """

    def __init__(self, predicates: ExternalPredicates, tenant: Tenant) -> None:
        self._predicates = predicates
        self._database, self._tenant = tenant.database, tenant.name
        self._known: dict[tuple[str | None, RelationSchema], _KnownRows] = {}
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
        """Give a run that has ended the cached rows for its demand.

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
            cached = self._predicates.cached(key, inputs)
            if cached:
                self._add(scope, key, cached)
                grown = True
            unknown = [values for values in inputs if values not in cached]
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
        """Call a plugin for inputs, or search for them; raises PredicateFailed and
        BudgetExceeded.
        """
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
            raise BudgetExceeded.of_run("derivedRows", budget.limits.rows)
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
        self._predicates.cache(key, by_input)
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
        known = self._known.setdefault((scope, schema), _KnownRows())
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
