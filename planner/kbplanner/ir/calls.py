"""Modes of derived relations: which arguments rules need bound to call the predicates of plugins.

In the example, `price/2` comes from a plugin that needs the first argument. A goal `cheap(?x)` has
nothing to call the plugin with, so that `cheap` needs its argument too. `offer` can be asked in any
way, since `item` binds the argument of `cheap`.

Before:

    cheap(?x) :- price(?x, ?p), ?p < 10.
    offer(?x) :- cheap(?x), item(?x).
    ?- offer(?x).

After:

    price/2: bf
    cheap/1: b

The modes of a relation are the smallest sets of arguments for which every clause has an order in
which each atom binds what the next one needs. They are the greatest fixpoint: recursive calls are
permitted until a clause shows that they are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

from kbplanner.errors import EngineFault, UnboundArgument
from kbplanner.ir.modes import Modes, missing, permits, permitted
from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    by_head,
    components,
    dependents,
    equated,
)
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Term, Variable
from kbplanner.pacing import YieldNow, go_on, paced

T = TypeVar("T")

Call = tuple[RelationSchema, str]
"""A relation, and the arguments with which it is asked."""

MAX_ENUMERATED = 8
"""Relations with more arguments get one mode: the first that is found by freeing one argument after
the other.
"""


def infer_modes(clauses: Sequence[Clause], external: Modes, yield_now: YieldNow = go_on) -> Modes:
    """Return the modes of the external relations and of those that depend on them.

    Relations that can be asked in any way are left out. `yield_now` is called about once a
    millisecond.
    """
    heads = by_head(clauses)
    depending = dependents(clauses, external, yield_now).difference(external)
    own = [clause for clause in clauses if clause.head.schema in depending]
    readers: dict[RelationSchema, set[RelationSchema]] = {}
    for clause in paced(own, yield_now, CLAUSES_PER_YIELD):
        for atom in clause.all_atoms():
            readers.setdefault(atom.schema, set()).add(clause.head.schema)
    # Callees before callers, so that a chain is done at once; then those whose callees have
    # changed.
    parts = components(own, yield_now)
    todo = deque(schema for part in parts for schema in sorted(part.relations, key=str))
    modes: dict[RelationSchema, tuple[str, ...]] = {
        schema: ("f" * schema.arity,) for schema in todo
    }
    modes.update(external)
    waiting = set(todo)
    while todo:
        schema = todo.popleft()
        waiting.remove(schema)
        smallest = tuple(_smallest(schema, heads[schema], modes, yield_now))
        if smallest != modes[schema]:
            modes[schema] = smallest
            changed = readers.get(schema, set()) - waiting
            todo.extend(sorted(changed, key=str))
            waiting |= changed
    return {
        schema: own
        for schema, own in modes.items()
        if schema in external or own != ("f" * schema.arity,)
    }


def marks_of(atom: ClauseAtom, known: Container[Variable]) -> str:
    """Return `b` for each argument of an atom that is a constant or known, `f` for the others."""
    return "".join("b" if isinstance(arg, str) or arg in known else "f" for arg in atom.args)


def check_callable(
    clauses: Iterable[Clause],
    goal: RelationSchema,
    marks: str,
    modes: Modes,
    external: Iterable[RelationSchema],
    yield_now: YieldNow = go_on,
) -> None:
    """Raise UnboundArgument if a relation cannot be asked with these arguments bound.

    The error names the external predicate and the argument that nothing binds. `yield_now` is
    called about once a millisecond.
    """
    if not permitted(modes, goal, marks):
        heads = by_head(clauses)
        error = _blocked(heads, goal, marks, modes, frozenset(external), yield_now)
        raise error or EngineFault(f"{goal} cannot be asked with {marks}, for no reason")


def blocked_rules(
    clauses: Sequence[Clause],
    modes: Modes,
    external: Iterable[RelationSchema],
    yield_now: YieldNow = go_on,
) -> Iterator[tuple[int, UnboundArgument]]:
    """Yield the number of the rule of each clause that has no order even if all of its head is
    bound, and the error of the call that is to blame.

    Clauses that only call relations of such clauses are not reported. `yield_now` is called about
    once a millisecond.
    """
    heads = by_head(clauses)
    callable_modes = {schema: own for schema, own in modes.items() if own}
    errors: dict[Call, UnboundArgument | None] = {}
    for clause in paced(clauses, yield_now, REWRITES_PER_YIELD):
        marks = "b" * clause.head.schema.arity
        call = stuck(clause, marks, callable_modes) if clause.rule else None
        if call is not None:
            atom, own = call
            if atom.schema in external:
                yield clause.rule, unbound(atom, own, modes, clause.rule)
            else:
                if (atom.schema, own) not in errors:
                    errors[atom.schema, own] = _blocked(
                        heads, atom.schema, own, modes, frozenset(external), yield_now
                    )
                error = errors[atom.schema, own]
                if error is not None:
                    yield clause.rule, error


def unbound(
    atom: ClauseAtom, marks: str, modes: Modes, rule: int = 0, named: bool = True
) -> UnboundArgument:
    """Return the error for an atom of an external relation with too few arguments bound.

    `rule` is the number of the rule whose body it is in; 0 for a goal.
    """
    indexes = missing(modes[atom.schema], marks)
    variables = [str(atom.args[index]) for index in indexes] if named else []
    return UnboundArgument(
        str(atom.schema.stored), [i + 1 for i in indexes], variables, modes[atom.schema], rule
    )


def stuck(
    clause: Clause, marks: str, modes: Modes, assumed: Container[Call] = ()
) -> tuple[ClauseAtom, str] | None:
    """Return the first atom that no order of a clause's body can ask, with its bound arguments.

    None if there is an order. `marks` are those of the head; calls that are `assumed` are taken as
    permitted.
    """
    targets = {item.target for item in clause.body if isinstance(item, AggregateClause)}
    known = {
        arg
        for arg, mark in zip(clause.head.args, marks, strict=True)
        if mark == "b" and isinstance(arg, Variable) and arg not in targets
    }
    left = list(clause.body)
    while True:
        ready = [item for item in left if _is_ready(item, known, modes, assumed)]
        if not ready:
            break
        for item in ready:
            known.update(_bound_by(item, known))
        done = set(map(id, ready))
        left = [item for item in left if id(item) not in done]
    for item in left:
        if isinstance(item, ClauseAtom):
            own = marks_of(item, known)
            if not permitted(modes, item.schema, own) and (item.schema, own) not in assumed:
                return item, own
    return None


def _is_ready(
    item: ClauseItem, known: set[Variable], modes: Modes, assumed: Container[Call]
) -> bool:
    if isinstance(item, ClauseAtom):
        marks = marks_of(item, known)
        return permitted(modes, item.schema, marks) or (item.schema, marks) in assumed
    if isinstance(item, Computation):
        return known.issuperset(item.inputs())
    if isinstance(item, AggregateClause):
        return True
    return equated(item, known) is not None or known.issuperset(item.variables())


def _bound_by(item: ClauseItem, known: set[Variable]) -> Iterator[Variable]:
    if isinstance(item, ClauseAtom):
        if not item.absent:
            yield from item.variables()
    elif isinstance(item, (Computation, AggregateClause)):
        yield item.target
    elif (equation := equated(item, known)) is not None:
        yield equation[0]


def _smallest(
    schema: RelationSchema, clauses: Sequence[Clause], modes: Modes, yield_now: YieldNow
) -> Iterator[str]:
    """Yield the smallest sets of arguments with which every clause has an order, as modes."""

    def has_order(marks: str) -> bool:
        yield_now()
        return all(
            stuck(clause, marks, modes) is None
            for clause in paced(clauses, yield_now, REWRITES_PER_YIELD)
        )

    arity = schema.arity
    if arity > MAX_ENUMERATED:
        marks = "b" * arity
        if has_order(marks):
            for index in range(arity):
                freed = marks[:index] + "f" + marks[index + 1 :]
                marks = freed if has_order(freed) else marks
            yield marks
        return
    smallest: list[str] = []
    for size in range(arity + 1):
        for bound in combinations(range(arity), size):
            marks = "".join("b" if index in bound else "f" for index in range(arity))
            if not any(permits(mode, marks) for mode in smallest) and has_order(marks):
                smallest.append(marks)
                yield marks


def _blocked(
    heads: Mapping[RelationSchema, Sequence[Clause]],
    schema: RelationSchema,
    marks: str,
    modes: Modes,
    external: frozenset[RelationSchema],
    yield_now: YieldNow,
) -> UnboundArgument | None:
    """Return the error of the external atom because of which a relation cannot be asked.

    The calls that led to a clause are taken as permitted, so that the reason is not the recursion
    itself.
    """
    if schema in external:
        whole: tuple[Term, ...] = tuple(Variable(f"a{i}") for i in range(schema.arity))
        return unbound(ClauseAtom(schema, whole), marks, modes, named=False)
    visited = {(schema, marks)}
    path = [(marks, deque(heads.get(schema, ())))]
    for marks, clauses in paced(_last(path), yield_now, REWRITES_PER_YIELD):
        call = stuck(clauses[0], marks, modes, visited) if clauses else None
        if call is not None:
            atom, own = call
            if atom.schema in external:
                return unbound(atom, own, modes, clauses[0].rule)
            visited.add((atom.schema, own))
            path.append((own, deque(heads.get(atom.schema, ()))))
        elif clauses:
            clauses.popleft()
        else:
            path.pop()
    return None


def _last(path: Sequence[T]) -> Iterator[T]:
    """Yield the last element of a list, which the caller changes, until the list is empty."""
    while path:
        yield path[-1]
