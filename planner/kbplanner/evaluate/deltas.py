"""The programs that find the changes of a program, loaded into an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from kbplanner.engine.backend import Engine
from kbplanner.evaluate.loaded import LoadedPlan, load
from kbplanner.ir.program import Clause, Program
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes import rewrite
from kbplanner.passes.differentiate import (
    ChangedComponent,
    added,
    asked,
    differentiate,
    fallen,
    fell,
    kept,
    new,
    removed,
    replaced,
)
from kbplanner.passes.order import SmallDerived, Statistics


class DeltaInput(Enum):
    """The rows of a relation that a program about changes reads."""

    KEPT = "kept"
    ADDED = "added"
    REMOVED = "removed"
    FELL = "fell"
    ASKED = "asked"


Source = tuple[DeltaInput, RelationSchema]
"""An input of such a program: what it reads, and of which relation of the maintained program."""

_NAMES = (
    (DeltaInput.KEPT, kept),
    (DeltaInput.ADDED, added),
    (DeltaInput.REMOVED, removed),
    (DeltaInput.FELL, fell),
    (DeltaInput.ASKED, asked),
)


@dataclass(frozen=True, slots=True, eq=False)
class DeltaProgram:
    """A loaded program about changes: what it reads, in the order of its plan, and the slots of its
    results.
    """

    plan: LoadedPlan
    sources: tuple[Source, ...]
    slots: tuple[tuple[RelationSchema, int], ...] = ()


class DeltaPrograms:
    """The loaded programs that find the changes of one program, made when they are first needed.

    Any number of maintained programs share them.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._loaded: dict[tuple[int, str], DeltaProgram] = {}
        self._tests: dict[tuple[RelationSchema, str], DeltaProgram] = {}

    @cached_property
    def sources(self) -> Mapping[RelationSchema, Source]:
        """The meaning of the names of inputs."""
        schemas = {
            atom.schema
            for clause in self._program.clauses
            for atom in (clause.head, *clause.all_atoms())
        }
        return {name(schema): (kind, schema) for schema in schemas for kind, name in _NAMES}

    @cached_property
    def components(self) -> Sequence[ChangedComponent] | None:
        """The components of the program, in the order of evaluation; None if it cannot be
        maintained.
        """
        return differentiate(self._program)

    def loaded(
        self, engine: Engine, number: int, kind: str, statistics: Statistics
    ) -> DeltaProgram | None:
        """Return the program of one kind of clauses of a component, named as in ChangedComponent;
        None if it has none.
        """
        program = self._loaded.get((number, kind))
        if program is None:
            component = (self.components or ())[number]
            clauses: Sequence[Clause] = getattr(component, kind)
            if not clauses:
                return None
            result = new if kind in ("new", "again") else fallen
            results = {result(each): each for each in component.relations}
            if kind == "new":
                results |= {replaced(each): replaced(each) for each in component.relations}
            program = self._loaded[number, kind] = self._load(engine, clauses, results, statistics)
        return program

    def test(
        self,
        engine: Engine,
        number: int,
        schema: RelationSchema,
        adornment: str,
        statistics: Statistics,
    ) -> DeltaProgram:
        """Return the goal for the rows of a relation of a component with some columns given."""
        test = self._tests.get((schema, adornment))
        if test is None:
            clauses = (self.components or ())[number].tests
            program = rewrite(clauses, new(schema), adornment, statistics)
            plan = load(engine, program, statistics)
            test = self._tests[schema, adornment] = DeltaProgram(plan, self._sources_of(plan))
        return test

    def _load(
        self,
        engine: Engine,
        clauses: Sequence[Clause],
        results: Mapping[RelationSchema, RelationSchema],
        statistics: Statistics,
    ) -> DeltaProgram:
        derived = {clause.head.schema for clause in clauses}
        answer = next(each for each in results if each in derived)
        program = Program(tuple(clauses), answer, answer=answer)
        plan = load(engine, program, SmallDerived(statistics, lambda schema: True))
        slots = tuple(
            (results[schema], slot)
            for slot, schema in enumerate(plan.plan.slots)
            if schema in results
        )
        return DeltaProgram(plan, self._sources_of(plan), slots)

    def _sources_of(self, plan: LoadedPlan) -> tuple[Source, ...]:
        return tuple(self.sources[schema] for schema in plan.base)
