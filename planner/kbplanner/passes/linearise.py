"""Rewriting of a transitive closure with two recursive atoms to a linear recursion.

`p(x, z) :- p(x, y), p(y, z)` together with non-recursive clauses defines p as their closure. An
equivalent form extends each of those clauses by p, and the `turn` pass can rewrite this form:

    p(x, z) :- q(x, y), p(y, z)        for each clause p(x, y) :- q(x, y)
"""

from __future__ import annotations

from collections.abc import Sequence

from kbplanner.ir.program import Clause, ClauseAtom, by_head, components
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Variable

_END = Variable("end#")


def linearise(clauses: Sequence[Clause]) -> tuple[Clause, ...]:
    """Make every closure of this form linear; other clauses do not change."""
    own = by_head(clauses)
    alone = {next(iter(part.relations)) for part in components(clauses) if len(part.relations) == 1}
    linear: list[Clause] = []
    done: set[RelationSchema] = set()
    for clause in clauses:
        schema = clause.head.schema
        if schema in done:
            continue
        closing = _closing(own[schema], schema) if schema in alone else None
        if closing is None:
            linear.append(clause)
            continue
        done.add(schema)
        base = [other for other in own[schema] if other is not closing]
        linear.extend(base)
        linear.extend(_prolonged(other, schema, closing.rule) for other in base)
    return tuple(linear)


def _closing(clauses: Sequence[Clause], schema: RelationSchema) -> Clause | None:
    """Return the clause that closes the relation, if it is the only recursive one."""
    recursive = [
        c for c in clauses if any(isinstance(i, ClauseAtom) and i.schema == schema for i in c.body)
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


def _prolonged(clause: Clause, schema: RelationSchema, rule: int) -> Clause:
    start, middle = clause.head.args
    head = ClauseAtom(schema, (start, _END))
    return Clause(head, (*clause.body, ClauseAtom(schema, (middle, _END))), rule)
