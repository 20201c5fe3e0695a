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
grow, and what follows from a smaller class follows from a larger one.

An aggregate that chooses one of the names equal to a name has the same value for all names of a
class, so that its groups are classes: `canonical(same, ?x, representative(?y)) :- same(?x, ?y)`
becomes

    bindings canonical#1/2(?x, ?y) :- classes same/2(?y, ?x).
    groups canonical#1/2(?x, ?r) :- bindings canonical#1/2(?x, ?y), ?r := representative(?y).
    canonical/3(same, ?x, ?r) :- classes same/2(?x, ?group#), groups canonical#1/2(?group#, ?r).

Proofs, confidences and
retractions use the rules as they are written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kbplanner.ir.operators import CHOICES
from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    Program,
    components,
    dependencies,
    dependents,
)
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Variable, numbered_variables
from kbplanner.pacing import YieldNow, go_on, paced


def by_classes(program: Program, yield_now: YieldNow = go_on) -> Program:
    """Replace the pairs of equivalence relations by classes.

    `yield_now` is called about once a millisecond.
    """
    heads = program.heads()
    candidates = {
        schema: base
        for schema, clauses in paced(heads.items(), yield_now, CLAUSES_PER_YIELD)
        if schema.role is Role.DERIVED
        and schema.arity == 2
        and (base := _base(schema, clauses)) is not None
    }
    if not candidates:
        return program
    endless = _that_may_not_end(program.clauses, yield_now)
    equivalences = {schema: base for schema, base in candidates.items() if schema not in endless}
    if not equivalences:
        return program
    names = {schema: replace(schema, role=Role.CLASSES) for schema in equivalences}
    rewritten: list[Clause] = []
    by_class = _groups_by_class(program.clauses, heads, names, yield_now)
    for schema, clauses in paced(heads.items(), yield_now, REWRITES_PER_YIELD):
        if schema in by_class:
            own = names[by_class[schema]]
            rewritten.extend(
                replace(clause, body=(ClauseAtom(own, clause.head.args[::-1]),))
                if schema.role is Role.BINDINGS
                else clause
                for clause in clauses
            )
        elif schema in equivalences:
            rewritten.extend(
                _reading_classes(
                    replace(clause, head=replace(clause.head, schema=names[schema])), names
                )
                for clause in equivalences[schema]
            )
            pair = ClauseAtom(schema, numbered_variables(2))
            rewritten.append(_reading_classes(Clause(pair, (pair,)), names))
        else:
            rewritten.extend(
                _reading_classes(_with_group_classes(clause, by_class, names), names)
                for clause in clauses
            )
    concluded = {clause.head.schema for clause in rewritten}
    full = dependencies(rewritten, names.values(), yield_now) & concluded
    return replace(program, clauses=tuple(rewritten), full=program.full | full)


def _base(schema: RelationSchema, clauses: Sequence[Clause]) -> list[Clause] | None:
    """Return the clauses that remain of an equivalence relation; None if it is not one."""
    symmetric = [clause for clause in clauses if is_symmetric(schema, clause)]
    transitive = [clause for clause in clauses if is_transitive(schema, clause)]
    if not symmetric or not transitive:
        return None
    implied = {*map(id, symmetric), *map(id, transitive)}
    return [
        clause
        for clause in clauses
        if id(clause) not in implied and not is_reflexive(schema, clause)
    ]


def _own_atoms(schema: RelationSchema, clause: Clause, count: int) -> list[ClauseAtom]:
    """Return the atoms of a body of exactly `count` atoms of the relation; otherwise none."""
    atoms = [
        item
        for item in clause.body
        if isinstance(item, ClauseAtom) and not item.absent and item.schema == schema
    ]
    return atoms if len(atoms) == len(clause.body) == count else []


def is_symmetric(schema: RelationSchema, clause: Clause) -> bool:
    """Return True if a clause makes a relation of two columns symmetric."""
    x, y = clause.head.args
    return (
        isinstance(x, Variable)
        and isinstance(y, Variable)
        and x != y
        and [atom.args for atom in _own_atoms(schema, clause, 1)] == [(y, x)]
    )


def is_transitive(schema: RelationSchema, clause: Clause) -> bool:
    """Return True if a clause makes a relation of two columns transitive."""
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


def is_reflexive(schema: RelationSchema, clause: Clause) -> bool:
    """Return True if a clause concludes the pair of a name with itself, which all names have."""
    x, y = clause.head.args
    return x == y and any(x in atom.args for atom in _own_atoms(schema, clause, 1))


def _that_may_not_end(clauses: Sequence[Clause], yield_now: YieldNow) -> set[RelationSchema]:
    """Return the relations that depend on a recursion that computes values: demand may be the only
    bound on them.
    """
    parts = components(clauses, yield_now)
    recursive = {schema for part in parts if part.recursive for schema in part.relations}
    computing = (
        clause.head.schema
        for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD)
        if clause.head.schema in recursive
        and any(isinstance(item, Computation) for item in clause.body)
    )
    return dependents(clauses, computing, yield_now)


def _groups_by_class(
    clauses: Sequence[Clause],
    heads: Mapping[RelationSchema, Sequence[Clause]],
    equivalences: Collection[RelationSchema],
    yield_now: YieldNow,
) -> dict[RelationSchema, RelationSchema]:
    """Return the bindings and groups of rules that choose one of the names equal to a name, each
    with its equivalence relation.
    """
    chosen: dict[RelationSchema, RelationSchema] = {}
    readers_of: dict[RelationSchema, list[Clause]] = {}
    for clause in paced(clauses, yield_now, CLAUSES_PER_YIELD):
        for read in {atom.schema for atom in clause.all_atoms()}:
            if read.role is Role.BINDINGS:
                readers_of.setdefault(read, []).append(clause)
    for schema, own in paced(heads.items(), yield_now, CLAUSES_PER_YIELD):
        source = _chosen_from(own) if schema.role is Role.GROUPS else None
        if source is None or len(heads[source.schema]) != 1:
            continue
        (bindings,) = heads[source.schema]
        atom = bindings.body[0]
        if (
            isinstance(atom, ClauseAtom)
            and bindings.body == (ClauseAtom(atom.schema, bindings.head.args),)
            and len(set(bindings.head.args)) == len(bindings.head.args)
            and atom.schema in equivalences
            and readers_of.get(source.schema) == list(own)
        ):
            chosen[schema] = chosen[source.schema] = atom.schema
    return chosen


def _chosen_from(clauses: Sequence[Clause]) -> ClauseAtom | None:
    """Return the bindings from which a clause chooses the values of groups of one argument."""
    if len(clauses) != 1:
        return None
    source, *folds = clauses[0].body
    chooses = all(isinstance(item, AggregateClause) and item.function in CHOICES for item in folds)
    if not chooses or not isinstance(source, ClauseAtom) or source.schema.arity != 2:
        return None
    return source if clauses[0].head.args[:1] == source.args[:1] else None


def _with_group_classes(
    clause: Clause,
    by_class: Mapping[RelationSchema, RelationSchema],
    names: Mapping[RelationSchema, RelationSchema],
) -> Clause:
    """Return a clause that reads the groups of classes in place of those of names."""
    body: list[ClauseItem] = []
    for item in clause.body:
        if isinstance(item, ClauseAtom) and item.schema in by_class:
            group = Variable("group#" + (str(len(body)) if body else ""))
            body.append(ClauseAtom(names[by_class[item.schema]], (item.args[0], group)))
            body.append(replace(item, args=(group, *item.args[1:])))
        else:
            body.append(item)
    return replace(clause, body=tuple(body))


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
