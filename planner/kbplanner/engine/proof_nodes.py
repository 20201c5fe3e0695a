"""Nodes of proofs, in breadth-first order and as dicts, without Python code per node.

The facts and the steps of a proof have numbers. Columns have an entry for each fact or step: flat
arrays of 32-bit numbers, or lists of Python objects. A fact that a rule concludes has the number of
an instance of the rule, and a replayed instance has a step. A step concludes a fact from the facts
`premises[ends[step-1]:ends[step]]` (from 0 for the first).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kbplanner._proofs import graphs, order, trees

LEAF = 0xFFFFFFFF
"""In place of the instance or the step of a fact: no rule concludes it."""

MISSING = 0xFFFFFFFE
"""In place of the step of an instance: it is not replayed yet."""

RECORDS_PER_CALL = 4000
"""Nodes that are ordered or built in one call: about a millisecond."""

_ELIDED = 0xFFFFFFFF
_RECORD_BYTES = 12

Item: TypeAlias = "tuple[tuple[str, int], ...]"
"""The variables of a body item with their argument indexes."""


@dataclass(slots=True)
class Steps:
    """Steps of a proof as columns.

    `rules` has the number of each step's rule and `bindings` the values of the rule's variables.
    `by_instance` has the step of each of `count` instances, as 32-bit numbers.
    """

    count: int = 0
    rules: array[int] = field(default_factory=lambda: array("I"))
    bindings: list[dict[str, str]] = field(default_factory=list)
    ends: array[int] = field(default_factory=lambda: array("I"))
    premises: array[int] = field(default_factory=lambda: array("I"))
    by_instance: bytearray = field(init=False)
    _by_instance: memoryview[int] = field(init=False)

    def __post_init__(self) -> None:
        self.by_instance = bytearray(array("I", [MISSING]).tobytes() * self.count)
        self._by_instance = memoryview(self.by_instance).cast("I")

    def __len__(self) -> int:
        return len(self.ends)

    def of(self, step: int) -> array[int]:
        """Return the premises of a step."""
        return self.premises[self.ends[step - 1] if step else 0 : self.ends[step]]

    def step(self, instance: int) -> int:
        """Return the step of an instance, LEAF or MISSING."""
        return LEAF if instance == LEAF else self._by_instance[instance]

    def add(
        self,
        instances: Sequence[int],
        rule: int,
        bindings: list[dict[str, str]],
        columns: Sequence[Sequence[int]],
    ) -> None:
        """Add the steps of instances of a rule, which are in order.

        `bindings` has the values of its variables; a column of `columns` has one premise of each
        step.
        """
        numbers = array("I", range(len(self), len(self) + len(instances)))
        first, end = instances[0], instances[-1] + 1
        if end - first == len(instances):
            self._by_instance[first:end] = numbers
        else:
            for instance, step in zip(instances, numbers, strict=True):
                self._by_instance[instance] = step
        width, count, before = len(columns), len(bindings), len(self.premises)
        self.rules.extend([rule] * count)
        self.bindings.extend(bindings)
        flat = array("I", bytes(4 * width * count))
        for index, column in enumerate(columns):
            flat[index::width] = array("I", column)
        self.premises.extend(flat)
        if width:
            self.ends.extend(range(before + width, before + width * count + 1, width))
        else:
            self.ends.extend([before] * count)


class Order:
    """The nodes of a proof from one fact on, breadth first, cut at `max_nodes` nodes and at
    `max_depth` steps below the first.

    A graph has one node for each fact; a tree repeats a fact below each step that uses it. `nodes`
    is the number of nodes so far.
    """

    def __init__(self, top: int, max_nodes: int, max_depth: int, *, is_graph: bool) -> None:
        self.nodes = 1
        self._queue = bytearray(array("I", [top, 0, _ELIDED]))
        self._at = 0
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._top = top
        self._names = bytearray() if is_graph else None

    @property
    def is_complete(self) -> bool:
        """True if all nodes are ordered."""
        return _RECORD_BYTES * self._at >= len(self._queue)

    @property
    def nodes_left(self) -> int:
        """The number of nodes before the order is cut."""
        return max(self._max_nodes - self.nodes, 0)

    def __len__(self) -> int:
        """Return the number of records: nodes without the leaves of a tree."""
        return len(self._queue) // _RECORD_BYTES

    def advance(self, instances: array[int], steps: Steps) -> int | None:
        """Order more nodes; return a fact whose step is MISSING and needed, or None.

        `instances` has the instance of each fact. Without a missing step, call it until the order
        is complete.
        """
        if self._names is not None:
            start = len(self._names)
            self._names.extend(bytes(4 * len(instances) - start))
            if not start:
                self._names[4 * self._top : 4 * self._top + 4] = array("I", [1]).tobytes()
        self._at, self.nodes, missing = order(
            self._queue,
            self._names,
            self._at,
            self.nodes,
            instances.tobytes(),
            steps.by_instance,
            steps.ends.tobytes(),
            steps.premises.tobytes(),
            self._max_nodes,
            self._max_depth,
            RECORDS_PER_CALL,
        )
        return None if missing < 0 else missing

    def facts(self) -> array[int]:
        """Return the fact of each record."""
        return self._words()[0::3]

    @property
    def cut(self) -> list[bool]:
        """For each record, whether its node is shown without the premises it may have."""
        return [first == _ELIDED for first in self._words()[2::3]]

    def names(self) -> array[int]:
        """Return the number of the node of each fact in a graph, from 1; 0: none."""
        return array("I", bytes(self._names or b""))

    def table(self, graph: NodeGraph, yield_now: Callable[[], None]) -> dict[str, Any]:
        """Return the nodes of the graph as dicts, by name."""
        labels = [f"n{number}" for number in range(1, len(self) + 1)]
        nodes: list[dict[str, Any]] = []
        arguments, names = graph.arguments(), self._names or bytearray()
        while len(nodes) < len(labels):
            stop = min(len(nodes) + RECORDS_PER_CALL, len(labels))
            nodes.extend(graphs(arguments, self._queue, names, labels, len(nodes), stop))
            yield_now()
        return dict(zip(labels, nodes, strict=True))

    def build(self, tree: Tree, yield_now: Callable[[], None]) -> Any:
        """Return the first node of the tree, as nested dicts; None if it is elided."""
        nodes, arguments = [None] * len(self), tree.arguments()
        for stop in range(len(self), 0, -RECORDS_PER_CALL):
            trees(arguments, self._queue, nodes, max(stop - RECORDS_PER_CALL, 0), stop)
            yield_now()
        return nodes[0]

    def _words(self) -> array[int]:
        return array("I", bytes(self._queue))


@dataclass(frozen=True, slots=True)
class Tree:
    """The parts of the nodes of a tree.

    By fact: its instance, its arguments, its relation, and its leaf: the row of a stored
    fact, the goal and the step of a test, or None. By relation: templates of the row of a
    conclusion and of the step of a stored fact. By rule: the template of its step, and the
    variables of each body item. `aggregates` has further values of some steps, by number. `node`
    and `elided` are templates of a node and of the step of an elided node. `keys` are the names of
    the values in a node (its goal, step and substitution), in a step (its fact and premises), and
    in a row (its arguments and metadata).
    """

    instances: array[int]
    args: list[Any]
    relations: array[int]
    leaves: list[Any]
    conclusions: list[dict[str, Any]]
    matches: list[dict[str, Any]]
    steps: Steps
    applications: list[dict[str, Any]]
    items: list[tuple[Item, ...]]
    aggregates: dict[int, dict[str, Any]]
    node: dict[str, Any]
    elided: dict[str, Any]
    keys: tuple[str, str, str, str, str, str, str]

    def arguments(self) -> tuple[Any, ...]:
        """Return the parts as the compiled module takes them."""
        return (
            self.instances.tobytes(),
            self.steps.by_instance,
            self.steps.ends.tobytes(),
            self.steps.premises.tobytes(),
            self.args,
            self.relations.tobytes(),
            self.leaves,
            self.conclusions,
            self.matches,
            self.steps.rules.tobytes(),
            self.applications,
            self.items,
            self.steps.bindings,
            self.aggregates,
            self.node,
            self.elided,
            self.keys,
        )


@dataclass(frozen=True, slots=True)
class NodeGraph:
    """The parts of the nodes of a graph.

    By fact: its instance, its arguments, its relation, its height, and its alternatives. By
    relation: templates of a fact and of the node of a stored fact. By rule: templates of the node
    of a conclusion and of the rule. `aggregates` has further values of the conclusions of some
    steps, by number. `elided` is the template of an elided node, `tests` has the nodes of tests,
    by fact. `keys` are the names of the values in a node (its fact, depth, premises, alternatives,
    rule and bindings), and of the arguments in a fact.
    """

    instances: array[int]
    args: list[Any]
    relations: array[int]
    heights: array[int]
    alternatives: list[int]
    facts: list[dict[str, Any]]
    stored: list[dict[str, Any]]
    steps: Steps
    conclusions: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    aggregates: dict[int, dict[str, Any]]
    elided: dict[str, Any]
    tests: dict[int, dict[str, Any]]
    keys: tuple[str, str, str, str, str, str, str]

    def arguments(self) -> tuple[Any, ...]:
        """Return the parts as the compiled module takes them."""
        return (
            self.instances.tobytes(),
            self.steps.by_instance,
            self.steps.ends.tobytes(),
            self.steps.premises.tobytes(),
            self.args,
            self.relations.tobytes(),
            self.heights.tobytes(),
            self.alternatives,
            self.facts,
            self.stored,
            self.steps.rules.tobytes(),
            self.conclusions,
            self.rules,
            self.steps.bindings,
            self.aggregates,
            self.elided,
            self.tests,
            self.keys,
        )
