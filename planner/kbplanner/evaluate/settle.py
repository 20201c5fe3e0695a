"""Well-founded models of negative components, cached as relations.

A component is settled by one run, which finds the instances of its rules (`overestimate` in
`passes/wellfounded.py`), and one model of the ground program they are. Rules are then evaluated
over the result through a `View`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kbplanner.compile.rules import ComponentSource, RuleSet, RuleSlice, SettledRules
from kbplanner.engine.backend import Engine, Relation, RelationCounts
from kbplanner.errors import BudgetExceeded
from kbplanner.evaluate.component import ComponentReader
from kbplanner.evaluate.evaluate import naming_rule
from kbplanner.evaluate.loaded import Bind, LoadedPlan, RunBudget, load
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Rule
from kbplanner.lru import LruCache
from kbplanner.pacing import current_yield
from kbplanner.passes.order import Statistics
from kbplanner.passes.wellfounded import NegativeComponent, Overestimate, overestimate

MAX_CACHED_MODELS = 64
"""Maximum number of components whose models are cached."""

Key = tuple[str | None, RuleSlice]
"""Scope, and the rules that the relations of a component depend on."""


@dataclass(slots=True, eq=False)
class Settled:
    """The model of one negative component: a relation for each schema that `settled` names.

    It is current while the relations in `reads` have these counts and the components `below` are
    the ones it was made from. It is `dated` if it depends on `now()`: then it holds for one request
    only, and is not cached.
    """

    relations: dict[RelationSchema, Relation]
    undefined: frozenset[RelationSchema]
    reads: list[tuple[RelationSchema, Relation, RelationCounts]]
    below: tuple[Settled, ...]
    version: int
    dated: bool = False
    users: int = 0
    dropped: bool = False

    def is_current(self, bind: Bind, below: Sequence[Settled], version: int) -> bool:
        """Return True if no relation or component it depends on has changed.

        While `version` is the same, nothing has changed.
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

    `denied` names the relations of explicit negatives that have rows.
    """

    rules: RuleSet
    denied: frozenset[RelationSchema]
    bind: Bind
    statistics: Statistics
    settled: tuple[Settled, ...] = ()

    @property
    def dated(self) -> bool:
        """True if a settled relation depends on `now()`."""
        return any(model.dated for model in self.settled)

    @property
    def undefined(self) -> bool:
        """True if any row is neither true nor false."""
        return any(model.undefined for model in self.settled)


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """The overestimate of a component, its plan, and the rules that its clauses number from 1."""

    part: NegativeComponent
    source: Overestimate
    loaded: LoadedPlan
    rules: tuple[Rule, ...]


class Models:
    """The models of one engine's negative components. The caller holds the tenant's read lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._models: OrderedDict[Key, Settled] = OrderedDict()
        self._programs: LruCache[tuple[RuleSlice, frozenset[RelationSchema]], _Program]
        self._programs = LruCache(MAX_CACHED_MODELS)
        self._rules: LruCache[tuple[RuleSet, frozenset[RelationSchema]], SettledRules]
        self._rules = LruCache(MAX_CACHED_MODELS)

    def __len__(self) -> int:
        return len(self._models)

    @contextmanager
    def view(
        self,
        facts: View,
        goals: Iterable[RelationSchema] | None,
        budget: RunBudget,
        *,
        scope: str | None = None,
        version: int = -1,
    ) -> Iterator[View]:
        """Settle the components that goals on stored schemas (None: any) need, and yield the view
        to evaluate with.

        `facts` has the rules and the stored relations. Models are cached by `scope`, unless
        `version` is -1. While it stays the same, so do facts. Raises BudgetExceeded.
        """
        rules, denied = facts.rules, facts.denied
        if not rules.negative_components(denied):
            yield facts
            return
        within = replace(facts, rules=rules.within, denied=denied & rules.within.deniable)
        used: dict[int, Settled] = {}
        try:
            needed = rules.needed_components(denied, goals)
            caches = len(needed) <= MAX_CACHED_MODELS  # else the last ones would replace the first
            for index in needed:
                used[index] = self._settled((scope, index), within, used, budget, version, caches)
            models = tuple(used.values())
            yield _over(facts, models, self._settled_rules(facts.rules, models))
        finally:
            for model in used.values():
                self._release(model)

    def clear(self) -> None:
        """Drop all models."""
        with self._mutex:
            models = list(self._models.values())
            self._models.clear()
            for model in models:
                model.dropped = True
            unused = [model for model in models if not model.users]
        for model in unused:
            model.drop()

    def _settled(
        self,
        component: tuple[str | None, int],
        facts: View,
        used: Mapping[int, Settled],
        budget: RunBudget,
        version: int,
        caches: bool,
    ) -> Settled:
        """Return the current model of a component, cached or new, with the caller as a user.

        `component` is its scope and its index, `used` has the models of the components
        before it. Without `caches` neither the model nor its program is cached: the rules that a
        component depends on can be as many as all rules.
        """
        scope, index = component
        source = facts.rules.component_source(facts.denied, index)
        below = tuple(used[other] for other in source.components)
        key = (scope, _component_rules(facts, index)) if caches else None
        with self._mutex:
            if key is not None and version != -1:
                cached = self._models.get(key)
                if cached is not None and cached.is_current(facts.bind, below, version):
                    self._models.move_to_end(key)
                    cached.users += 1
                    return cached
        view = _over(facts, below, facts.rules)
        program = self._program(None if key is None else key[1], source, index, view)
        try:
            model = self._settle(program, view, budget)
        except BudgetExceeded as error:
            raise naming_rule(error, program.rules) from error
        model.below, model.version, model.users = below, version, 1
        model.dated = program.loaded.dated or any(other.dated for other in below)
        is_kept = key is not None and version != -1 and not model.dated
        model.dropped = not is_kept
        if key is not None and is_kept:
            self._store(key, model, _current_rules(facts))
        return model

    def _store(self, key: Key, model: Settled, current: Container[RuleSlice] | None) -> None:
        """Cache a model; drop those that it replaces and those of rules that have been replaced.

        `current` are the rules of all components of the scope; None if they are very many.
        """
        with self._mutex:
            replaced = [self._models.pop(key)] if key in self._models else []
            self._models[key] = model
            scope = key[0]
            stale = [
                other
                for other in self._models
                if current is not None and other[0] == scope and other[1] not in current
            ]
            replaced += [self._models.pop(other) for other in stale]
            while len(self._models) > MAX_CACHED_MODELS:
                replaced.append(self._models.popitem(last=False)[1])
            for old in replaced:
                old.dropped = True
            unused = [old for old in replaced if not old.users]
        for old in unused:
            old.drop()

    def _program(
        self, slice_: RuleSlice | None, source: ComponentSource, index: int, view: View
    ) -> _Program:
        """Return the overestimate of a component with its plan; made again when the plan is
        outdated, or not cached as there is no slice.
        """
        undefined = _undefined(view.settled)
        cached = None if slice_ is None else self._programs.get((slice_, undefined))
        if cached is not None and not cached.loaded.is_outdated(view.statistics):
            return cached
        parts, yield_now = view.rules.negative_components(view.denied), current_yield()
        own = parts[index]
        read = [parts[other] for other in source.components]
        whole = overestimate(source.clauses, [*read, own], own, undefined, yield_now)
        loaded = load(self._engine, whole.program, view.statistics, yield_now)
        program = _Program(own, whole, loaded, view.rules.rules)
        if slice_ is not None:
            self._programs.put((slice_, undefined), program)
        return program

    def _release(self, model: Settled) -> None:
        with self._mutex:
            model.users -= 1
            is_unused = model.dropped and not model.users
        if is_unused:
            model.drop()

    def _settled_rules(self, rules: RuleSet, models: Sequence[Settled]) -> SettledRules:
        """Return the rules over settled components."""
        key = (rules, _undefined(models))
        over = self._rules.get(key)
        if over is None:
            over = SettledRules(*key)
            self._rules.put(key, over)
        return over

    def _settle(self, program: _Program, view: View, budget: RunBudget) -> Settled:
        """Return the model of one component."""
        stored = [(s, view.bind(s)) for s in program.loaded.plan.base if not s.truth]
        reads = [(schema, relation, relation.counts()) for schema, relation in stored]
        run = program.loaded.open_run(self._engine, view.bind, budget.limits, budget.now)
        try:
            run.limit(budget.limits)
            budget.work(run)
            reader = ComponentReader(
                self._engine,
                run,
                program.loaded.plan,
                program.part,
                program.source,
                budget.yield_now,
            )
            model = self._engine.model(reader.ground(), budget.limits)
            try:
                budget.work(model)
                values = model.values()
            finally:
                model.close()
            relations, undefined = reader.settled(values)
            return Settled(relations, undefined, reads, (), -1)
        finally:
            run.close()


def _over(facts: View, models: tuple[Settled, ...], rules: RuleSet) -> View:
    """Return the view of facts and of settled components, with these rules."""
    relations = {
        schema: relation for model in models for schema, relation in model.relations.items()
    }

    def read(schema: RelationSchema) -> Relation:
        return relations[schema] if schema.truth else facts.bind(schema)

    return View(rules, facts.denied, read, Sizes(relations, facts.statistics), models)


def _undefined(models: Iterable[Settled]) -> frozenset[RelationSchema]:
    """Return the relations with undefined rows."""
    return frozenset(schema for model in models for schema in model.undefined)


def _current_rules(facts: View) -> set[RuleSlice] | None:
    """Return the rules that each component depends on; None if there are very many components."""
    count = len(facts.rules.negative_components(facts.denied))
    if count > MAX_CACHED_MODELS:
        return None
    return {_component_rules(facts, index) for index in range(count)}


def _component_rules(facts: View, index: int) -> RuleSlice:
    """Return the rules that the relations of a component depend on."""
    part = facts.rules.negative_components(facts.denied)[index]
    return facts.rules.slice(facts.denied, part.relations)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Statistics of stored relations and of others that are there, such as settled ones."""

    relations: Mapping[RelationSchema, Relation]
    stored: Statistics

    def rows(self, schema: RelationSchema) -> int:
        """Return the visible rows of a relation."""
        relation = self.relations.get(schema)
        return relation.counts().visible if relation else self.stored.rows(schema)

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Return the number of distinct values of columns of a relation; 0 when unknown."""
        relation = self.relations.get(schema)
        return relation.distinct(columns) if relation else self.stored.distinct(schema, columns)
