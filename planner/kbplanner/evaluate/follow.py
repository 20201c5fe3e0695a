"""A change of the stored relations, followed through the rows of a maintained program.

The clauses are those of `passes/differentiate.py`; the engine runs them like any others, over the
stored relations, the kept rows and the changes. What they find is followed component by component,
in the order of evaluation. Equal to evaluation from the start is the only specification; the order
of the changes does not matter.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kbplanner.engine.backend import Engine, Relation, Run, RunLimits
from kbplanner.errors import BudgetExceeded
from kbplanner.evaluate.answers import AnswerReader, with_constants
from kbplanner.evaluate.deltas import DeltaInput, DeltaProgram, Source
from kbplanner.evaluate.loaded import Bind, LoadedPlan, RunBudget
from kbplanner.evaluate.maintained import NO_ROWS, Changed, FlatRows, MaintainedProgram
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes.differentiate import ChangedComponent, replaced
from kbplanner.passes.order import Statistics


class Unmaintained(Exception):
    """A change that cannot be followed: a function has no value in it, which is counted, too many
    rows would have to be compared, or it takes more steps than a change may.
    """


MIN_FALLEN = 2000
"""Rows that may fall in a component before it is derived from scratch instead."""

FALLEN_SHARE = 5
"""Or, if that is more, one of this many of its rows."""


TESTED_ROUNDS = 4
"""Rounds in which the fallen rows of a recursive component are tested before all that may follow
from them is derived.
"""

MAX_COMPARED = 500_000
"""Rows of a component that are compared with those derived from scratch."""

MAX_GROUPS = 8
"""Goals of such a test: the rows are tested together that agree in one column."""


def follow(
    program: MaintainedProgram,
    changes: Mapping[RelationSchema, Changed],
    bind: Bind,
    statistics: Statistics,
    budget: RunBudget,
) -> dict[RelationSchema, Changed]:
    """Follow the changes of stored relations, or of the seed; return those of all relations.

    `bind` returns the stored relations, which have changed already; the seed has not. Raises
    BudgetExceeded and Unmaintained; then the program can only be closed.
    """
    change = _Change(program, bind, _KnownSizes(program, statistics), budget)
    try:
        return change.follow(changes)
    finally:
        change.close()


@dataclass(frozen=True, slots=True)
class _KnownSizes:
    """Statistics of stored and kept relations; changes have few rows."""

    program: MaintainedProgram
    stored: Statistics

    def rows(self, schema: RelationSchema) -> int:
        """Return the visible rows of a relation."""
        kind, of = self.program.programs.sources[schema]
        if kind is not DeltaInput.KEPT:
            return 0
        known = self.program.rows.get(of)
        return self.stored.rows(of) if known is None else known.counts().visible

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Return the number of distinct values of these columns of a relation; 0 when unknown."""
        kind, of = self.program.programs.sources[schema]
        if kind is not DeltaInput.KEPT:
            return 0
        known = self.program.rows.get(of)
        return self.stored.distinct(of, columns) if known is None else known.distinct(columns)


class _TooMany(Exception):
    """Too many rows of a component may have fallen: it is derived from scratch."""


class _Answers(AnswerReader):
    """The answers of a finished test."""

    def __init__(self, engine: Engine, plan: LoadedPlan, run: Run) -> None:
        super().__init__(engine)
        self._use_plan(plan)
        self._run = run

    def of(self, pattern: Sequence[int]) -> FlatRows:
        """Return the rows with the constants of a pattern, in any order."""
        matching = self._answer_pattern(pattern)
        rows = self._answers().match_rows(matching)
        count = len(rows) // len(matching) if matching else self._row_count()
        return FlatRows(with_constants(rows, count, pattern, self._plan.answer_columns), count)

    def _answers(self) -> Relation:
        return self._run.relation(self._plan.answer)


def _groups(rows: FlatRows, arity: int) -> tuple[int, set[int]]:
    """Return the column with the fewest values, and these."""
    columns = [set(rows.symbols[column::arity]) for column in range(arity)]
    column = min(range(arity), key=lambda each: len(columns[each]))
    return column, columns[column]


class _Change:
    """One change of a maintained program."""

    def __init__(
        self,
        program: MaintainedProgram,
        bind: Bind,
        statistics: Statistics,
        budget: RunBudget,
    ) -> None:
        self._program = program
        self._engine = program.engine
        self._rows = program.rows
        self._bind_stored = bind
        self._statistics = statistics
        self._limits = budget.limits
        self._work = budget.work
        self._begun = program.steps
        self._changes: dict[RelationSchema, Changed] = {}
        self._given: dict[Source, Relation] = {}

    def close(self) -> None:
        """Free the changes."""
        for relation in self._given.values():
            relation.drop()

    def follow(self, changes: Mapping[RelationSchema, Changed]) -> dict[RelationSchema, Changed]:
        """Apply a change to all kept relations."""
        components = self._program.programs.components or ()
        for schema, changed in changes.items():
            if schema in self._rows:  # the seed
                self._program.asked(schema).insert(*changed.came)
                came = changed.came.without(self._rows[schema])
                if not any(schema in component.relations for component in components):
                    self._rows[schema].insert(*came)
                changed = Changed(came, NO_ROWS)
            self._note(schema, changed)
        for number, component in enumerate(components):
            if not component.reads.isdisjoint(self._changes):
                self._component(number, component)
        for schema, changed in self._changes.items():
            if schema in self._rows and changed.gone.number:
                self._rows[schema].delete(*changed.gone)
        return self._changes

    def _note(self, schema: RelationSchema, changed: Changed) -> None:
        if changed.came.number or changed.gone.number:
            self._changes[schema] = changed
            self._give((DeltaInput.ADDED, schema), changed.came)
            self._give((DeltaInput.REMOVED, schema), changed.gone)

    def _give(self, source: Source, rows: FlatRows) -> None:
        """Make rows an input of the programs that come."""
        before = self._given.pop(source, None)
        if before is not None:
            before.drop()
        if rows.number:
            relation = self._given[source] = self._engine.relation(source[1].arity)
            relation.insert(*rows)

    def _component(self, number: int, component: ChangedComponent) -> None:
        below = [each for each in component.reads if each in self._changes]
        came = {each for each in below if self._changes[each].came.number}
        gone = {each for each in below if self._changes[each].gone.number}
        lost: dict[RelationSchema, FlatRows] = {}
        if not (
            component.falls_by_removed.isdisjoint(gone)
            and component.falls_by_added.isdisjoint(came)
        ):
            try:
                lost = self._fallen(number, component, below)
            except _TooMany:
                self._again(number, component)
                return
        for schema, rows in lost.items():
            self._rows[schema].hide(*rows, True)
            self._give((DeltaInput.FELL, schema), rows)
        got: dict[RelationSchema, FlatRows] = {}
        if lost or not (
            component.grows_by_added.isdisjoint(came)
            and component.grows_by_removed.isdisjoint(gone)
        ):
            got = self._found(number, "new", self._limits)
        for schema in component.relations:
            worse = got.get(replaced(schema))
            if worse is not None:
                self._rows[schema].hide(*worse, True)
                self._give((DeltaInput.FELL, schema), lost.get(schema, NO_ROWS).joined(worse))
                lost[schema] = lost.get(schema, NO_ROWS).joined(worse)
            self._settle(schema, lost.get(schema, NO_ROWS), got.get(schema, NO_ROWS))

    def _fallen(
        self, number: int, component: ChangedComponent, below: Sequence[RelationSchema]
    ) -> dict[RelationSchema, FlatRows]:
        """Return the rows of a component that may have fallen; raises _TooMany.

        What has lost a premise is tested first in a recursive component, for some rounds: rows that
        support each other in a circle would all fall with any of them.
        """
        find = partial(self._candidates, number, component, below)
        rows_of = find("fallen")
        if not component.is_recursive or not rows_of:
            return rows_of
        if not component.tests:
            self._give_fallen(component, rows_of)
            return find("closure")
        all_fallen: dict[RelationSchema, FlatRows] = {}
        for _ in range(TESTED_ROUNDS):
            if not self._can_be_tested(rows_of):
                break
            fresh = {}
            for schema, rows in rows_of.items():
                left = self._failing(number, schema, self._not_among(schema, rows, all_fallen))
                if left.number:
                    fresh[schema] = left
                    all_fallen[schema] = all_fallen.get(schema, NO_ROWS).joined(left)
            if not fresh:
                return all_fallen
            self._give_fallen(component, fresh)
            rows_of = find("onward")
        self._give_fallen(
            component,
            {
                schema: all_fallen.get(schema, NO_ROWS).joined(rows_of.get(schema, NO_ROWS))
                for schema in (*all_fallen, *rows_of)
            },
        )
        return find("closure")

    def _candidates(
        self, number: int, component: ChangedComponent, below: Sequence[RelationSchema], kind: str
    ) -> dict[RelationSchema, FlatRows]:
        """Return what a program finds on the state before the change; raises _TooMany."""
        live = sum(self._rows[each].counts().live for each in component.relations)
        most = max(MIN_FALLEN, live // FALLEN_SHARE)
        limits = replace(self._limits, rows=min(most, self._limits.rows or most))
        self._show(below, before=True)
        try:
            return self._found(number, kind, limits)
        except BudgetExceeded as error:
            if (error.details or {}).get("limit") != "derivedRows":
                raise
            raise _TooMany from error
        finally:
            self._show(below, before=False)

    def _give_fallen(
        self, component: ChangedComponent, rows_of: Mapping[RelationSchema, FlatRows]
    ) -> None:
        for schema in component.relations:
            self._give((DeltaInput.FELL, schema), rows_of.get(schema, NO_ROWS))

    def _not_among(
        self, schema: RelationSchema, rows: FlatRows, known: Mapping[RelationSchema, FlatRows]
    ) -> FlatRows:
        if schema not in known:
            return rows
        relation = self._engine.relation(schema.arity)
        relation.insert(*known[schema])
        left = rows.without(relation)
        relation.drop()
        return left

    def _can_be_tested(self, rows_of: Mapping[RelationSchema, FlatRows]) -> bool:
        return all(
            not schema.arity or len(_groups(rows, schema.arity)[1]) <= MAX_GROUPS
            for schema, rows in rows_of.items()
        )

    def _failing(self, number: int, schema: RelationSchema, rows: FlatRows) -> FlatRows:
        """Return the rows that do not hold after the change."""
        if not rows.number:
            return rows
        column, values = _groups(rows, schema.arity) if schema.arity else (0, {0})
        adornment = "".join("b" if each == column else "f" for each in range(schema.arity))
        test = self._program.programs.test(
            self._engine, number, schema, adornment, self._statistics
        )
        plan = test.plan
        true = self._engine.relation(schema.arity)
        try:
            for value in values:
                pattern = [value if each == column else 0 for each in range(schema.arity)]
                run = self._open(test, self._limits)
                try:
                    if plan.plan.seed is not None:
                        run.seed(array("I", [pattern[each] for each in plan.bound]), 1)
                    self._finish(run)
                    true.insert(*_Answers(self._engine, plan, run).of(pattern))
                finally:
                    run.close()
            return rows.without(true)
        finally:
            true.drop()

    def _settle(self, schema: RelationSchema, lost: FlatRows, got: FlatRows) -> None:
        """Apply the changes of a relation: rows that have gone stay hidden until the end."""
        if not (lost.number or got.number):
            return
        relation = self._rows[schema]
        if lost.number and got.number:
            derived = self._engine.relation(schema.arity)
            derived.insert(*got)
            gone = lost.without(derived)
            derived.drop()
            came = got.without(self._given[DeltaInput.FELL, schema])
            relation.hide(*lost, False)
            if gone.number:
                relation.hide(*gone, True)
        else:
            came, gone = got, lost
        if came.number:
            relation.insert(*came)
        self._note(schema, Changed(came, gone))

    def _again(self, number: int, component: ChangedComponent) -> None:
        """Derive the rows of a component from scratch, and compare."""
        program = self._loaded(number, "again")
        if program is None:
            return
        if sum(self._rows[each].counts().live for each in component.relations) > MAX_COMPARED:
            raise Unmaintained
        run = self._open(program, self._limits)
        try:
            self._finish(run)
            derived = {schema: run.relation(slot) for schema, slot in program.slots}
            for schema in component.relations:
                relation = self._rows[schema]
                pattern = [0] * schema.arity
                before = FlatRows(relation.match_rows(pattern), relation.counts().visible)
                if schema not in derived:
                    came, gone = NO_ROWS, before
                else:
                    now = derived[schema]
                    gone = before.without(now)
                    came = FlatRows(now.match_rows(pattern), now.counts().visible).without(relation)
                if gone.number:
                    relation.hide(*gone, True)
                if came.number:
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
                if gone.number:
                    relation.hide(*gone, not before)
                if came.number:
                    relation.hide(*came, before)

    def _found(self, number: int, kind: str, limits: RunLimits) -> dict[RelationSchema, FlatRows]:
        """Return the results of a program of a component."""
        program = self._loaded(number, kind)
        rows_of: dict[RelationSchema, FlatRows] = {}
        if program is None:
            return rows_of
        run = self._open(program, limits)
        try:
            if not self._finish(run):
                return rows_of
            for schema, slot in program.slots:
                relation = run.relation(slot)
                count = relation.counts().visible
                if count:
                    rows_of[schema] = FlatRows(relation.match_rows([0] * schema.arity), count)
        finally:
            run.close()
        return rows_of

    def _finish(self, run: Run) -> int:
        """Step a run to its end; return how many rows it has made."""
        self._work(run)
        stats = run.stats()
        self._program.steps += stats.steps
        self._program.rows_made += stats.rows_made
        is_long = 0 < self._limits.steps < self._program.steps - self._begun  # all of its programs
        if stats.warnings or is_long:
            raise Unmaintained
        return stats.rows_made

    def _loaded(self, number: int, kind: str) -> DeltaProgram | None:
        programs = self._program.programs
        return programs.loaded(self._engine, number, kind, self._statistics)

    def _open(self, program: DeltaProgram, limits: RunLimits) -> Run:
        relations = [self._source(source) for source in program.sources]
        plan = program.plan
        return self._engine.open_run(plan.compiled, relations, plan.params, limits)

    def _source(self, source: Source) -> Relation:
        kind, schema = source
        if kind is DeltaInput.ASKED:
            return self._program.asked(schema)
        if kind is not DeltaInput.KEPT:
            return self._given.get(source) or self._program.empty(schema.arity)
        known = self._rows.get(schema)
        return self._bind_stored(schema) if known is None else known
