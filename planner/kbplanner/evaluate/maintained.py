"""Programs whose derived rows are kept."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from kbplanner.engine.backend import Engine, Relation, Run
from kbplanner.evaluate.deltas import DeltaPrograms
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.pacing import current_yield


class FlatRows(NamedTuple):
    """Rows of one relation: their symbols one after the other, and their number."""

    symbols: array[int]
    number: int

    def without(self, relation: Relation) -> FlatRows:
        """Return the rows that a relation does not have."""
        return FlatRows(*relation.missing(self.symbols, self.number)) if self.number else self

    def joined(self, other: FlatRows) -> FlatRows:
        """Return these rows and others."""
        return FlatRows(self.symbols + other.symbols, self.number + other.number)


NO_ROWS = FlatRows(array("I"), 0)


class Changed(NamedTuple):
    """The rows of a relation that hold only after a change, and those that held only before it."""

    came: FlatRows
    gone: FlatRows


class MaintainedProgram:
    """The derived rows of a program, kept equal to what an evaluation of it would derive.

    It takes over the rows of a finished run of the program. `steps` and `rows_made` count the work
    of all changes. After a change that raised an error it can only be closed.
    """

    def __init__(
        self, engine: Engine, programs: DeltaPrograms, run: Run, slots: Sequence[RelationSchema]
    ) -> None:
        self.engine = engine
        self.programs = programs
        self.rows: dict[RelationSchema, Relation] = {}
        self._asked: dict[RelationSchema, Relation] = {}
        self._empty: dict[int, Relation] = {}
        self.steps = self.rows_made = 0
        try:
            for slot, schema in enumerate(slots):
                if schema.role is not Role.STORED:
                    self._copy(schema, run.relation(slot))
        except BaseException:
            self.close()
            raise

    def _copy(self, schema: RelationSchema, source: Relation) -> None:
        relation = self.rows[schema] = self.engine.relation(schema.arity)
        for rows, ids in source.pieces([0] * schema.arity):
            relation.insert(rows, len(ids))
            current_yield()()

    def asked(self, schema: RelationSchema) -> Relation:
        """Return the relation of the bindings of goals."""
        if schema not in self._asked:
            self._asked[schema] = self.engine.relation(schema.arity)
        return self._asked[schema]

    def empty(self, arity: int) -> Relation:
        """Return a relation without rows."""
        if arity not in self._empty:
            self._empty[arity] = self.engine.relation(arity)
        return self._empty[arity]

    @property
    def bytes(self) -> int:
        """The memory of the kept rows with their indexes."""
        return sum(relation.bytes() for relation in self.rows.values())

    @property
    def row_bytes(self) -> int:
        """The memory of the kept rows alone, 4 bytes a column."""
        return sum(4 * each.arity * each.counts().live for each in self.rows.values())

    def close(self) -> None:
        """Free the rows."""
        for relations in (self.rows, self._asked, self._empty):
            for relation in relations.values():
                relation.drop()
            relations.clear()
