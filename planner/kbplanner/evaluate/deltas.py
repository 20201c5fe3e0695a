"""The programs that find the changes of a program, loaded into an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kbplanner.engine.backend import Engine
from kbplanner.evaluate.loaded import LoadedPlan, load
from kbplanner.ir.program import Clause, Program
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes import rewrite
from kbplanner.passes.differentiate import ChangedComponent, differentiate, fallen, new
from kbplanner.passes.order import SmallDerived, Statistics


@dataclass(frozen=True, slots=True, eq=False)
class DeltaProgram:
    """A program that finds changes, and the slots of its results."""

    plan: LoadedPlan
    slots: tuple[tuple[RelationSchema, int], ...]


class DeltaPrograms:
    """The loaded programs that find the changes of one program, made when they are first needed.

    Any number of maintained programs share them.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._loaded: dict[tuple[int, str], DeltaProgram] = {}
        self._tests: dict[tuple[RelationSchema, str], LoadedPlan] = {}

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
            program = self._loaded[number, kind] = _load(
                engine, clauses, {result(each): each for each in component.relations}, statistics
            )
        return program

    def test(
        self,
        engine: Engine,
        number: int,
        schema: RelationSchema,
        adornment: str,
        statistics: Statistics,
    ) -> LoadedPlan:
        """Return the goal for the rows of a relation of a component with some columns given."""
        plan = self._tests.get((schema, adornment))
        if plan is None:
            clauses = (self.components or ())[number].tests
            program = rewrite(clauses, new(schema), adornment, statistics)
            plan = self._tests[schema, adornment] = load(engine, program, statistics)
        return plan


def _load(
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
        (results[schema], slot) for slot, schema in enumerate(plan.plan.slots) if schema in results
    )
    return DeltaProgram(plan, slots)
