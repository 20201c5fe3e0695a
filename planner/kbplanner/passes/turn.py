"""Linear recursion turned to the side of the goal.

A recursive clause is *right-linear* for an adornment when its free head arguments are just passed on by the one recursive
atom: `p(x, z) :- q(x, y), p(y, z)` asked with x bound. Plain magic sets would keep all of `p(y, z)` for every y on the
way. Here only the reachable bindings are kept, and answers are taken from the base clauses at the end:

    demand(y) :- demand(x), q(x, y).        answer(z) :- demand(x), base(x, z).

For the goal itself, which has one seed, that is all. Where other clauses ask, each reached binding carries the seed
it came from; with no free argument that would only multiply bindings, so such relations stay as they are. Naughton,
Ramakrishnan, Sagiv, Ullman: "Efficient evaluation of right-, left-, and multi-linear rules" (1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kbplanner.passes.adorn import bound_args
from kbplanner.program import Clause, ClauseAtom, ClauseItem, Program, components
from kbplanner.schema import RelationSchema, Role
from kbplanner.terms import Variable


def turn(program: Program) -> Program:
    """Turn every relation of the adorned program whose recursion is right-linear throughout."""
    clauses: list[Clause] = []
    heads = program.heads()
    alone = {next(iter(part.relations)) for part in components(program.clauses) if len(part.relations) == 1}
    answered = program
    for schema, own in heads.items():
        if (
            schema not in alone
            or schema.bare in program.full
            or not _turnable(schema, own)
            or (schema != program.goal and "f" not in schema.adornment)
        ):
            clauses.extend(own)
        elif schema == program.goal:
            free = tuple(i for i, mark in enumerate(schema.adornment) if mark == "f")
            columns = tuple(free.index(i) if i in free else None for i in range(len(schema.adornment)))
            answer = replace(schema, role=Role.ANSWER, arity=len(free))
            answered = replace(program, seed=schema.demand, answer=answer, answer_columns=columns)
            clauses.extend(_turned_goal(schema, answer, own))
        else:
            clauses.extend(_turned(schema, own))
    return replace(answered, clauses=tuple(clauses))


def _turnable(schema: RelationSchema, clauses: Sequence[Clause]) -> bool:
    if "b" not in schema.adornment:
        return False
    recursive = [clause for clause in clauses if any(_calls(item, schema) for item in clause.body)]
    return bool(recursive) and all(_right_linear(schema, clause) for clause in recursive)


def _calls(item: object, schema: RelationSchema) -> bool:
    return isinstance(item, ClauseAtom) and item.schema == schema


def _right_linear(schema: RelationSchema, clause: Clause) -> bool:
    calls = [item for item in clause.body if isinstance(item, ClauseAtom) and item.schema == schema]
    if len(calls) != 1 or calls[0].absent:
        return False
    call = calls[0]
    others = [variable for item in clause.body if item is not call for variable in item.variables()]
    others += [arg for arg in bound_args(clause.head) if isinstance(arg, Variable)]
    others += [arg for arg in bound_args(call) if isinstance(arg, Variable)]
    passed: set[Variable] = set()
    for mark, arg, given in zip(schema.adornment, clause.head.args, call.args, strict=True):
        if mark == "b":
            continue
        if not isinstance(arg, Variable) or arg != given or arg in passed or arg in others:
            return False
        passed.add(arg)
    return bound_args(call) != bound_args(clause.head)


def _turned_goal(schema: RelationSchema, answer: RelationSchema, clauses: Sequence[Clause]) -> list[Clause]:
    found = []
    for clause in clauses:
        guard = ClauseAtom(schema.demand, bound_args(clause.head))
        call, rest = _split(schema, clause)
        if call is None:
            free = tuple(arg for arg, mark in zip(clause.head.args, schema.adornment, strict=True) if mark == "f")
            head = ClauseAtom(answer, free)
        else:
            head = ClauseAtom(schema.demand, bound_args(call))
        found.append(Clause(head, (guard, *rest), clause.rule))
    return found


def _turned(schema: RelationSchema, clauses: Sequence[Clause]) -> list[Clause]:
    seeds = tuple(Variable(f"seed#{i}") for i in range(schema.adornment.count("b")))
    reach = replace(schema, role=Role.REACH, arity=2 * len(seeds), source=schema.role)
    found = [Clause(ClauseAtom(reach, seeds + seeds), (ClauseAtom(schema.demand, seeds),))]
    for clause in clauses:
        guard = ClauseAtom(reach, seeds + bound_args(clause.head))
        call, rest = _split(schema, clause)
        if call is None:
            carried = iter(seeds)
            args = tuple(
                next(carried) if mark == "b" else arg for arg, mark in zip(clause.head.args, schema.adornment, strict=True)
            )
            head = ClauseAtom(schema, args)
        else:
            head = ClauseAtom(reach, seeds + bound_args(call))
        found.append(Clause(head, (guard, *rest), clause.rule))
    return found


def _split(schema: RelationSchema, clause: Clause) -> tuple[ClauseAtom | None, tuple[ClauseItem, ...]]:
    call = next((i for i in clause.body if isinstance(i, ClauseAtom) and i.schema == schema), None)
    return call, tuple(item for item in clause.body if item is not call)
