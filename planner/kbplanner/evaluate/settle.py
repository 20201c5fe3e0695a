"""Well-founded models of negative components, cached as relations.

A component is settled by one run, which finds the instances of its rules (`overestimate` in
`passes/wellfounded.py`), and one model of the ground program they are. Rules are then evaluated
over the result through a `View`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kbplanner.compile.build import build
from kbplanner.compile.bytecode import encode
from kbplanner.compile.plan import Plan
from kbplanner.compile.rules import RuleSet, SettledRules
from kbplanner.engine.backend import (
    CompiledPlan,
    Engine,
    Limits,
    Relation,
    RelationCounts,
    Steps,
    YieldNow,
)
from kbplanner.errors import BudgetExceeded
from kbplanner.evaluate.component import ComponentReader
from kbplanner.evaluate.evaluate import Bind, moved, naming_rule
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes.order import Statistics
from kbplanner.passes.wellfounded import NegativeComponent, Overestimate, overestimate

MAX_KEPT = 64
"""Maximum number of components whose models are cached."""

Key = tuple[str | None, RuleSet, frozenset[RelationSchema], int]


@dataclass(slots=True, eq=False)
class Settled:
    """The model of one negative component: a relation for each schema that `settled` names.

    It is current while the relations in `reads` have these counts and the components `below` are
    the ones it was made from.
    """

    relations: dict[RelationSchema, Relation]
    undefined: frozenset[RelationSchema]
    reads: list[tuple[RelationSchema, Relation, RelationCounts]]
    below: tuple[Settled, ...]
    version: int
    users: int = 0
    dropped: bool = False

    def current(self, bind: Bind, below: Sequence[Settled], version: int) -> bool:
        """Return True if nothing that it depends on has changed; nothing has while `version` is the
        same.
        """
        if len(below) != len(self.below) or any(
            a is not b for a, b in zip(below, self.below, strict=True)
        ):
            return False
        if self.version != version:
            if any(
                bind(schema) is not relation or relation.counts() != counts
                for schema, relation, counts in self.reads
            ):
                return False
            self.version = version
        return True

    def drop(self) -> None:
        """Free the relations."""
        for relation in dict.fromkeys(self.relations.values()):
            relation.drop()


@dataclass(slots=True, eq=False)
class View:
    """Rules as they are evaluated, the stored relations they read, and statistics of these
    relations.
    """

    rules: RuleSet
    denied: frozenset[RelationSchema]
    bind: Bind
    statistics: Statistics
    settled: tuple[Settled, ...] = ()

    @property
    def undefined(self) -> bool:
        """True if any row is neither true nor false."""
        return any(model.undefined for model in self.settled)


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """The overestimate of a component, compiled."""

    part: NegativeComponent
    source: Overestimate
    plan: Plan
    compiled: CompiledPlan
    params: tuple[int, ...]
    sizes: Mapping[RelationSchema, int]


class Models:
    """The models of one engine's negative components. The caller holds the tenant's read lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._kept: OrderedDict[Key, Settled] = OrderedDict()
        self._programs: OrderedDict[tuple[RuleSet, frozenset[RelationSchema], int], _Program] = (
            OrderedDict()
        )
        self._rules: OrderedDict[tuple[RuleSet, frozenset[RelationSchema]], SettledRules] = (
            OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._kept)

    @contextmanager
    def view(
        self,
        rules: RuleSet,
        denied: frozenset[RelationSchema],
        goals: Iterable[RelationSchema] | None,
        bind: Bind,
        statistics: Statistics,
        limits: Limits,
        drive: Callable[[Steps], None],
        yield_now: YieldNow,
        *,
        scope: str | None = None,
        version: int = -1,
    ) -> Iterator[View]:
        """Settle the components that goals on stored schemas (None: any) need, and yield the view
        to evaluate with.

        `drive` steps a run or a model to its end, `yield_now` is called between pieces of work in
        Python. Raises BudgetExceeded.

        Models are cached by `scope`, unless `version` is -1. While it stays the same, so do facts.
        """
        if not rules.negative(denied):
            yield View(rules, denied, bind, statistics)
            return
        source = rules.within
        own = denied & source.deniable
        used: dict[int, Settled] = {}
        try:
            for index in rules.needed(denied, goals):
                used[index] = self._settled(
                    source,
                    own,
                    index,
                    used,
                    bind,
                    statistics,
                    limits,
                    drive,
                    yield_now,
                    scope,
                    version,
                )
            yield self._view(rules, denied, used, bind, statistics)
        finally:
            for model in used.values():
                self._release(model)

    def clear(self) -> None:
        """Drop all models."""
        with self._mutex:
            models = list(self._kept.values())
            self._kept.clear()
            for model in models:
                model.dropped = True
            unused = [model for model in models if not model.users]
        for model in unused:
            model.drop()

    def _settled(
        self,
        rules: RuleSet,
        denied: frozenset[RelationSchema],
        index: int,
        used: Mapping[int, Settled],
        bind: Bind,
        statistics: Statistics,
        limits: Limits,
        drive: Callable[[Steps], None],
        yield_now: YieldNow,
        scope: str | None,
        version: int,
    ) -> Settled:
        below = tuple(used[other] for other in rules.below(denied, index))
        key = (scope, rules, denied, index)
        if version != -1:
            with self._mutex:
                cached = self._kept.get(key)
                if cached is not None and cached.current(bind, below, version):
                    self._kept.move_to_end(key)
                    cached.users += 1
                    return cached
        view = self._view(
            rules,
            denied,
            {i: model for i, model in used.items() if model in below},
            bind,
            statistics,
        )
        try:
            settled = _settle(
                self._engine, self._program(rules, index, view), view, limits, drive, yield_now
            )
        except BudgetExceeded as error:
            raise naming_rule(error, rules.rules) from error
        settled.below, settled.version, settled.users = below, version, 1
        settled.dropped = version == -1
        old = []
        if version != -1:
            with self._mutex:
                before = self._kept.pop(key, None)
                self._kept[key] = settled
                old = [] if before is None else [before]
                forgotten = [
                    other for other in self._kept if other[0] == scope and other[1] is not rules
                ]
                old += [
                    self._kept.pop(other) for other in forgotten
                ]  # rules that have been replaced are not asked again
                while len(self._kept) > MAX_KEPT:
                    old.append(self._kept.popitem(last=False)[1])
                for model in old:
                    model.dropped = True
                old = [model for model in old if not model.users]
        for model in old:
            model.drop()
        return settled

    def _program(self, rules: RuleSet, index: int, view: View) -> _Program:
        """Return the compiled overestimate of a component; rebuilt when the size of a relation
        changed tenfold.
        """
        key = (view.rules, view.denied, index)
        with self._mutex:
            cached = self._programs.get(key)
            if cached is not None and not moved(cached.sizes, view.statistics):
                self._programs.move_to_end(key)
                return cached
        parts = rules.negative(view.denied)
        undefined = frozenset(schema for model in view.settled for schema in model.undefined)
        source = overestimate(rules.clauses(view.denied), parts, parts[index], undefined)
        plan = build(source.program, view.statistics)
        params = tuple(self._engine.intern(text) for text in plan.parameters)
        sizes = {schema: view.statistics.rows(schema) for schema in plan.base}
        program = _Program(
            parts[index], source, plan, self._engine.load(encode(plan)), params, sizes
        )
        with self._mutex:
            self._programs[key] = program
            if len(self._programs) > MAX_KEPT:
                self._programs.popitem(last=False)
        return program

    def _release(self, model: Settled) -> None:
        with self._mutex:
            model.users -= 1
            last = model.dropped and not model.users
        if last:
            model.drop()

    def _view(
        self,
        rules: RuleSet,
        denied: frozenset[RelationSchema],
        used: Mapping[int, Settled],
        bind: Bind,
        statistics: Statistics,
    ) -> View:
        models = tuple(used.values())
        undefined = frozenset(schema for model in models for schema in model.undefined)
        with self._mutex:
            over = self._rules.get((rules, undefined))
            if over is None:
                over = self._rules[rules, undefined] = SettledRules(rules, undefined)
                if len(self._rules) > MAX_KEPT:
                    self._rules.popitem(last=False)
        relations = {
            schema: relation for model in models for schema, relation in model.relations.items()
        }

        def read(schema: RelationSchema) -> Relation:
            return relations[schema] if schema.truth else bind(schema)

        return View(over, denied, read, _Sizes(relations, statistics), models)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Statistics of stored relations and of settled ones."""

    relations: Mapping[RelationSchema, Relation]
    stored: Statistics

    def rows(self, schema: RelationSchema) -> int:
        """Return the visible rows of a relation."""
        relation = self.relations.get(schema)
        return relation.counts().visible if relation else self.stored.rows(schema)

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Return distinct values of columns of a relation, 0 when not known."""
        relation = self.relations.get(schema)
        return relation.distinct(columns) if relation else self.stored.distinct(schema, columns)


def _settle(
    engine: Engine,
    program: _Program,
    view: View,
    limits: Limits,
    drive: Callable[[Steps], None],
    yield_now: YieldNow,
) -> Settled:
    """Return the model of one component."""
    base = [(schema, view.bind(schema)) for schema in program.plan.base]
    reads = [(schema, relation, relation.counts()) for schema, relation in base if not schema.truth]
    run = engine.open_run(
        program.compiled, [relation for _, relation in base], program.params, limits
    )
    try:
        run.limit(limits)
        drive(run)
        reader = ComponentReader(engine, run, program.plan, program.part, program.source, yield_now)
        model = engine.model(reader.ground(), limits)
        try:
            drive(model)
            values = model.values()
        finally:
            model.close()
        relations, undefined = reader.settled(values)
        return Settled(relations, undefined, reads, (), -1)
    finally:
        run.close()
