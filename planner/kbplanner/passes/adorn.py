"""Push what the goal binds into the rules: which arguments of each derived relation are bound when it is asked.

Sideways information passing follows the join order: an argument is bound where the head's binding, a constant or an
earlier item of the body binds it. Where a recursion hands an argument through unchanged, and another argument is bound too,
the first is left free: `not reach(?a, ?x)` for many x is one search from each a, not one for each x. Where it is asked for
all pairs of what two unconnected parts of a body bind, the others are left free instead: asking spares nothing there.
One relation asked in a more general and a more special way is asked in the general way only: its answers contain the
special ones.
"""

from __future__ import annotations

from dataclasses import replace

from kbplanner.ir.program import (
    Aggregation,
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    Program,
    equated,
)
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Variable
from kbplanner.passes.order import Statistics, order_items


def adorn(program: Program, adornment: str, statistics: Statistics) -> Program:
    """Adorn a program for its goal asked with `adornment`; relations in `program.full` are asked with nothing bound.

    The new goal may be more general than was asked, where the rules ask it in a more general way themselves.
    """
    heads = program.heads()
    general: dict[RelationSchema, list[str]] = {schema: ["f" * schema.arity] for schema in program.full}
    while True:
        clauses, asked = _spread(program.goal, adornment, heads, general, statistics)
        wider = {schema: _most_general(found) for schema, found in asked.items()}
        if all(len(wider[schema]) == len(found) for schema, found in asked.items()):
            goal = program.goal.adorned(_canonical(program.goal, adornment, general))
            return replace(program, clauses=tuple(clauses), goal=goal)
        for schema, found in wider.items():
            general[schema] = _most_general(found + general.get(schema, []))


def bound_args(atom: ClauseAtom) -> tuple[Variable | str, ...]:
    """The arguments of an adorned atom that its adornment says are bound."""
    return tuple(arg for arg, mark in zip(atom.args, atom.schema.adornment, strict=True) if mark == "b")


def _spread(
    goal: RelationSchema,
    adornment: str,
    heads: dict[RelationSchema, list[Clause]],
    general: dict[RelationSchema, list[str]],
    statistics: Statistics,
) -> tuple[list[Clause], dict[RelationSchema, list[str]]]:
    clauses: list[Clause] = []
    asked: dict[RelationSchema, list[str]] = {goal: [_canonical(goal, adornment, general)]}
    todo = [(goal, asked[goal][0])]
    while todo:
        schema, marks = todo.pop(0)
        for clause in heads[schema]:
            head = replace(clause.head, schema=schema.adorned(marks))
            given = {arg for arg in bound_args(head) if isinstance(arg, Variable)}
            known = set(given)
            body: list[ClauseItem] = []
            for item in clause.body if clause.aggregates else order_items(clause.body, known, statistics):
                if isinstance(item, ClauseAtom):
                    if item.schema in heads:
                        wanted = _wanted(item, given, known, body, heads[item.schema])
                        wanted = _grouped(wanted, heads[item.schema])
                        wanted = _canonical(item.schema, wanted, general)
                        if wanted not in asked.setdefault(item.schema, []):
                            asked[item.schema].append(wanted)
                            todo.append((item.schema, wanted))
                        body.append(replace(item, schema=item.schema.adorned(wanted)))
                    else:
                        body.append(item)
                    if not item.absent:
                        known.update(item.variables())
                else:
                    body.append(item)
                    if isinstance(item, Computation):
                        known.add(item.target)
                    elif (given_by := equated(item, known)) is not None:
                        known.add(given_by[0])
            clauses.append(Clause(head, tuple(body), clause.rule))
    return clauses, asked


def _wanted(
    item: ClauseAtom, given: set[Variable], known: set[Variable], body: list[ClauseItem], clauses: list[Clause]
) -> str:
    marks = ["b" if isinstance(arg, str) or arg in known else "f" for arg in item.args]
    many = [i for i, arg in enumerate(item.args) if isinstance(arg, Variable) and arg in known and arg not in given]
    through = [place for place in many if _handed_through(item.schema, clauses, place)]
    if len(through) < marks.count("b"):
        others = [place for place in many if place not in through]
        if len(many) == marks.count("b") and through and _is_product(item, through, others, body):
            through = others
        for place in through:
            marks[place] = "f"
    return "".join(marks)


def _is_product(item: ClauseAtom, some: list[int], others: list[int], body: list[ClauseItem]) -> bool:
    """Whether no item before `item` connects its arguments in `some` places with those in `others`."""
    reached = {item.args[place] for place in some}
    grows = True
    while grows:
        grows = False
        for other in body:
            found = set(other.variables()) if not (isinstance(other, ClauseAtom) and other.absent) else set()
            if found & reached and not found <= reached:
                reached |= found
                grows = True
    return not any(item.args[place] in reached for place in others)


def _grouped(marks: str, clauses: list[Clause]) -> str:
    """Aggregates are worked out, not looked up: they are free; a binding is compared afterwards."""
    targets = {item.target for clause in clauses for item in clause.body if isinstance(item, Aggregation)}
    if not targets:
        return marks
    return "".join("f" if arg in targets else mark for mark, arg in zip(marks, clauses[0].head.args, strict=True))


def _handed_through(schema: RelationSchema, clauses: list[Clause], place: int) -> bool:
    """Whether the relation is recursive and each recursive call has the head's own variable in this place."""
    calls = [
        (clause.head, item)
        for clause in clauses
        for item in clause.body
        if isinstance(item, ClauseAtom) and item.schema.bare == schema.bare
    ]
    return bool(calls) and all(
        isinstance(head.args[place], Variable) and call.args[place] == head.args[place] for head, call in calls
    )


def _canonical(schema: RelationSchema, adornment: str, general: dict[RelationSchema, list[str]]) -> str:
    for candidate in general.get(schema, ()):
        if _covers(candidate, adornment):
            return candidate
    return adornment


def _covers(general: str, special: str) -> bool:
    return all(g == "f" or s == "b" for g, s in zip(general, special, strict=True))


def _most_general(adornments: list[str]) -> list[str]:
    return [a for a in adornments if not any(b != a and _covers(b, a) for b in adornments)]
