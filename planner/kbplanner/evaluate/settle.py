"""Well-founded models of negative components, kept as relations until something they read changes.

A component is settled by one run, which finds the instances of its rules (`overestimate` in `passes/wellfounded.py`), and
one model of the ground program they are. Rules are then evaluated over the result through a `View`.
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
    Rest,
    Steps,
)
from kbplanner.errors import BudgetExceeded
from kbplanner.evaluate.component import ComponentReader
from kbplanner.evaluate.evaluate import Bind, moved, naming_rule
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes.order import Statistics
from kbplanner.passes.wellfounded import NegativeComponent, Overestimate, overestimate

MAX_KEPT = 64
"""Components whose models are kept."""

Key = tuple[str | None, RuleSet, frozenset[RelationSchema], int]


@dataclass(slots=True, eq=False)
class Settled:
    """The model of one negative component: a relation for each schema that `settled` names.

    It is current while the relations in `reads` have these counts and the components `below` are the ones it was made from.
    """

    relations: dict[RelationSchema, Relation]
    undefined: frozenset[RelationSchema]
    reads: list[tuple[RelationSchema, Relation, RelationCounts]]
    below: tuple[Settled, ...]
    version: int
    users: int = 0
    dropped: bool = False

    def current(self, bind: Bind, below: Sequence[Settled], version: int) -> bool:
        """Whether nothing has changed that it rests on; nothing has while `version` is the same."""
        if len(below) != len(self.below) or any(a is not b for a, b in zip(below, self.below, strict=True)):
            return False
        if self.version != version:
            if any(bind(schema) is not relation or relation.counts() != counts for schema, relation, counts in self.reads):
                return False
            self.version = version
        return True

    def drop(self) -> None:
        """Give the relations back."""
        for relation in dict.fromkeys(self.relations.values()):
            relation.drop()


@dataclass(slots=True, eq=False)
class View:
    """Rules as they are evaluated, what stored relations they read, and statistics of these."""

    rules: RuleSet
    denied: frozenset[RelationSchema]
    bind: Bind
    statistics: Statistics
    settled: tuple[Settled, ...] = ()

    @property
    def undefined(self) -> bool:
        """Whether anything is neither true nor false."""
        return any(one.undefined for one in self.settled)


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
    """The models of one engine's negative components. Whoever asks has seen to it that facts and rules stay meanwhile."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._kept: OrderedDict[Key, Settled] = OrderedDict()
        self._programs: OrderedDict[tuple[RuleSet, frozenset[RelationSchema], int], _Program] = OrderedDict()
        self._rules: OrderedDict[tuple[RuleSet, frozenset[RelationSchema]], SettledRules] = OrderedDict()

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
        rest: Rest,
        *,
        scope: str | None = None,
        version: int = -1,
    ) -> Iterator[View]:
        """What goals on stored schemas (None: any) are evaluated with, settled first; raises BudgetExceeded.

        `drive` brings a run or a model to its end, `rest` is called between pieces of Python's own work.

        Models are kept by `scope`, unless `version` is -1. While it stays the same, so do facts.
        """
        if not rules.negative(denied):
            yield View(rules, denied, bind, statistics)
            return
        source = rules.within
        own = denied & source.deniable
        used: dict[int, Settled] = {}
        try:
            for place in rules.needed(denied, goals):
                used[place] = self._settled(source, own, place, used, bind, statistics, limits, drive, rest, scope, version)
            yield self._view(rules, denied, used, bind, statistics)
        finally:
            for one in used.values():
                self._release(one)

    def clear(self) -> None:
        """Forget all models."""
        with self._mutex:
            kept = list(self._kept.values())
            self._kept.clear()
            for one in kept:
                one.dropped = True
            unused = [one for one in kept if not one.users]
        for one in unused:
            one.drop()

    def _settled(
        self,
        rules: RuleSet,
        denied: frozenset[RelationSchema],
        place: int,
        used: Mapping[int, Settled],
        bind: Bind,
        statistics: Statistics,
        limits: Limits,
        drive: Callable[[Steps], None],
        rest: Rest,
        scope: str | None,
        version: int,
    ) -> Settled:
        below = tuple(used[other] for other in rules.below(denied, place))
        key = (scope, rules, denied, place)
        if version != -1:
            with self._mutex:
                found = self._kept.get(key)
                if found is not None and found.current(bind, below, version):
                    self._kept.move_to_end(key)
                    found.users += 1
                    return found
        view = self._view(rules, denied, {i: one for i, one in used.items() if one in below}, bind, statistics)
        try:
            made = _settle(self._engine, self._program(rules, place, view), view, limits, drive, rest)
        except BudgetExceeded as error:
            raise naming_rule(error, rules.rules) from error
        made.below, made.version, made.users = below, version, 1
        made.dropped = version == -1
        old = []
        if version != -1:
            with self._mutex:
                before = self._kept.pop(key, None)
                self._kept[key] = made
                old = [] if before is None else [before]
                forgotten = [other for other in self._kept if other[0] == scope and other[1] is not rules]
                old += [self._kept.pop(other) for other in forgotten]  # nobody asks rules that have been replaced
                while len(self._kept) > MAX_KEPT:
                    old.append(self._kept.popitem(last=False)[1])
                for one in old:
                    one.dropped = True
                old = [one for one in old if not one.users]
        for one in old:
            one.drop()
        return made

    def _program(self, rules: RuleSet, place: int, view: View) -> _Program:
        """The compiled overestimate of a component; made again when the size of a relation moved tenfold."""
        key = (view.rules, view.denied, place)
        with self._mutex:
            found = self._programs.get(key)
            if found is not None and not moved(found.sizes, view.statistics):
                self._programs.move_to_end(key)
                return found
        parts = rules.negative(view.denied)
        undefined = frozenset(schema for one in view.settled for schema in one.undefined)
        source = overestimate(rules.clauses(view.denied), parts, parts[place], undefined)
        plan = build(source.program, view.statistics)
        params = tuple(self._engine.intern(text) for text in plan.parameters)
        sizes = {schema: view.statistics.rows(schema) for schema in plan.base}
        made = _Program(parts[place], source, plan, self._engine.load(encode(plan)), params, sizes)
        with self._mutex:
            self._programs[key] = made
            if len(self._programs) > MAX_KEPT:
                self._programs.popitem(last=False)
        return made

    def _release(self, one: Settled) -> None:
        with self._mutex:
            one.users -= 1
            last = one.dropped and not one.users
        if last:
            one.drop()

    def _view(
        self,
        rules: RuleSet,
        denied: frozenset[RelationSchema],
        used: Mapping[int, Settled],
        bind: Bind,
        statistics: Statistics,
    ) -> View:
        models = tuple(used.values())
        undefined = frozenset(schema for one in models for schema in one.undefined)
        with self._mutex:
            over = self._rules.get((rules, undefined))
            if over is None:
                over = self._rules[rules, undefined] = SettledRules(rules, undefined)
                if len(self._rules) > MAX_KEPT:
                    self._rules.popitem(last=False)
        relations = {schema: relation for one in models for schema, relation in one.relations.items()}

        def read(schema: RelationSchema) -> Relation:
            return relations[schema] if schema.truth else bind(schema)

        return View(over, denied, read, _Sizes(relations, statistics), models)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Statistics of stored relations and of settled ones."""

    relations: Mapping[RelationSchema, Relation]
    stored: Statistics

    def rows(self, schema: RelationSchema) -> int:
        """Visible rows of a relation."""
        found = self.relations.get(schema)
        return found.counts().visible if found else self.stored.rows(schema)

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Distinct values of columns of a relation, 0 when not known."""
        found = self.relations.get(schema)
        return found.distinct(columns) if found else self.stored.distinct(schema, columns)


def _settle(
    engine: Engine, program: _Program, view: View, limits: Limits, drive: Callable[[Steps], None], rest: Rest
) -> Settled:
    """Work out the model of one component."""
    base = [(schema, view.bind(schema)) for schema in program.plan.base]
    reads = [(schema, relation, relation.counts()) for schema, relation in base if not schema.truth]
    run = engine.open_run(program.compiled, [relation for _, relation in base], program.params, limits)
    try:
        run.limit(limits)
        drive(run)
        reader = ComponentReader(engine, run, program.plan, program.part, program.source, rest)
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
