"""A program while it is compiled: clauses over relation schemas, and its dependency graph.

Rules of the language have been lowered to clauses by the `lower` pass: signs and roles are part of the relation's
name, `not` is plain absence, and equalities that only name a value are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbplanner.schema import RelationSchema
from kbplanner.terms import Comparison, Term, Variable


@dataclass(frozen=True, slots=True)
class ClauseAtom:
    """A relation applied to terms; under `absent` it asks that no row matches (ANONYMOUS matches anything)."""

    schema: RelationSchema
    args: tuple[Term, ...]
    absent: bool = False

    def variables(self) -> Iterator[Variable]:
        """The named variables, in order, repeats included."""
        return (arg for arg in self.args if isinstance(arg, Variable) and not arg.anonymous)


ClauseItem = ClauseAtom | Comparison


@dataclass(frozen=True, slots=True)
class Clause:
    """`head` holds where `body` does; `rule` is the number of the rule it comes from, 0 for one the compiler made."""

    head: ClauseAtom
    body: tuple[ClauseItem, ...]
    rule: int = 0

    def atoms(self) -> Iterator[ClauseAtom]:
        """The atoms of the body that are not under absence."""
        return (item for item in self.body if isinstance(item, ClauseAtom) and not item.absent)


@dataclass(frozen=True, slots=True)
class Program:
    """Clauses, with the relation that holds the answers and the one that takes the goal's bindings.

    `answer_columns` says for each argument of the goal which column of the answer relation holds it, or None where
    the goal's own constant does.
    """

    clauses: tuple[Clause, ...]
    goal: RelationSchema
    seed: RelationSchema | None = None
    answer: RelationSchema | None = None
    answer_columns: tuple[int | None, ...] = ()
    full: frozenset[RelationSchema] = frozenset()

    def heads(self) -> dict[RelationSchema, list[Clause]]:
        """Clauses by the relation they conclude, in order."""
        table: dict[RelationSchema, list[Clause]] = {}
        for clause in self.clauses:
            table.setdefault(clause.head.schema, []).append(clause)
        return table


@dataclass(frozen=True, slots=True)
class Component:
    """Relations that depend on each other, in no smaller part: evaluated together. `recursive` if on themselves."""

    relations: frozenset[RelationSchema]
    recursive: bool


@dataclass(slots=True)
class _Visit:
    index: int
    low: int
    on_stack: bool = True
    edges: Iterator[RelationSchema] = field(default_factory=lambda: iter(()))


def components(clauses: Sequence[Clause]) -> list[Component]:
    """Strongly connected components of the dependency graph, each after those it depends on.

    Tarjan, "Depth-first search and linear graph algorithms" (1972), on an explicit stack. Relations without
    clauses are not listed.
    """
    graph: dict[RelationSchema, dict[RelationSchema, None]] = {}
    for clause in clauses:
        edges = graph.setdefault(clause.head.schema, {})
        for item in clause.body:
            if isinstance(item, ClauseAtom):
                edges[item.schema] = None
    visits: dict[RelationSchema, _Visit] = {}
    stack: list[RelationSchema] = []
    found: list[Component] = []
    for root in graph:
        if root in visits:
            continue
        path = [_enter(root, graph, visits, stack)]
        while path:
            node = path[-1]
            visit = visits[node]
            for target in visit.edges:
                if target not in graph:
                    continue
                if target not in visits:
                    path.append(_enter(target, graph, visits, stack))
                    break
                if visits[target].on_stack:
                    visit.low = min(visit.low, visits[target].index)
            else:
                path.pop()
                if path:
                    visits[path[-1]].low = min(visits[path[-1]].low, visit.low)
                if visit.low == visit.index:
                    found.append(_close(node, graph, visits, stack))
    return found


def _enter(
    node: RelationSchema,
    graph: Mapping[RelationSchema, Mapping[RelationSchema, None]],
    visits: dict[RelationSchema, _Visit],
    stack: list[RelationSchema],
) -> RelationSchema:
    visits[node] = _Visit(len(visits), len(visits), edges=iter(graph[node]))
    stack.append(node)
    return node


def _close(
    node: RelationSchema,
    graph: Mapping[RelationSchema, Mapping[RelationSchema, None]],
    visits: dict[RelationSchema, _Visit],
    stack: list[RelationSchema],
) -> Component:
    members = []
    while True:
        member = stack.pop()
        visits[member].on_stack = False
        members.append(member)
        if member == node:
            break
    recursive = len(members) > 1 or node in graph[node]
    return Component(frozenset(members), recursive)
