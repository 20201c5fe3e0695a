"""The ground program of a negative component, and its model.

A node is a row of a relation of the component: its number is an offset for the relation plus the
row's id. One more node is never true nor false; it is a premise of every instance that depends on
something undefined below the component.

`not p(_)`, where `~p` belongs to the component as well, holds if every `p` is absent or denied.
More rows of `~p` make it hold more often, so that it cannot be the absence of a relation that
shrinks with `~p`. The nodes of such relations (`inverted`) represent the opposite: for a row of an
UNDENIED relation, that it is absent or denied; for a row of its projection, that all its rows are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import compress

from kbplanner.compile.plan import Plan
from kbplanner.engine.backend import NO_ROW, Engine, Relation, Run, Truth, YieldNow
from kbplanner.engine.ground import NEGATED, NONE, Ground
from kbplanner.ir.program import ClauseAtom
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Variable
from kbplanner.pacing import paced
from kbplanner.passes.wellfounded import (
    POSSIBLE,
    TRUE,
    Instances,
    NegativeComponent,
    Overestimate,
    settled,
)

RELATIONS_PER_YIELD = 20
"""Relations read or made between two calls of `yield_now`: about a millisecond."""

INSTANCES_PER_YIELD = 5_000
"""Instances read between two calls of `yield_now`: about a millisecond."""


class ComponentReader:
    """Reader of one finished run; `yield_now` is called between pieces of the work."""

    def __init__(
        self,
        engine: Engine,
        run: Run,
        plan: Plan,
        part: NegativeComponent,
        program: Overestimate,
        yield_now: YieldNow,
    ) -> None:
        self._engine = engine
        self._yield_now = yield_now
        self._part = part
        self._sources = program.instances
        self._inverted = program.inverted
        self._relations = {
            schema: run.relation(slot)
            for slot, schema in paced(enumerate(plan.slots), yield_now, RELATIONS_PER_YIELD)
            if schema.role is not Role.STORED
        }
        self._offsets: dict[RelationSchema, int] = {}
        self._undefined_node = 0
        for source in paced(self._sources, yield_now, RELATIONS_PER_YIELD):
            for atom in (source.head, *source.premises):
                if atom.schema not in self._offsets:
                    self._offsets[atom.schema] = self._undefined_node
                    relation = self._relations.get(atom.schema)
                    self._undefined_node += relation.counts().rows if relation else 0

    def ground(self) -> Ground:
        """Return the instances, as a ground program."""
        heads, ends, premises = array("I"), array("I"), array("I")
        sources = enumerate(self._sources)
        for index, source in paced(sources, self._yield_now, RELATIONS_PER_YIELD):
            rows, ids = self._relations[source.schema].match(
                [0] * source.schema.arity, yield_now=self._yield_now
            )
            count = len(ids)
            if source.head.schema in self._inverted:
                self._invert(source, index, rows, count, heads, ends, premises)
                continue
            width = len(source.premises) + (not source.is_sure)
            arity = source.schema.arity
            for first in range(0, count, INSTANCES_PER_YIELD):
                self._yield_now()
                batch, size = (
                    rows[first * arity : (first + INSTANCES_PER_YIELD) * arity],
                    min(INSTANCES_PER_YIELD, count - first),
                )
                heads.extend(self._nodes(source, source.head, batch, size))
                flat = array("I", [self._undefined_node]) * (width * size)
                for column, atom in enumerate(source.premises):
                    flat[column::width] = self._nodes(source, atom, batch, size)
                start = len(premises)
                premises.extend(flat)
                ends.extend(
                    range(start + width, start + width * size + 1, width)
                    if width
                    else array("I", [start]) * size
                )
        heads.append(self._undefined_node)
        premises.append(NEGATED | self._undefined_node)
        ends.append(len(premises))
        return Ground(self._undefined_node + 1, heads, ends, premises)

    def settled(
        self, values: bytes
    ) -> tuple[dict[RelationSchema, Relation], frozenset[RelationSchema]]:
        """Return the settled relations, with a `Truth` for each node, and the relations with
        undefined rows.
        """
        relations: dict[RelationSchema, Relation] = {}
        undefined = set()
        for schema in paced(self._part.relations, self._yield_now, RELATIONS_PER_YIELD):
            rows, ids = self._relations[schema].match([0] * schema.arity)
            offset = self._offsets[schema]
            values_of_relation = values[offset : offset + len(ids)]
            if schema in self._inverted:
                values_of_relation = values_of_relation.translate(_OPPOSITE)
            true, upper = settled(schema, TRUE), settled(schema, POSSIBLE)
            relations[true] = relations[upper] = self._subset(
                schema, rows, values_of_relation.translate(_TRUE)
            )
            if Truth.UNDEFINED in values_of_relation:
                undefined.add(schema)
                relations[upper] = self._subset(
                    schema, rows, values_of_relation.translate(_POSSIBLE)
                )
        return relations, frozenset(undefined)

    def _invert(
        self,
        source: Instances,
        index: int,
        rows: array[int],
        count: int,
        heads: array[int],
        ends: array[int],
        premises: array[int],
    ) -> None:
        """Add instances for the opposites of heads: one per premise that can fail; for a projection
        one with all.
        """
        self._yield_now()
        nodes = self._nodes(source, source.head, rows, count)
        if source.head.schema.role is Role.PROJECTION:
            groups: dict[int, list[int]] = {}
            pairs = zip(nodes, self._nodes(source, source.premises[0], rows, count), strict=True)
            for node, below in paced(pairs, self._yield_now, INSTANCES_PER_YIELD):
                groups.setdefault(node, []).append(below)
            for node, group in groups.items():
                heads.append(node)
                premises.extend(group)
                ends.append(len(premises))
            return
        if source.is_sure and index and self._sources[index - 1].head == source.head:
            return  # the same rows are among the possible ones
        failing_premises = [
            [_opposite(node) for node in self._nodes(source, atom, rows, count)]
            for atom in source.premises
        ]
        if not source.is_sure:
            sure_ids = self._relations[self._sources[index + 1].schema].locate(rows, count)
            failing_premises.append(
                [NONE if row_id != NO_ROW else self._undefined_node for row_id in sure_ids]
            )
        for failing in failing_premises:
            for node, fail in paced(
                zip(nodes, failing, strict=True), self._yield_now, INSTANCES_PER_YIELD
            ):
                if fail != NONE:
                    heads.append(node)
                    premises.append(fail)
                    ends.append(len(premises))

    def _nodes(
        self, source: Instances, atom: ClauseAtom, rows: array[int], count: int
    ) -> array[int]:
        """Return an atom's node in each instance as a premise: NEGATED where it is absent, NONE
        where it cannot hold.
        """
        relation = self._relations.get(atom.schema)
        if relation is None:
            return array("I", [NONE]) * count
        ids = relation.locate(_gathered(atom, source.variables, rows, count, self._engine), count)
        offset = self._offsets[atom.schema]
        negated = atom.absent and atom.schema not in self._inverted
        if offset:
            ids = array("I", [NONE if index == NO_ROW else offset + index for index in ids])
        return _negated(ids) if negated else ids

    def _subset(self, schema: RelationSchema, rows: array[int], selected: bytes) -> Relation:
        """Return a relation of the selected rows."""
        relation, arity = self._engine.relation(schema.arity), schema.arity
        count = selected.count(1)
        values = array("I", bytes(4 * arity * count))
        for column in range(arity):
            values[column::arity] = array("I", compress(rows[column::arity], selected))
        relation.insert(values, count)
        return relation


def _gathered(
    atom: ClauseAtom, variables: Sequence[Variable], rows: array[int], count: int, engine: Engine
) -> array[int]:
    """Return the rows of an atom, one for each row of values of `variables`."""
    width, arity = len(variables), len(atom.args)
    result = array("I", bytes(4 * arity * count))
    for column, arg in enumerate(atom.args):
        if isinstance(arg, Variable):
            result[column::arity] = rows[variables.index(arg) :: width]
        elif isinstance(arg, str):
            result[column::arity] = array("I", [engine.find(arg)]) * count
    return result


def _negated(premises: array[int]) -> array[int]:
    """Return each premise with its sign bit set, in one operation on a large number; NONE stays
    NONE.
    """
    size = len(premises) * premises.itemsize
    signs = int.from_bytes(array("I", [NEGATED]) * len(premises), sys.byteorder)
    return array(
        "I", (int.from_bytes(premises, sys.byteorder) | signs).to_bytes(size, sys.byteorder)
    )


def _opposite(premise: int) -> int:
    return premise if premise == NONE else premise ^ NEGATED


_TRUE = bytes(value == Truth.TRUE for value in range(256))
_POSSIBLE = bytes(value != Truth.FALSE for value in range(256))
_OPPOSITE = bytes(
    {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE}.get(Truth(v), v) if v < 3 else v
    for v in range(256)
)
