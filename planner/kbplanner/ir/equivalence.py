"""Evaluation of equivalence relations by classes in place of pairs.

Where a predicate has a rule that makes it symmetric and one that makes it transitive, its pairs are
those of names of the same class. The other clauses conclude pairs whose classes are united, and
each atom that reads the predicate reads the representatives of two names:

    same/2(?x, ?y) :- alias/2(?x, ?y).
    same/2(?x, ?y) :- same/2(?y, ?x).
    same/2(?x, ?z) :- same/2(?x, ?y), same/2(?y, ?z).

become

    classes same/2(?x, ?y) :- alias/2(?x, ?y).
    same/2(?a0, ?a1) :- classes same/2(?a0, ?class#), classes same/2(?a1, ?class#).

A class of n names has n rows, not n². Classes are computed in full, whatever the goal binds; the
pairs follow demand. The clauses may read the predicate themselves, as congruences do: classes only
grow, and what follows from a smaller class follows from a larger one. Proofs, confidences and
retractions use the rules as they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kbplanner.ir.program import (
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    Program,
    components,
    dependencies,
)
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Variable, numbered_variables


def by_classes(program: Program) -> Program:
    """Replace the pairs of equivalence relations by classes."""
    heads = program.heads()
    equivalences = {
        schema: base
        for schema, clauses in heads.items()
        if schema.role is Role.DERIVED
        and schema.arity == 2
        and (base := _base(schema, clauses)) is not None
        and not _may_not_end(program.clauses, schema)
    }
    if not equivalences:
        return program
    names = {schema: replace(schema, role=Role.CLASSES) for schema in equivalences}
    rewritten: list[Clause] = []
    for schema, clauses in heads.items():
        if schema in equivalences:
            rewritten.extend(
                _reading_classes(
                    replace(clause, head=replace(clause.head, schema=names[schema])), names
                )
                for clause in equivalences[schema]
            )
            pair = ClauseAtom(schema, numbered_variables(2))
            rewritten.append(_reading_classes(Clause(pair, (pair,)), names))
        else:
            rewritten.extend(_reading_classes(clause, names) for clause in clauses)
    concluded = {clause.head.schema for clause in rewritten}
    full = dependencies(rewritten, names.values()) & concluded
    return replace(program, clauses=tuple(rewritten), full=program.full | full)


def _base(schema: RelationSchema, clauses: Sequence[Clause]) -> list[Clause] | None:
    """Return the clauses that remain of an equivalence relation; None if it is not one."""
    symmetric = [clause for clause in clauses if _is_symmetric(schema, clause)]
    transitive = [clause for clause in clauses if _is_transitive(schema, clause)]
    if not symmetric or not transitive:
        return None
    implied = [*symmetric, *transitive]
    return [
        clause for clause in clauses if clause not in implied and not _is_reflexive(schema, clause)
    ]


def _own_atoms(schema: RelationSchema, clause: Clause, count: int) -> list[ClauseAtom]:
    """Return the atoms of a body of exactly `count` atoms of the relation; otherwise none."""
    atoms = [
        item
        for item in clause.body
        if isinstance(item, ClauseAtom) and not item.absent and item.schema == schema
    ]
    return atoms if len(atoms) == len(clause.body) == count else []


def _is_symmetric(schema: RelationSchema, clause: Clause) -> bool:
    x, y = clause.head.args
    return (
        isinstance(x, Variable)
        and isinstance(y, Variable)
        and x != y
        and [atom.args for atom in _own_atoms(schema, clause, 1)] == [(y, x)]
    )


def _is_transitive(schema: RelationSchema, clause: Clause) -> bool:
    x, z = clause.head.args
    atoms = _own_atoms(schema, clause, 2)
    for first, second in (atoms, atoms[::-1]) if atoms else ():
        y = first.args[1]
        variables = {
            term for term in (x, y, z) if isinstance(term, Variable) and not term.anonymous
        }
        if len(variables) == 3 and first.args == (x, y) and second.args == (y, z):
            return True
    return False


def _is_reflexive(schema: RelationSchema, clause: Clause) -> bool:
    """Return True if a clause concludes the pair of a name with itself, which all names have."""
    x, y = clause.head.args
    return x == y and any(x in atom.args for atom in _own_atoms(schema, clause, 1))


def _may_not_end(clauses: Sequence[Clause], schema: RelationSchema) -> bool:
    """Return True if a relation depends on a recursion that computes values: demand may be the only
    bound on them.
    """
    reached = dependencies(clauses, (schema,))
    recursive = {s for part in components(clauses) if part.recursive for s in part.relations}
    return any(
        clause.head.schema in recursive & reached
        and any(isinstance(item, Computation) for item in clause.body)
        for clause in clauses
    )


def _reading_classes(clause: Clause, names: dict[RelationSchema, RelationSchema]) -> Clause:
    """Return a clause that reads the classes of names in place of pairs, but for absent ones."""
    body: list[ClauseItem] = []
    for item in clause.body:
        if isinstance(item, ClauseAtom) and item.schema in names and not item.absent:
            representative = Variable("class#" + (str(len(body)) if body else ""))
            body += [ClauseAtom(names[item.schema], (name, representative)) for name in item.args]
        else:
            body.append(item)
    return replace(clause, body=tuple(body))
