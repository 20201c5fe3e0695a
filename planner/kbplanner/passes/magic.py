"""Magic sets: derivation of only the rows that the goal demands.

Magic sets (Bancilhon, Maier, Sagiv, Ullman 1986): each clause is guarded by the demand for its
head, and demand for a body atom arises from the demand for the head and the items before the atom.

Before:

    same(?x, ?y) :- flat(?x, ?y).
    same(?x, ?y) :- up(?x, ?a), same(?a, ?b), down(?b, ?y).
    ?- same(ann, ?y).

After:

    same/2[bf](?x, ?y) :- demand same/2[bf](?x), flat/2(?x, ?y).  % rule 1
    demand same/2[bf](?a) :- demand same/2[bf](?x), up/2(?x, ?a).
    same/2[bf](?x, ?y) :- demand same/2[bf](?x), up/2(?x, ?a), same/2[bf](?a, ?b), down/2(?b, ?y).  % rule 2
    same/2[bf](?a0, ?a1) :- demand same/2[bf](?a0), same/2(?a0, ?a1).

Clauses that an earlier pass has guarded keep their guard. Demand for a relation used under absence
is derived in the same way; where that would make demand recursive through absence, the `stratify`
pass computes the relation in full and this pass leaves it unguarded.

A relation that a plugin provides is read as the rows that are known, and demand for it is what the
plugin has to be asked: no clause reads that demand, so that it adds no recursion.
"""  # noqa: W505  a clause of the example

from __future__ import annotations

from dataclasses import replace

from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    Clause,
    ClauseAtom,
    ClauseItem,
    Program,
    components,
)
from kbplanner.ir.schema import BEST, Role
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.passes.adorn import bound_args

GUARDS = (Role.DEMAND, Role.REACH)


def magic(program: Program, yield_now: YieldNow = go_on) -> Program:
    """Guard the clauses of an adorned program, and add the clauses that derive demand.

    `yield_now` is called about once a millisecond.
    """
    adorned = {
        clause.head.schema for clause in program.clauses if clause.head.schema.role in _CONCLUSIONS
    }
    clauses: dict[Clause, None] = {}
    for clause in paced(program.clauses, yield_now, REWRITES_PER_YIELD):
        external = clause.head.schema.bare in program.external
        if external and clause.head.schema != program.goal:
            continue
        body = clause.body if external else _guarded_body(clause, program)
        before: list[ClauseItem] = []
        for item in body:
            if (
                isinstance(item, ClauseAtom)
                and item.schema in adorned
                and item.schema.bare not in program.full
            ):
                demand = ClauseAtom(item.schema.demand, bound_args(item))
                if demand not in before:
                    clauses[Clause(demand, tuple(before))] = None
                if item.schema.bare in program.external:
                    item = replace(item, schema=item.schema.stored)
            before.append(item)
        if not clause.aggregates:
            clause = Clause(clause.head, tuple(before), clause.rule)
        clauses[clause] = None
    if program.answer is not None:
        return replace(program, clauses=tuple(clauses))
    seed = None if program.goal.bare in program.full else program.goal.demand
    columns = tuple(range(program.goal.arity))
    return replace(
        program, clauses=tuple(clauses), seed=seed, answer=program.goal, answer_columns=columns
    )


def _guarded_body(clause: Clause, program: Program) -> tuple[ClauseItem, ...]:
    """Return the body of a clause with a guard, unless it has one or derives the relation in full.

    A clause of the answer needs none: reached rows came from the demand. A clause with aggregates
    derives all groups; demand for its head is demand for the bindings it reads.
    """
    body, schema = clause.body, clause.head.schema
    is_guarded = bool(body) and isinstance(body[0], ClauseAtom) and body[0].schema.role in GUARDS
    if is_guarded or schema.role is Role.ANSWER or schema.bare in program.full:
        return body
    return ClauseAtom(schema.demand, bound_args(clause.head)), *body


def demand_can_cost_more(program: Program, yield_now: YieldNow = go_on) -> bool:
    """Return True if demand depends on the answers of a non-linear recursion: it can then cost more
    than it saves.

    In such a component each new answer makes new demand, which derives new answers, so that the
    guarded rules end up deriving most of the relation one binding at a time. Linear recursion does
    not have this form, nor do the relations that the `linear_recursion` pass rewrote. `program` is
    the result of the `magic` pass. `yield_now` is called about once a millisecond.
    """
    demanded = {
        schema: part.relations
        for part in components(program.clauses, yield_now)
        if part.recursive and any(schema.role in GUARDS for schema in part.relations)
        for schema in part.relations
    }
    for clause in paced(program.clauses, yield_now, CLAUSES_PER_YIELD):
        head = clause.head.schema
        if head in demanded and head.role not in GUARDS:
            calls = [
                atom
                for atom in clause.atoms()
                if atom.schema in demanded[head] and atom.schema.role not in GUARDS
            ]
            if len(calls) > 1:
                return True
    return False


_CONCLUSIONS = (Role.DERIVED, Role.STEP, *BEST, Role.UNDENIED, Role.BINDINGS, Role.GROUPS)
