"""Rewriting of linear recursion for the binding of the goal.

A recursive clause is *right-linear* for an adornment when its free head arguments are passed on
unchanged by the one recursive atom: `p(x, z) :- q(x, y), p(y, z)` asked with x bound. Plain magic
sets would store all of `p(y, z)` for every y on the way. Here only the reachable bindings are
stored, and answers are taken from the base clauses at the end:

    demand(y) :- demand(x), q(x, y).        answer(z) :- demand(x), base(x, z).

and where `q` is a base clause as well, as in a plain closure, one traversal does both:

    reach(y) :- demand(x), q(x, y).         reach(z) :- reach(y), q(y, z).          answer(z) :- reach(z).

The mirror image is *left-linear*: the recursive atom takes over the bound head arguments unchanged,
as in `p(x, z) :- p(x, y), q(y, z)` asked with x bound. There the answers themselves are what is
reached, and need not carry the binding:

    answer(z) :- demand(x), base(x, z).     answer(z) :- answer(y), q(y, z).

For the goal itself, which has one seed, this is enough. Where other clauses call a right-linear
relation, each reached binding carries the seed it came from. Without a free argument that would
only multiply bindings, so such relations are not rewritten. Naughton, Ramakrishnan, Sagiv, Ullman:
"Efficient evaluation of right-, left-, and multi-linear rules" (1989).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kbplanner.ir.program import Clause, ClauseAtom, ClauseItem, Program, components
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Term, Variable, numbered_variables
from kbplanner.passes.adorn import bound_args


def turn(program: Program) -> Program:
    """Rewrite every relation of the adorned program whose recursive clauses are all right-linear."""
    clauses: list[Clause] = []
    heads = program.heads()
    alone = {
        next(iter(part.relations))
        for part in components(program.clauses)
        if len(part.relations) == 1
    }
    answered = program
    for schema, own in heads.items():
        by_itself = schema in alone and schema.bare not in program.full and "b" in schema.adornment
        right = by_itself and _throughout(_right_linear, schema, own)
        left = (
            by_itself
            and not right
            and "f" in schema.adornment
            and _throughout(_left_linear, schema, own)
        )
        if schema == program.goal and (right or left):
            free = tuple(i for i, mark in enumerate(schema.adornment) if mark == "f")
            columns = tuple(
                free.index(i) if i in free else None for i in range(len(schema.adornment))
            )
            answer = replace(schema, role=Role.ANSWER, arity=len(free))
            answered = replace(program, seed=schema.demand, answer=answer, answer_columns=columns)
            clauses.extend((_turned_goal if right else _reached_goal)(schema, answer, own))
        elif right and "f" in schema.adornment:
            clauses.extend(_turned(schema, own))
        else:
            clauses.extend(own)
    return replace(answered, clauses=tuple(clauses))


def _throughout(
    form: Callable[[RelationSchema, Clause], bool],
    schema: RelationSchema,
    clauses: Sequence[Clause],
) -> bool:
    """Return True if there are recursive clauses, all of this form."""
    recursive = [clause for clause in clauses if any(_calls(item, schema) for item in clause.body)]
    return bool(recursive) and all(form(schema, clause) for clause in recursive)


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
    for mark, arg, passed_arg in zip(schema.adornment, clause.head.args, call.args, strict=True):
        if mark == "b":
            continue
        if not isinstance(arg, Variable) or arg != passed_arg or arg in passed or arg in others:
            return False
        passed.add(arg)
    return bound_args(call) != bound_args(clause.head)


def _left_linear(schema: RelationSchema, clause: Clause) -> bool:
    calls = [item for item in clause.body if isinstance(item, ClauseAtom) and item.schema == schema]
    bound = bound_args(clause.head)
    return (
        len(calls) == 1
        and not calls[0].absent
        and bound_args(calls[0]) == bound
        and all(isinstance(arg, Variable) for arg in bound)
        and len(set(bound)) == len(bound)
    )


def _reached_goal(
    schema: RelationSchema, answer: RelationSchema, clauses: Sequence[Clause]
) -> list[Clause]:
    rewritten = []
    for clause in clauses:
        bound = bound_args(clause.head)
        guard = ClauseAtom(schema.demand, bound)
        call, rest = _split(schema, clause)
        head = ClauseAtom(answer, _free_args(schema, clause.head))
        if call is None:
            rewritten.append(Clause(head, (guard, *rest), clause.rule))
            continue
        reached = ClauseAtom(answer, _free_args(schema, call))
        used = {variable for item in (head, reached, *rest) for variable in item.variables()}
        body = (reached, *rest) if used.isdisjoint(bound) else (guard, reached, *rest)
        rewritten.append(Clause(head, body, clause.rule))
    return rewritten


def _free_args(schema: RelationSchema, atom: ClauseAtom) -> tuple[Term, ...]:
    return tuple(arg for arg, mark in zip(atom.args, schema.adornment, strict=True) if mark == "f")


def _turned_goal(
    schema: RelationSchema, answer: RelationSchema, clauses: Sequence[Clause]
) -> list[Clause]:
    once = _walked_once(schema, answer, clauses)
    if once is not None:
        return once
    rewritten = []
    for clause in clauses:
        guard = ClauseAtom(schema.demand, bound_args(clause.head))
        call, rest = _split(schema, clause)
        if call is None:
            head = ClauseAtom(answer, _free_args(schema, clause.head))
        else:
            head = ClauseAtom(schema.demand, bound_args(call))
        rewritten.append(Clause(head, (guard, *rest), clause.rule))
    return rewritten


def _walked_once(
    schema: RelationSchema, answer: RelationSchema, clauses: Sequence[Clause]
) -> list[Clause] | None:
    """Return clauses for a relation whose steps are base clauses too: reached bindings are answers
    themselves.
    """
    steps = [clause for clause in clauses if _split(schema, clause)[0] is not None]
    bases = [clause for clause in clauses if _split(schema, clause)[0] is None]
    rewritten: list[Clause] = []
    reach = replace(schema, role=Role.REACH, arity=answer.arity, source=schema.role)
    for clause in steps:
        call, rest = _split(schema, clause)
        if call is None or schema.adornment.count("b") != answer.arity:
            return None
        start, end = bound_args(clause.head), bound_args(call)
        shape = _shape(start, end, rest)
        twin = next(
            (
                b
                for b in bases
                if _shape(bound_args(b.head), _free_args(schema, b.head), b.body) == shape
            ),
            None,
        )
        if twin is None:
            return None
        bases.remove(twin)
        for guard in (ClauseAtom(schema.demand, start), ClauseAtom(reach, start)):
            rewritten.append(Clause(ClauseAtom(reach, end), (guard, *rest), clause.rule))
    whole = numbered_variables(answer.arity)
    rewritten.append(Clause(ClauseAtom(answer, whole), (ClauseAtom(reach, whole),), steps[0].rule))
    for clause in bases:
        for start_from in (schema.demand, reach):
            body = (ClauseAtom(start_from, bound_args(clause.head)), *clause.body)
            rewritten.append(
                Clause(ClauseAtom(answer, _free_args(schema, clause.head)), body, clause.rule)
            )
    return rewritten


def _shape(
    start: Sequence[Term], end: Sequence[Term], body: Sequence[ClauseItem]
) -> tuple[object, ...]:
    """Return a key for what a clause says from `start` to `end`, independent of variable names."""
    names: dict[Variable, Variable] = {}

    def name(term: Term) -> Term:
        if not isinstance(term, Variable) or term.anonymous:
            return term
        return names.setdefault(term, Variable(f"v{len(names)}"))

    shape: list[object] = [tuple(map(name, start)), tuple(map(name, end))]
    for item in body:
        if not isinstance(item, ClauseAtom):
            return (*shape, object())  # tests are not compared: such a clause equals no other
        shape.append((item.schema, item.absent, tuple(map(name, item.args))))
    return tuple(shape)


def _turned(schema: RelationSchema, clauses: Sequence[Clause]) -> list[Clause]:
    seeds = tuple(Variable(f"seed#{i}") for i in range(schema.adornment.count("b")))
    reach = replace(schema, role=Role.REACH, arity=2 * len(seeds), source=schema.role)
    rewritten = [Clause(ClauseAtom(reach, seeds + seeds), (ClauseAtom(schema.demand, seeds),))]
    for clause in clauses:
        guard = ClauseAtom(reach, seeds + bound_args(clause.head))
        call, rest = _split(schema, clause)
        if call is None:
            carried = iter(seeds)
            args = tuple(
                next(carried) if mark == "b" else arg
                for arg, mark in zip(clause.head.args, schema.adornment, strict=True)
            )
            head = ClauseAtom(schema, args)
        else:
            head = ClauseAtom(reach, seeds + bound_args(call))
        rewritten.append(Clause(head, (guard, *rest), clause.rule))
    return rewritten


def _split(
    schema: RelationSchema, clause: Clause
) -> tuple[ClauseAtom | None, tuple[ClauseItem, ...]]:
    call = next((i for i in clause.body if isinstance(i, ClauseAtom) and i.schema == schema), None)
    return call, tuple(item for item in clause.body if item is not call)
