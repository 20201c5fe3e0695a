"""Rewriting of linear recursion for the binding of the goal.

A recursive clause is *right-linear* for an adornment when its free head arguments are passed on
unchanged by the one recursive atom, as in the example. Plain magic sets would store all of
`path(?y, ?z)` for every y on the way. Here only the reachable bindings are stored, and answers are
taken from the base clauses at the end. Where the step is a base clause as well, as in a plain
closure, one traversal does both.

Before:

    path(?x, ?y) :- edge(?x, ?y).
    path(?x, ?z) :- edge(?x, ?y), path(?y, ?z).
    ?- path(a, ?z).

After:

    reach path/2[bf](?y) :- demand path/2[bf](?x), edge/2(?x, ?y).  % rule 2
    reach path/2[bf](?y) :- reach path/2[bf](?x), edge/2(?x, ?y).  % rule 2
    answer path/2[bf](?a0) :- reach path/2[bf](?a0).  % rule 2
    answer path/2[bf](?a1) :- demand path/2[bf](?a0), path/2(?a0, ?a1).
    answer path/2[bf](?a1) :- reach path/2[bf](?a0), path/2(?a0, ?a1).

The mirror image is *left-linear*: the recursive atom takes over the bound head arguments unchanged,
as in `path(?x, ?z) :- path(?x, ?y), edge(?y, ?z)` asked with x bound. There the answers themselves
are what is reached, and need not carry the binding.

For the goal itself, which has one seed, this is enough. Where other clauses call a right-linear
relation, each reached binding carries the seed it came from. Without a free argument that would
only multiply bindings, so such relations are not rewritten. Naughton, Ramakrishnan, Sagiv, Ullman:
"Efficient evaluation of right-, left-, and multi-linear rules" (1989).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    Clause,
    ClauseAtom,
    ClauseItem,
    Program,
    single_relations,
)
from kbplanner.ir.schema import REPLACING, RelationSchema, Role
from kbplanner.ir.terms import Term, Variable, numbered_variables
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.passes.adorn import bound_args


def rewrite_linear_recursion(program: Program, yield_now: YieldNow = go_on) -> Program:
    """Rewrite the relations of an adorned program whose recursive clauses are all right-linear, and
    the goal's relation also if they are all left-linear. `yield_now` is called about once a
    millisecond.
    """
    clauses: list[Clause] = []
    heads = program.heads()
    single = single_relations(program.clauses, yield_now)
    rewritten = program
    for schema, own in paced(heads.items(), yield_now, REWRITES_PER_YIELD):
        candidate = (
            schema in single
            and schema.role not in REPLACING
            and schema.bare not in program.full
            and "b" in schema.adornment
        )
        right = candidate and _recursion_has_form(_is_right_linear, schema, own, yield_now)
        left = (
            candidate
            and not right
            and "f" in schema.adornment
            and _recursion_has_form(_is_left_linear, schema, own, yield_now)
        )
        if schema == program.goal and (right or left):
            free = tuple(i for i, mark in enumerate(schema.adornment) if mark == "f")
            columns = tuple(
                free.index(i) if i in free else None for i in range(len(schema.adornment))
            )
            answer = replace(schema, role=Role.ANSWER, arity=len(free))
            rewritten = replace(program, seed=schema.demand, answer=answer, answer_columns=columns)
            rewrite = _right_linear_goal if right else _left_linear_goal
            clauses.extend(rewrite(schema, answer, own, yield_now))
        elif right and "f" in schema.adornment:
            clauses.extend(_with_seeds(schema, own, yield_now))
        else:
            clauses.extend(own)
    return replace(rewritten, clauses=tuple(clauses))


def _recursion_has_form(
    form: Callable[[RelationSchema, Clause], bool],
    schema: RelationSchema,
    clauses: Sequence[Clause],
    yield_now: YieldNow,
) -> bool:
    """Return True if there are recursive clauses, all of this form."""
    recursive = [
        clause for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD) if _calls(schema, clause)
    ]
    return bool(recursive) and all(
        form(schema, clause) for clause in paced(recursive, yield_now, REWRITES_PER_YIELD)
    )


def _calls(schema: RelationSchema, clause: Clause) -> list[ClauseAtom]:
    """Return the atoms of the relation in the clause's body."""
    return [atom for atom in clause.all_atoms() if atom.schema == schema]


def _is_right_linear(schema: RelationSchema, clause: Clause) -> bool:
    calls = _calls(schema, clause)
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


def _is_left_linear(schema: RelationSchema, clause: Clause) -> bool:
    calls = _calls(schema, clause)
    bound = bound_args(clause.head)
    return (
        len(calls) == 1
        and not calls[0].absent
        and bound_args(calls[0]) == bound
        and all(isinstance(arg, Variable) for arg in bound)
        and len(set(bound)) == len(bound)
    )


def _left_linear_goal(
    schema: RelationSchema, answer: RelationSchema, clauses: Sequence[Clause], yield_now: YieldNow
) -> list[Clause]:
    rewritten = []
    for clause in paced(clauses, yield_now, REWRITES_PER_YIELD):
        bound = bound_args(clause.head)
        guard = ClauseAtom(schema.demand, bound)
        call, others = _call_and_others(schema, clause)
        head = ClauseAtom(answer, _free_args(schema, clause.head))
        if call is None:
            rewritten.append(Clause(head, (guard, *others), clause.rule))
            continue
        reached = ClauseAtom(answer, _free_args(schema, call))
        used = {variable for item in (head, reached, *others) for variable in item.variables()}
        body = (reached, *others) if used.isdisjoint(bound) else (guard, reached, *others)
        rewritten.append(Clause(head, body, clause.rule))
    return rewritten


def _free_args(schema: RelationSchema, atom: ClauseAtom) -> tuple[Term, ...]:
    return tuple(arg for arg, mark in zip(atom.args, schema.adornment, strict=True) if mark == "f")


def _right_linear_goal(
    schema: RelationSchema, answer: RelationSchema, clauses: Sequence[Clause], yield_now: YieldNow
) -> list[Clause]:
    one_traversal = _one_traversal(schema, answer, clauses, yield_now)
    if one_traversal is not None:
        return one_traversal
    rewritten = []
    for clause in paced(clauses, yield_now, REWRITES_PER_YIELD):
        guard = ClauseAtom(schema.demand, bound_args(clause.head))
        call, others = _call_and_others(schema, clause)
        if call is None:
            head = ClauseAtom(answer, _free_args(schema, clause.head))
        else:
            head = ClauseAtom(schema.demand, bound_args(call))
        rewritten.append(Clause(head, (guard, *others), clause.rule))
    return rewritten


def _one_traversal(
    schema: RelationSchema, answer: RelationSchema, clauses: Sequence[Clause], yield_now: YieldNow
) -> list[Clause] | None:
    """Return clauses for a relation whose recursive steps are base clauses too: reached bindings
    are answers themselves. None for any other relation.
    """
    if schema.adornment.count("b") != answer.arity:
        return None
    steps: list[Clause] = []
    bases: dict[tuple[object, ...], list[Clause]] = {}
    for clause in paced(clauses, yield_now, REWRITES_PER_YIELD):
        if _calls(schema, clause):
            steps.append(clause)
        else:
            head = clause.head
            shape = _shape(bound_args(head), _free_args(schema, head), clause.body)
            bases.setdefault(shape, []).append(clause)
    rewritten: list[Clause] = []
    reach = replace(schema, role=Role.REACH, arity=answer.arity, source=schema.role)
    twins: set[int] = set()
    for clause in paced(steps, yield_now, REWRITES_PER_YIELD):
        call, others = _call_and_others(schema, clause)
        if call is None:
            return None
        start, end = bound_args(clause.head), bound_args(call)
        same = bases.get(_shape(start, end, others))
        if not same:
            return None
        twins.add(id(same.pop(0)))
        for guard in (ClauseAtom(schema.demand, start), ClauseAtom(reach, start)):
            rewritten.append(Clause(ClauseAtom(reach, end), (guard, *others), clause.rule))
    whole = numbered_variables(answer.arity)
    rewritten.append(Clause(ClauseAtom(answer, whole), (ClauseAtom(reach, whole),), steps[0].rule))
    for clause in paced(clauses, yield_now, REWRITES_PER_YIELD):
        if id(clause) in twins or _calls(schema, clause):
            continue
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


def _with_seeds(
    schema: RelationSchema, clauses: Sequence[Clause], yield_now: YieldNow
) -> list[Clause]:
    seeds = tuple(Variable(f"seed#{i}") for i in range(schema.adornment.count("b")))
    reach = replace(schema, role=Role.REACH, arity=2 * len(seeds), source=schema.role)
    rewritten = [Clause(ClauseAtom(reach, seeds + seeds), (ClauseAtom(schema.demand, seeds),))]
    for clause in paced(clauses, yield_now, REWRITES_PER_YIELD):
        guard = ClauseAtom(reach, seeds + bound_args(clause.head))
        call, others = _call_and_others(schema, clause)
        if call is None:
            carried = iter(seeds)
            args = tuple(
                next(carried) if mark == "b" else arg
                for arg, mark in zip(clause.head.args, schema.adornment, strict=True)
            )
            head = ClauseAtom(schema, args)
        else:
            head = ClauseAtom(reach, seeds + bound_args(call))
        rewritten.append(Clause(head, (guard, *others), clause.rule))
    return rewritten


def _call_and_others(
    schema: RelationSchema, clause: Clause
) -> tuple[ClauseAtom | None, tuple[ClauseItem, ...]]:
    """Return the recursive atom of the body, if there is one, and the other items."""
    call = next(iter(_calls(schema, clause)), None)
    return call, tuple(item for item in clause.body if item is not call)
