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
"""

from __future__ import annotations

from collections.abc import Sequence

from kbplanner.ir.program import CLAUSES_PER_REST, Clause, ClauseAtom, by_head, single_relations
from kbplanner.ir.schema import BEST, RelationSchema
from kbplanner.ir.terms import Variable
from kbplanner.pacing import Rest, no_rest, paced

_END = Variable("end#")


def linearise(clauses: Sequence[Clause], rest: Rest = no_rest) -> tuple[Clause, ...]:
    """Make every closure of this form linear; other clauses do not change.

    `rest` is called about once a millisecond.
    """
    own = by_head(clauses)
    single = single_relations(clauses, rest)
    linear: list[Clause] = []
    done: set[RelationSchema] = set()
    closings = {
        schema: _closing(heads, schema)
        for schema, heads in paced(own.items(), rest, CLAUSES_PER_REST)
        if schema in single and schema.role not in BEST
    }
    for clause in paced(clauses, rest, CLAUSES_PER_REST):
        schema = clause.head.schema
        if schema in done:
            continue
        closing = closings.get(schema)
        if closing is None:
            linear.append(clause)
            continue
        done.add(schema)
        base = [other for other in own[schema] if other is not closing]
        linear.extend(base)
        linear.extend(_extended(other, schema, closing.rule) for other in base)
    return tuple(linear)


def _closing(clauses: Sequence[Clause], schema: RelationSchema) -> Clause | None:
    """Return the clause that closes the relation, if it is the only recursive one."""
    recursive = [c for c in clauses if any(atom.schema == schema for atom in c.all_atoms())]
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
