"""Programs whose derived rows are kept, and changed by the changes of the stored relations.

The clauses are those of `passes/differentiate.py`; the engine runs them like any others, over the
stored relations, the kept rows and the changes. What they say is followed component by component,
in the order of evaluation. Equal to evaluation from the start is the only specification; the order
of the changes does not matter.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from kbplanner.engine.backend import Engine, Relation, Run, RunLimits
from kbplanner.errors import BudgetExceeded
from kbplanner.evaluate.loaded import Bind, LoadedPlan, RunBudget, load
from kbplanner.ir.program import Clause, Program
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.passes.differentiate import (
    ChangedComponent,
    added,
    differentiate,
    fallen,
    fell,
    kept,
    new,
    removed,
)
from kbplanner.passes.order import SmallDerived, Statistics


class Unmaintained(Exception):
    """A change that cannot be followed: a function has no value in it, which is counted."""


MIN_FALLEN = 2000
"""Rows that may fall in a component before it is derived from scratch instead."""

FALLEN_SHARE = 5
"""Or, if that is more, one of this many of its rows."""


class Rows(NamedTuple):
    """Rows of one relation: their symbols one after the other, and their number."""

    symbols: array[int]
    count: int

    def without(self, relation: Relation) -> Rows:
        """Return the rows that a relation does not have."""
        return Rows(*relation.missing(self.symbols, self.count)) if self.count else self


NO_ROWS = Rows(array("I"), 0)


class Changed(NamedTuple):
    """The rows of a relation that hold only after a change, and those that held only before it."""

    came: Rows
    gone: Rows


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """A program that finds changes, and the slots of its results."""

    plan: LoadedPlan
    slots: tuple[tuple[RelationSchema, int], ...]


class DeltaPrograms:
    """The loaded programs that find the changes of one program, made when they are first needed.

    Any number of maintained programs share them.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._loaded: dict[tuple[int, str], _Loaded] = {}

    @cached_property
    def components(self) -> Sequence[ChangedComponent] | None:
        """The components of the program, in the order of evaluation; None if it cannot be
        maintained.
        """
        return differentiate(self._program)

    def loaded(
        self, engine: Engine, number: int, kind: str, statistics: Statistics
    ) -> _Loaded | None:
        """Return a program of a component: `fallen`, `new` or `again`; None if it has no clause."""
        program = self._loaded.get((number, kind))
        if program is None:
            component = (self.components or ())[number]
            clauses: Sequence[Clause] = getattr(component, kind)
            if not clauses:
                return None
            result = fallen if kind == "fallen" else new
            program = self._loaded[number, kind] = _load(
                engine, clauses, {result(each): each for each in component.relations}, statistics
            )
        return program


def _load(
    engine: Engine,
    clauses: Sequence[Clause],
    results: Mapping[RelationSchema, RelationSchema],
    statistics: Statistics,
) -> _Loaded:
    derived = {clause.head.schema for clause in clauses}
    answer = next(each for each in results if each in derived)
    program = Program(tuple(clauses), answer, answer=answer)
    plan = load(engine, program, SmallDerived(statistics, lambda schema: True))
    slots = tuple(
        (results[schema], slot) for slot, schema in enumerate(plan.plan.slots) if schema in results
    )
    return _Loaded(plan, slots)


class MaintainedProgram:
    """The derived rows of a program, kept equal to what an evaluation of it would derive.

    It takes over the rows of a finished run of the program. After a change that raised an error it
    is of no use any more, except for `close`.
    """

    def __init__(
        self, engine: Engine, programs: DeltaPrograms, run: Run, slots: Sequence[RelationSchema]
    ) -> None:
        self._engine = engine
        self._programs = programs
        self._rows: dict[RelationSchema, Relation] = {}
        self._given: dict[RelationSchema, Relation] = {}
        self._empty: dict[int, Relation] = {}
        self._names: dict[RelationSchema, RelationSchema] = {}
        for slot, schema in enumerate(slots):
            if schema.role is not Role.STORED:
                relation = self._rows[schema] = engine.relation(schema.arity)
                self._names[kept(schema)] = schema
                source = run.relation(slot)
                relation.insert(source.match_rows([0] * schema.arity), source.counts().visible)

    def relation(self, schema: RelationSchema) -> Relation:
        """Return the kept rows of a derived relation; it must not be changed."""
        return self._rows[schema]

    @property
    def bytes(self) -> int:
        """The memory of the kept rows with their indexes."""
        return sum(relation.bytes() for relation in self._rows.values())

    def close(self) -> None:
        """Free the rows."""
        for relations in (self._rows, self._given, self._empty):
            for relation in relations.values():
                relation.drop()
            relations.clear()

    def change(
        self,
        changes: Mapping[RelationSchema, Changed],
        bind: Bind,
        statistics: Statistics,
        budget: RunBudget,
    ) -> dict[RelationSchema, Changed]:
        """Follow the changes of stored relations, or of the seed; return those of all relations.

        `bind` returns the stored relations, which have changed already; the seed has not. Raises
        BudgetExceeded and Unmaintained.
        """
        step = _Step(self, bind, _KnownSizes(self, statistics), budget)
        try:
            return step.follow(changes)
        finally:
            for relation in self._given.values():
                relation.drop()
            self._given.clear()


@dataclass(frozen=True, slots=True)
class _KnownSizes:
    """Statistics of stored and kept relations; changes have few rows."""

    program: MaintainedProgram
    stored: Statistics

    def rows(self, schema: RelationSchema) -> int:
        """Return the visible rows of a relation."""
        if "\0" not in schema.predicate:
            return self.stored.rows(schema)
        known = self.program._names.get(schema)
        return 0 if known is None else self.program.relation(known).counts().visible

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Return the number of distinct values of these columns of a relation; 0 when unknown."""
        if "\0" not in schema.predicate:
            return self.stored.distinct(schema, columns)
        known = self.program._names.get(schema)
        return 0 if known is None else self.program.relation(known).distinct(columns)


class _Step:
    """One change of a maintained program."""

    def __init__(
        self,
        program: MaintainedProgram,
        bind: Bind,
        statistics: Statistics,
        budget: RunBudget,
    ) -> None:
        self._program = program
        self._engine = program._engine
        self._rows = program._rows
        self._bind_stored = bind
        self._statistics = statistics
        self._limits = budget.limits
        self._work = budget.work
        self._changes: dict[RelationSchema, Changed] = {}

    def follow(self, changes: Mapping[RelationSchema, Changed]) -> dict[RelationSchema, Changed]:
        """Apply a change to all kept relations."""
        for schema, changed in changes.items():
            if schema in self._rows:  # the seed
                came = changed.came.without(self._rows[schema])
                self._rows[schema].insert(came.symbols, came.count)
                changed = Changed(came, NO_ROWS)
            self._note(schema, changed)
        for number, component in enumerate(self._program._programs.components or ()):
            if not component.reads.isdisjoint(self._changes):
                self._component(number, component)
        for schema, changed in self._changes.items():
            if schema in self._rows and changed.gone.count:
                self._rows[schema].delete(*changed.gone)
        return self._changes

    def _note(self, schema: RelationSchema, changed: Changed) -> None:
        if changed.came.count or changed.gone.count:
            self._changes[schema] = changed
            self._give(added(schema), changed.came)
            self._give(removed(schema), changed.gone)

    def _give(self, name: RelationSchema, rows: Rows) -> None:
        """Make rows an input of the programs that come."""
        if rows.count:
            relation = self._program._given[name] = self._engine.relation(name.arity)
            relation.insert(*rows)

    def _component(self, number: int, component: ChangedComponent) -> None:
        below = [each for each in component.reads if each in self._changes]
        lost: dict[RelationSchema, Rows] = {}
        if any(
            (each in component.falls_by_removed and self._changes[each].gone.count)
            or (each in component.falls_by_added and self._changes[each].came.count)
            for each in below
        ):
            self._show(below, before=True)
            try:
                lost = self._found(number, "fallen", self._limits_of_fallen(component))
            except BudgetExceeded as error:
                if (error.details or {}).get("limit") != "derivedRows":
                    raise
                self._show(below, before=False)
                self._again(number, component)
                return
            finally:
                self._show(below, before=False)
        for schema, rows in lost.items():
            self._rows[schema].hide(*rows, True)
            self._give(fell(schema), rows)
        got = self._found(number, "new", self._limits)
        for schema in component.relations:
            self._settle(schema, lost.get(schema, NO_ROWS), got.get(schema, NO_ROWS))

    def _limits_of_fallen(self, component: ChangedComponent) -> RunLimits:
        live = sum(self._rows[each].counts().live for each in component.relations)
        most = max(MIN_FALLEN, live // FALLEN_SHARE)
        return replace(self._limits, rows=min(most, self._limits.rows or most))

    def _settle(self, schema: RelationSchema, lost: Rows, got: Rows) -> None:
        """Apply the changes of a relation: rows that have gone stay hidden until the end."""
        if not (lost.count or got.count):
            return
        relation = self._rows[schema]
        if lost.count and got.count:
            derived = self._engine.relation(schema.arity)
            derived.insert(*got)
            gone = lost.without(derived)
            derived.drop()
            came = got.without(self._program._given[fell(schema)])
            relation.hide(*lost, False)
            if gone.count:
                relation.hide(*gone, True)
        else:
            came, gone = got, lost
        if came.count:
            relation.insert(*came)
        self._note(schema, Changed(came, gone))

    def _again(self, number: int, component: ChangedComponent) -> None:
        """Derive the rows of a component from scratch, and compare."""
        with_all = self._opened(number, "again", self._limits)
        if with_all is None:
            return
        program, run = with_all
        try:
            self._finish(run)
            derived = {schema: run.relation(slot) for schema, slot in program.slots}
            for schema in component.relations:
                relation = self._rows[schema]
                pattern = [0] * schema.arity
                before = Rows(relation.match_rows(pattern), relation.counts().visible)
                if schema not in derived:
                    came, gone = NO_ROWS, before
                else:
                    now = derived[schema]
                    gone = before.without(now)
                    came = Rows(now.match_rows(pattern), now.counts().visible).without(relation)
                if gone.count:
                    relation.hide(*gone, True)
                if came.count:
                    relation.insert(*came)
                self._note(schema, Changed(came, gone))
        finally:
            run.close()

    def _show(self, schemas: Sequence[RelationSchema], *, before: bool) -> None:
        """Show kept relations as they were before the change, or as they are after it."""
        for schema in schemas:
            relation = self._rows.get(schema)
            if relation is not None:
                came, gone = self._changes[schema]
                if gone.count:
                    relation.hide(*gone, not before)
                if came.count:
                    relation.hide(*came, before)

    def _found(self, number: int, kind: str, limits: RunLimits) -> dict[RelationSchema, Rows]:
        """Return the results of a program of a component."""
        opened = self._opened(number, kind, limits)
        if opened is None:
            return {}
        program, run = opened
        found = {}
        try:
            self._finish(run)
            for schema, slot in program.slots:
                relation = run.relation(slot)
                count = relation.counts().visible
                if count:
                    found[schema] = Rows(relation.match_rows([0] * schema.arity), count)
        finally:
            run.close()
        return found

    def _finish(self, run: Run) -> None:
        self._work(run)
        if run.stats().warnings:
            raise Unmaintained

    def _opened(self, number: int, kind: str, limits: RunLimits) -> tuple[_Loaded, Run] | None:
        loaded = self._program._programs.loaded(self._engine, number, kind, self._statistics)
        if loaded is None:
            return None
        return loaded, loaded.plan.open_run(self._engine, self._bind, limits, None)

    def _bind(self, schema: RelationSchema) -> Relation:
        if "\0" not in schema.predicate:
            return self._bind_stored(schema)
        known = self._program._names.get(schema)
        if known is not None:
            return self._rows[known]
        given = self._program._given.get(schema)
        if given is not None:
            return given
        empty = self._program._empty
        if schema.arity not in empty:
            empty[schema.arity] = self._engine.relation(schema.arity)
        return empty[schema.arity]
