"""A program while it is compiled: clauses over relation schemas, and its dependency graph.

Rules of the language have been lowered to clauses by the `lower` pass: signs and roles are part of
the relation's name, `not` is plain absence, and equalities that only name a value are substituted
away.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kbplanner.ir.modes import NO_MODES, Modes
from kbplanner.ir.operators import GENERATOR
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Apply, Comparison, Term, Variable
from kbplanner.pacing import YieldNow, current_yield, go_on, paced

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClauseAtom:
    """A relation applied to terms; `absent` tests that no row matches (ANONYMOUS matches
    anything).
    """

    schema: RelationSchema
    args: tuple[Term, ...]
    absent: bool = False

    def variables(self) -> Iterator[Variable]:
        """Yield the named variables, in order, including repeats."""
        return (arg for arg in self.args if isinstance(arg, Variable) and not arg.anonymous)


@dataclass(frozen=True, slots=True)
class Computation:
    """`target` is the value of `function` applied to `args`; it fails where the function has no
    value.

    `function` is one of operators.OPERATIONS, or `=`, which returns its one argument. A generator,
    one of operators.GENERATOR, has any number of values, and the target is each of them.
    """

    target: Variable
    function: str
    args: tuple[Term, ...]

    @property
    def generates(self) -> bool:
        """True if the target can have several values."""
        return self.function in GENERATOR

    def inputs(self) -> Iterator[Variable]:
        """Yield the variables it computes from, including repeats."""
        return (arg for arg in self.args if isinstance(arg, Variable))

    def variables(self) -> Iterator[Variable]:
        """Yield the target and the variables it is computed from."""
        yield self.target
        yield from self.inputs()


@dataclass(frozen=True, slots=True)
class AggregateClause:
    """`target` is the value of an aggregate over the rows of a group: those that agree in the other
    columns of the head.

    The clause has one atom besides its aggregations. `variable` is None for the count of all rows.
    """

    target: Variable
    function: str
    variable: Variable | None

    def variables(self) -> Iterator[Variable]:
        """Yield the target and the variable that is aggregated."""
        yield self.target
        if self.variable is not None:
            yield self.variable


ClauseItem = ClauseAtom | Comparison | Computation | AggregateClause


def equated(item: ClauseItem, known: Container[object]) -> tuple[Variable, Term] | None:
    """Return the variable that an equation binds, and the term it is equal to: all texts of the
    same number.

    None if the item is not an equation, if both sides are `known`, or if neither side is.
    """
    if not isinstance(item, Comparison) or item.op != "=" or item.negated:
        return None
    for target, source in ((item.left, item.right), (item.right, item.left)):
        if isinstance(source, Apply) or not (isinstance(source, str) or source in known):
            continue
        if isinstance(target, Variable) and target not in known:
            return target, source
    return None


@dataclass(frozen=True, slots=True)
class Clause:
    """`head` holds where `body` does; `rule` is the number of the rule it comes from, 0 for one the
    compiler made.
    """

    head: ClauseAtom
    body: tuple[ClauseItem, ...]
    rule: int = 0

    def atoms(self) -> Iterator[ClauseAtom]:
        """Yield the atoms of the body that are not under absence."""
        return (item for item in self.body if isinstance(item, ClauseAtom) and not item.absent)

    def all_atoms(self) -> Iterator[ClauseAtom]:
        """Yield the atoms of the body, including those under absence."""
        return (item for item in self.body if isinstance(item, ClauseAtom))

    @property
    def aggregates(self) -> bool:
        """True if the clause derives a row for each group of rows, which have to be complete
        before.
        """
        return any(isinstance(item, AggregateClause) for item in self.body)

    def bound(self) -> set[Variable]:
        """Return the named variables that get values: from atoms, or computed from bound
        variables.
        """
        bound = {variable for atom in self.atoms() for variable in atom.variables()}
        bound.update(item.target for item in self.body if isinstance(item, AggregateClause))
        left = [item for item in self.body if isinstance(item, (Computation, Comparison))]
        while left:  # mostly once or twice: a value stands behind those it is computed from
            waiting = []
            for item in left:
                target = _bound_by(item, bound)
                if target is None:
                    waiting.append(item)
                else:
                    bound.add(target)
            if len(waiting) == len(left):
                break
            left = waiting
        return bound


def _bound_by(item: ClauseItem, bound: set[Variable]) -> Variable | None:
    if isinstance(item, Computation):
        return item.target if item.target not in bound and bound.issuperset(item.inputs()) else None
    equation = equated(item, bound)
    return None if equation is None else equation[0]


@dataclass(frozen=True, slots=True)
class Program:
    """Clauses, with the relation that holds the answers and the one that takes the goal's bindings.

    `answer_columns` says for each argument of the goal which column of the answer relation holds
    it, or None where the goal's own constant does. `external` has the modes of the relations that
    plugins provide, `modes` also those of relations that depend on them.
    """

    clauses: tuple[Clause, ...]
    goal: RelationSchema
    seed: RelationSchema | None = None
    answer: RelationSchema | None = None
    answer_columns: tuple[int | None, ...] = ()
    full: frozenset[RelationSchema] = frozenset()
    external: Modes = field(default_factory=lambda: NO_MODES, hash=False)
    modes: Modes = field(default_factory=lambda: NO_MODES, hash=False)

    def heads(self) -> dict[RelationSchema, list[Clause]]:
        """Return the clauses by the relation they conclude, in order."""
        return by_head(self.clauses)


HEADS_PER_YIELD = 1000
"""Clauses whose head is read between two calls of `yield_now`: about a millisecond."""

CLAUSES_PER_YIELD = 200
"""Clauses examined between two calls of `yield_now`: about a millisecond."""

REWRITES_PER_YIELD = 2
"""Clauses rewritten between two calls of `yield_now`: a tenth of a millisecond, and some
milliseconds if their bodies are as long as they may be.
"""


def dependents(
    clauses: Iterable[Clause], sources: Iterable[RelationSchema], yield_now: YieldNow = go_on
) -> set[RelationSchema]:
    """Return the relations that depend on any of `sources`, also through absence, including
    `sources`.

    `yield_now` is called about once a millisecond.
    """
    readers: dict[RelationSchema, dict[RelationSchema, None]] = {}
    for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD):
        for atom in clause.all_atoms():
            readers.setdefault(atom.schema, {})[clause.head.schema] = None
    todo = list(sources)
    reached = set(todo)
    for schema in paced(emptied(todo), yield_now, CLAUSES_PER_YIELD):
        for reader in readers.get(schema, ()):
            if reader not in reached:
                reached.add(reader)
                todo.append(reader)
    return reached


def emptied(todo: list[T]) -> Iterator[T]:
    """Yield the last element of a list, and remove it, until the list is empty."""
    while todo:
        yield todo.pop()


def by_head(clauses: Iterable[Clause]) -> dict[RelationSchema, list[Clause]]:
    """Return the clauses by the relation they conclude, in order."""
    table: dict[RelationSchema, list[Clause]] = {}
    for clause in paced(clauses, current_yield(), HEADS_PER_YIELD):
        table.setdefault(clause.head.schema, []).append(clause)
    return table


def dependencies(
    clauses: Iterable[Clause], roots: Iterable[RelationSchema], yield_now: YieldNow = go_on
) -> set[RelationSchema]:
    """Return the relations that `roots` depend on, also through absence, including `roots`.

    `yield_now` is called about once a millisecond.
    """
    heads = by_head(paced(clauses, yield_now))
    todo = list(roots)
    reached = set(todo)
    for schema in paced(emptied(todo), yield_now, CLAUSES_PER_YIELD):
        for clause in paced(heads.get(schema, ()), yield_now, CLAUSES_PER_YIELD):
            for atom in clause.all_atoms():
                if atom.schema not in reached:
                    reached.add(atom.schema)
                    todo.append(atom.schema)
    return reached


@dataclass(frozen=True, slots=True)
class Component:
    """A strongly connected set of relations, evaluated together. `recursive` if they depend on
    themselves.
    """

    relations: frozenset[RelationSchema]
    recursive: bool


@dataclass(slots=True)
class _Visit:
    index: int
    low: int
    on_stack: bool = True
    edges: Iterator[RelationSchema] = field(default_factory=lambda: iter(()))


def components(clauses: Sequence[Clause], yield_now: YieldNow = go_on) -> list[Component]:
    """Return the strongly connected components of the dependency graph, each after those it depends
    on.

    Tarjan, "Depth-first search and linear graph algorithms" (1972), on an explicit stack. Relations
    without clauses are not listed. `yield_now` is called about once a millisecond.
    """
    graph: dict[RelationSchema, dict[RelationSchema, None]] = {}
    for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD):
        edges = graph.setdefault(clause.head.schema, {})
        edges.update((atom.schema, None) for atom in clause.all_atoms())
    visits: dict[RelationSchema, _Visit] = {}
    stack: list[RelationSchema] = []
    parts: list[Component] = []
    steps = 0
    for root in paced(graph, yield_now, CLAUSES_PER_YIELD):
        if root in visits:
            continue
        if graph.keys().isdisjoint(graph[root]):  # it depends on stored relations alone
            visits[root] = _Visit(len(visits), len(visits), on_stack=False)
            parts.append(Component(frozenset((root,)), recursive=False))
            continue
        path = [_enter(root, graph, visits, stack)]
        while path:
            steps += 1
            if not steps % CLAUSES_PER_YIELD:
                yield_now()
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
                    parts.append(_close(node, graph, visits, stack))
    return parts


def single_relations(clauses: Sequence[Clause], yield_now: YieldNow = go_on) -> set[RelationSchema]:
    """Return the relations that are components by themselves."""
    parts = (
        part.relations for part in paced(components(clauses, yield_now), yield_now, HEADS_PER_YIELD)
    )
    return {next(iter(relations)) for relations in parts if len(relations) == 1}


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


def aggregate_cycle(
    clauses: Sequence[Clause], yield_now: YieldNow = go_on
) -> list[RelationSchema] | None:
    """Return the relations that depend on themselves through an aggregate, in a fixed order; None
    if none do.
    """
    return next((cycle for cycle, _ in aggregate_cycles(clauses, yield_now)), None)


def aggregate_cycles(
    clauses: Sequence[Clause], yield_now: YieldNow = go_on
) -> Iterator[tuple[list[RelationSchema], list[Clause]]]:
    """Yield each set of relations that depend on themselves through an aggregate, in a fixed order,
    with the clauses that aggregate inside it.
    """
    by_relation = by_head(
        clause for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD) if clause.aggregates
    )
    if not by_relation:
        return
    for part in paced(components(clauses, yield_now), yield_now, CLAUSES_PER_YIELD):
        inside = [
            clause
            for schema in sorted(part.relations, key=str)
            for clause in by_relation.get(schema, ())
            if any(atom.schema in part.relations for atom in clause.atoms())
        ]
        if inside:
            yield sorted(part.relations, key=str), inside
