"""Propagation of the goal's bindings into the rules: the bound arguments of each derived relation.

An adornment has a letter for each argument: `b` bound, `f` free. Sideways information passing
follows the join order: an argument is bound where the head's binding, a constant or an earlier item
of the body binds it.

Before:

    cousin(?x, ?y) :- parent(?p, ?x), parent(?q, ?y), sibling(?p, ?q).
    sibling(?x, ?y) :- parent(?p, ?x), parent(?p, ?y), ?x != ?y.
    ?- cousin(ann, ?y).

After:

    cousin/2[bf](?x, ?y) :- parent/2(?p, ?x), sibling/2[bf](?p, ?q), parent/2(?q, ?y).  % rule 1
    cousin/2[bf](?a0, ?a1) :- cousin/2(?a0, ?a1).
    sibling/2[bf](?x, ?y) :- parent/2(?p, ?x), parent/2(?p, ?y), ?x != ?y.  % rule 2
    sibling/2[bf](?a0, ?a1) :- sibling/2(?a0, ?a1).

Where a recursion passes an argument through unchanged, and another argument is bound too, the first
is left free: `not reach(?a, ?x)` for many x is one search from each a, not one for each x. Where an
atom would be asked for all pairs of values of two unconnected parts of a body, the others are left
free instead, because a binding saves nothing there. A relation asked in a more general and a more
special way is asked in the general way only: its answers contain the special ones. The best value
of a group is always free.

A relation that a plugin provides is asked in one of its modes (`ir/modes.py`), and one that depends
on it with the arguments bound that it needs for that (`ir/calls.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from kbplanner.ir.modes import best_mode, permitted
from kbplanner.ir.program import (
    REWRITES_PER_YIELD,
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    Program,
    equated,
)
from kbplanner.ir.schema import BEST, RelationSchema
from kbplanner.ir.terms import Variable
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.passes.order import Statistics, order_items

MAX_ADORNMENTS = 16
"""Ways to ask one relation; more are made one that leaves free what any of them does. Each rule can
free another argument of a call, so that there could be 2 to the number of arguments.
"""


def adorn(
    program: Program, adornment: str, statistics: Statistics, yield_now: YieldNow = go_on
) -> Program:
    """Adorn a program for its goal asked with `adornment`; relations in `program.full` are asked
    with nothing bound.

    The new goal may be more general than the original, where the rules ask it in a more general way
    themselves. `yield_now` is called about once a millisecond.
    """
    heads = _Heads(program)
    adornment = heads.computed_free(program.goal, adornment)
    general: dict[RelationSchema, list[str]] = {
        schema: ["f" * schema.arity] for schema in program.full
    }
    while True:
        clauses, asked = _propagate(program, adornment, heads, general, statistics, yield_now)
        wider = {schema: _most_general(adornments) for schema, adornments in asked.items()}
        if all(len(wider[schema]) == len(adornments) for schema, adornments in asked.items()):
            goal = program.goal.adorned(asked[program.goal][0])
            return replace(program, clauses=tuple(clauses), goal=goal)
        for schema, adornments in wider.items():
            general[schema] = _most_general(adornments + general.get(schema, []))


def bound_args(atom: ClauseAtom) -> tuple[Variable | str, ...]:
    """Return the arguments of an adorned atom that its adornment marks as bound."""
    return tuple(
        arg for arg, mark in zip(atom.args, atom.schema.adornment, strict=True) if mark == "b"
    )


def _propagate(
    program: Program,
    adornment: str,
    heads: _Heads,
    general: dict[RelationSchema, list[str]],
    statistics: Statistics,
    yield_now: YieldNow,
) -> tuple[list[Clause], dict[RelationSchema, list[str]]]:
    clauses: list[Clause] = []
    goal, modes = program.goal, program.modes
    first = _goal_marks(program, adornment)
    asked: dict[RelationSchema, list[str]] = {goal: [_general_form(goal, first, general)]}
    todo = deque([(goal, asked[goal][0])])

    def asked_clauses() -> Iterator[tuple[RelationSchema, Clause]]:
        while todo:
            schema, marks = todo.popleft()
            adorned = schema.adorned(marks)
            for clause in heads.clauses[schema]:
                yield adorned, clause

    for adorned, clause in paced(asked_clauses(), yield_now, REWRITES_PER_YIELD):
        head = ClauseAtom(adorned, clause.head.args)
        head_variables = {arg for arg in bound_args(head) if isinstance(arg, Variable)}
        known = set(head_variables)
        body: list[ClauseItem] = []
        for item in (
            clause.body
            if clause.aggregates
            else order_items(clause.body, known, statistics, modes=modes)
        ):
            if isinstance(item, ClauseAtom):
                schema = item.schema
                if schema in heads.clauses:
                    requested = _requested_marks(item, head_variables, known, body, heads)
                    if schema in modes:
                        requested = _permitted_marks(program, item, known, requested)
                    requested = heads.computed_free(schema, requested)
                    requested = _general_form(schema, requested, general)
                    before = asked.setdefault(schema, [])
                    if requested not in before and len(before) >= MAX_ADORNMENTS:
                        requested = _one_form(program, schema, [*before, requested])
                        general.setdefault(schema, []).insert(0, requested)
                    if requested not in before:
                        before.append(requested)
                        todo.append((schema, requested))
                    asked_schema = schema.adorned(requested)
                    body.append(ClauseAtom(asked_schema, item.args, item.absent))
                else:
                    body.append(item)
                if not item.absent:
                    known.update(item.variables())
            else:
                body.append(item)
                if isinstance(item, Computation):
                    known.add(item.target)
                elif (equation := equated(item, known)) is not None:
                    known.add(equation[0])
        clauses.append(Clause(head, tuple(body), clause.rule))
    return clauses, asked


def _goal_marks(program: Program, adornment: str) -> str:
    """Return the marks to ask the goal with: of an external relation, a mode of it."""
    if program.goal not in program.external:
        return adornment
    return best_mode(program.external[program.goal], adornment) or adornment


def _permitted_marks(
    program: Program, item: ClauseAtom, known: set[Variable], requested: str
) -> str:
    """Return marks that the modes of an atom's relation permit: of an external one, a mode of it,
    so that its demand has the columns of the inputs.
    """
    marks = "".join("b" if isinstance(arg, str) or arg in known else "f" for arg in item.args)
    if item.schema in program.external:
        return best_mode(program.external[item.schema], marks) or marks
    return requested if permitted(program.modes, item.schema, requested) else marks


def _requested_marks(
    item: ClauseAtom,
    head_variables: set[Variable],
    known: set[Variable],
    body: list[ClauseItem],
    heads: _Heads,
) -> str:
    marks = ["b" if isinstance(arg, str) or arg in known else "f" for arg in item.args]
    joined = [
        i
        for i, arg in enumerate(item.args)
        if isinstance(arg, Variable) and arg in known and arg not in head_variables
    ]
    unchanged = heads.passed_on(item.schema) if joined else ()
    passed_on = [index for index in joined if index in unchanged]
    if len(passed_on) < marks.count("b"):
        others = [index for index in joined if index not in passed_on]
        if (
            len(joined) == marks.count("b")
            and passed_on
            and _is_product(item, passed_on, others, body)
        ):
            passed_on = others
        for index in passed_on:
            marks[index] = "f"
    return "".join(marks)


def _is_product(
    item: ClauseAtom, first: list[int], others: list[int], body: list[ClauseItem]
) -> bool:
    """Return True if no item before `item` connects its arguments at indexes `first` with those at
    `others`.
    """
    reached = {item.args[index] for index in first}
    is_growing = True
    while is_growing:
        is_growing = False
        for other in body:
            variables = (
                set(other.variables())
                if not (isinstance(other, ClauseAtom) and other.absent)
                else set()
            )
            if variables & reached and not variables <= reached:
                reached |= variables
                is_growing = True
    return not any(item.args[index] in reached for index in others)


class _Heads:
    """The clauses of a program by the relation they conclude, and what each call of a relation
    needs to know about all of its clauses.
    """

    def __init__(self, program: Program) -> None:
        self.clauses = program.heads()
        self._passed_on: dict[RelationSchema, frozenset[int]] = {}
        self._computed: dict[RelationSchema, frozenset[int]] = {}

    def computed_free(self, schema: RelationSchema, marks: str) -> str:
        """Return marks with aggregates and best values free: they are computed, not looked up; a
        binding is compared afterwards.
        """
        if schema.role in BEST:
            return marks[:-1] + "f"
        computed = self._computed.get(schema)
        if computed is None:
            computed = self._computed[schema] = _aggregated(self.clauses.get(schema, []))
        if not computed:
            return marks
        return "".join("f" if i in computed else mark for i, mark in enumerate(marks))

    def passed_on(self, schema: RelationSchema) -> frozenset[int]:
        """Return the arguments that each recursive call of a relation passes on from the head; none
        if the relation is not recursive.
        """
        indexes = self._passed_on.get(schema)
        if indexes is None:
            calls = [
                (clause.head, item)
                for clause in self.clauses[schema]
                for item in clause.all_atoms()
                if item.schema.bare == schema.bare
            ]
            indexes = self._passed_on[schema] = frozenset(
                index
                for index in range(schema.arity if calls else 0)
                if all(
                    isinstance(head.args[index], Variable) and call.args[index] == head.args[index]
                    for head, call in calls
                )
            )
        return indexes


def _aggregated(clauses: list[Clause]) -> frozenset[int]:
    """Return the arguments of the head that clauses aggregate."""
    targets = {
        item.target
        for clause in clauses
        for item in clause.body
        if isinstance(item, AggregateClause)
    }
    if not targets:
        return frozenset()
    return frozenset(i for i, arg in enumerate(clauses[0].head.args) if arg in targets)


def _one_form(program: Program, schema: RelationSchema, forms: list[str]) -> str:
    """Return one form in which a relation can be asked in place of the last of several ones: with
    every argument free that is free in one of them, if the modes of the relation permit that.
    """
    free = "".join("f" if "f" in marks else "b" for marks in zip(*forms, strict=True))
    if permitted(program.modes, schema, free):
        return free
    return best_mode(program.modes[schema], forms[-1]) or forms[-1]


def _general_form(
    schema: RelationSchema, adornment: str, general: dict[RelationSchema, list[str]]
) -> str:
    for candidate in general.get(schema, ()):
        if _covers(candidate, adornment):
            return candidate
    return adornment


def _covers(general: str, special: str) -> bool:
    return all(g == "f" or s == "b" for g, s in zip(general, special, strict=True))


def _most_general(adornments: list[str]) -> list[str]:
    return [a for a in adornments if not any(b != a and _covers(b, a) for b in adornments)]
