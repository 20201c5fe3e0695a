"""The nodes of a proof as columns: facts, and tests without a fact of their own, by number."""

from __future__ import annotations

from array import array
from collections.abc import Container, Sequence
from itertools import repeat
from typing import Any

from kbcore.state.facts import Row
from kbplanner.engine.proof_nodes import LEAF
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, HeadTerm

ASSERTED, DERIVED, ABSENT, BUILTIN = "asserted", "derived", "absent", "builtin"
EXTERNAL = "external"
"""Kinds of nodes."""


class Facts:
    """The facts and tests of a proof.

    Each has a relation, an index of `relations`, and arguments; those of an absence are the
    searched pattern, those of a builtin its values, with the operator as predicate. A conclusion
    has the rule instance that ends its proof (LEAF for other nodes); `heights` counts the rule
    steps below. `alternatives` is the number of other rule
    instances with the same conclusion; instances that depend on the same conclusions count once.
    `leaves` has what a tree shows of a leaf, if rows are requested: the row of a stored fact; for
    a test what `shapes` adds. `tests` has the kind and the body item, with its values, of each
    test. `external` has the relations whose facts come from plugins.
    """

    def __init__(self, external: Container[RelationSchema] = ()) -> None:
        self.external = external
        self.relations: list[RelationSchema] = []
        self.relation_numbers = array("I")
        self.args: list[Sequence[HeadTerm]] = []
        self.instances = array("I")
        self.heights = array("I")
        self.alternatives: list[int] = []
        self.leaves: list[Any] = []
        self.tests: dict[int, tuple[str, BodyItem]] = {}
        self._relation_index: dict[RelationSchema, int] = {}

    def __len__(self) -> int:
        return len(self.args)

    def kind(self, number: int) -> str:
        """Return the kind of a node."""
        if number in self.tests:
            return self.tests[number][0]
        if self.instances[number] != LEAF:
            return DERIVED
        return EXTERNAL if self.schema(number) in self.external else ASSERTED

    def schema(self, number: int) -> RelationSchema:
        """Return the relation of a node."""
        return self.relations[self.relation_numbers[number]]

    def atom(self, number: int) -> Atom:
        """Return a node as an atom."""
        schema = self.schema(number)
        return Atom(schema.predicate, tuple(self.args[number]), schema.positive)

    def add_leaves(
        self, schema: RelationSchema, args: Sequence[Sequence[HeadTerm]], rows: Sequence[Row] = ()
    ) -> None:
        """Add nodes that no rule concludes, with the rows of stored facts if they are requested."""
        count = len(args)
        self._add(schema, args, [LEAF] * count, [0] * count, [0] * count)
        self.leaves.extend(rows or repeat(None, count))

    def add_conclusions(
        self,
        schema: RelationSchema,
        args: Sequence[Sequence[HeadTerm]],
        instances: Sequence[int],
        heights: Sequence[int],
        alternatives: Sequence[int],
    ) -> None:
        """Add facts with the instances that end their proofs; LEAF for an asserted fact."""
        self._add(schema, args, instances, heights, alternatives)
        self.leaves.extend(repeat(None, len(args)))

    def _add(
        self,
        schema: RelationSchema,
        args: Sequence[Sequence[HeadTerm]],
        instances: Sequence[int],
        heights: Sequence[int],
        alternatives: Sequence[int],
    ) -> None:
        relation = self._relation_index.setdefault(schema, len(self.relations))
        if relation == len(self.relations):
            self.relations.append(schema)
        self.relation_numbers.extend([relation] * len(args))
        self.args.extend(args)
        self.instances.extend(instances)
        self.heights.extend(heights)
        self.alternatives.extend(alternatives)
