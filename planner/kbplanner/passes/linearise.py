"""Rewriting of a transitive closure with two recursive atoms to a linear recursion.

Where one clause closes a relation over itself and all others are not recursive, an equivalent form
extends each of the others by the relation. The `linear_recursion` pass can rewrite that form.

Before:

    path(?x, ?y) :- edge(?x, ?y).
    path(?x, ?z) :- path(?x, ?y), path(?y, ?z).
    ?- path(a, ?z).

After:

    path/2(?x, ?y) :- edge/2(?x, ?y).  % rule 1
    path/2(?a0, ?a1) :- path/2(?a0, ?a1).
    path/2(?x, ?end#) :- edge/2(?x, ?y), path/2(?y, ?end#).  % rule 2
    path/2(?a0, ?end#) :- path/2(?a0, ?a1), path/2(?a1, ?end#).  % rule 2

Proofs and confidences need the rules as they are written. For them `as_paths` lets a closure grow
by single steps, which leaves each clause an instance of its rule:

    step path/2(?x, ?y) :- edge/2(?x, ?y).  % rule 1
    path/2(?x, ?y) :- edge/2(?x, ?y).  % rule 1
    path/2(?x, ?z) :- path/2(?x, ?y), step path/2(?y, ?z).  % rule 2

A class of n names or a chain of n edges has n instances for a goal with a constant, and not n³. The
facts that the proofs of a pair depend on are those of the paths between its names, as before, so
that the best confidence and the best validity over all proofs are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kbplanner.ir.equivalence import is_reflexive, is_symmetric, is_transitive
from kbplanner.ir.program import CLAUSES_PER_YIELD, Clause, ClauseAtom, by_head, single_relations
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import Variable
from kbplanner.pacing import YieldNow, go_on, paced

_END = Variable("end#")


def linearise(clauses: Sequence[Clause], yield_now: YieldNow = go_on) -> tuple[Clause, ...]:
    """Make every closure of this form linear; other clauses do not change.

    `yield_now` is called about once a millisecond.
    """
    own = by_head(clauses)
    single = single_relations(clauses, yield_now)
    linear: list[Clause] = []
    done: set[RelationSchema] = set()
    closings = {
        schema: _closing(heads, schema, yield_now)
        for schema, heads in paced(own.items(), yield_now, CLAUSES_PER_YIELD)
        if schema in single and schema.role not in BEST
    }
    for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD):
        schema = clause.head.schema
        if schema in done:
            continue
        closing = closings.get(schema)
        if closing is None:
            linear.append(clause)
            continue
        done.add(schema)
        base = [other for other in paced(own[schema], yield_now) if other is not closing]
        linear.extend(base)
        linear.extend(_extended(other, schema, closing.rule) for other in base)
    return tuple(linear)


def _closing(
    clauses: Sequence[Clause], schema: RelationSchema, yield_now: YieldNow
) -> Clause | None:
    """Return the clause that closes the relation, if it is the only recursive one."""
    recursive = [
        clause
        for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD)
        if any(atom.schema == schema for atom in clause.all_atoms())
    ]
    if len(recursive) != 1 or len(recursive[0].body) != 2 or schema.arity != 2:
        return None
    clause = recursive[0]
    first, second = clause.body
    if (
        not isinstance(first, ClauseAtom)
        or not isinstance(second, ClauseAtom)
        or first.absent
        or second.absent
    ):
        return None
    x, z = clause.head.args
    for left, right in ((first, second), (second, first)):
        y = left.args[1] if len(left.args) == 2 else None
        variables = [
            term for term in (x, y, z) if isinstance(term, Variable) and not term.anonymous
        ]
        if (
            left.schema == right.schema == schema
            and len(set(variables)) == 3
            and left.args == (x, y)
            and right.args == (y, z)
        ):
            return clause
    return None


def _extended(clause: Clause, schema: RelationSchema, rule: int) -> Clause:
    start, middle = clause.head.args
    head = ClauseAtom(schema, (start, _END))
    return Clause(head, (*clause.body, ClauseAtom(schema, (middle, _END))), rule)


def closures(clauses: Sequence[Clause]) -> set[RelationSchema]:
    """Return the relations that a clause makes transitive."""
    return {
        schema
        for schema, own in by_head(clauses).items()
        if schema.role is Role.DERIVED
        and schema.arity == 2
        and any(is_transitive(schema, clause) for clause in own)
    }


def as_paths(clauses: Sequence[Clause]) -> tuple[Clause, ...]:
    """Let every transitive relation, symmetric or not, grow by single steps; each clause remains an
    instance of its rule. Other clauses do not change.
    """
    paths: list[Clause] = []
    transitive = closures(clauses)
    for clause in clauses:
        schema = clause.head.schema
        if schema not in transitive:
            paths.append(clause)
            continue
        step = replace(schema, role=Role.STEP)
        if is_transitive(schema, clause):
            clause = _by_one_step(clause, step)
        elif not is_reflexive(schema, clause):  # a step from a name to itself leads nowhere
            if is_symmetric(schema, clause):
                (atom,) = clause.atoms()
                clause = replace(clause, body=(replace(atom, schema=step),))
            paths.append(replace(clause, head=replace(clause.head, schema=step)))
        paths.append(clause)
    return tuple(paths)


def _by_one_step(clause: Clause, step: RelationSchema) -> Clause:
    """Return a transitive clause whose second half is a step."""
    start = clause.head.args[0]
    body = tuple(
        atom if atom.args[0] == start else replace(atom, schema=step) for atom in clause.atoms()
    )
    return replace(clause, body=body)
