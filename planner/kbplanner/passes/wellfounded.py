"""Removal of recursion through negation: the components concerned are evaluated beforehand.

In the example, `win` is a *negative component*: it depends on itself through absence. Its
well-founded model is computed separately, in full (`evaluate/settle.py`), and gives two relations:
the rows that are true, and the rows that are possible, true or undefined. To all other rules they
are facts. Where a row is undefined, clauses that depend on it are evaluated twice, as a lower and
an upper bound: true rows follow from true rows and the absence of possible ones; possible rows
follow from possible rows and the absence of true ones. This is one step of the alternating fixpoint
of Van Gelder (1993), and it suffices above the component.

Before:

    win(?x) :- move(?x, ?y), not win(?y).
    lost(?x) :- player(?x), not win(?x).
    ?- lost(?x).

After:

    lost/1(?x) :- player/1(?x), absent possible win/1(?x).  % rule 2
    possible lost/1(?x) :- player/1(?x), absent win/1(?x).  % rule 2
    lost/1(?a0) :- lost/1(?a0).
    possible lost/1(?a0) :- lost/1(?a0).
    win/1(?a0) :- true win/1(?a0).
    possible win/1(?a0) :- possible win/1(?a0).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbplanner.errors import BudgetExceeded
from kbplanner.ir.limits import MAX_COLUMNS
from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Program,
    components,
    dependencies,
    dependents,
)
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Variable, numbered_variables
from kbplanner.ir.verify import verify
from kbplanner.pacing import YieldNow, go_on, paced, sorted_in_parts

TRUE, POSSIBLE = "true", "possible"


@dataclass(frozen=True, slots=True)
class NegativeComponent:
    """Relations that depend on themselves through absence, and the clauses that conclude them."""

    relations: frozenset[RelationSchema]
    clauses: tuple[Clause, ...]

    @property
    def cycle(self) -> list[str]:
        """The predicates, with their signs, in a fixed order."""
        return sorted({str(schema.stored) for schema in self.relations})


def negative_components(
    clauses: Sequence[Clause], yield_now: YieldNow = go_on
) -> tuple[NegativeComponent, ...]:
    """Return the negative components of lowered clauses, each after those it depends on."""
    negative = []
    numbers: dict[RelationSchema, list[int]] = {}
    for number, clause in paced(enumerate(clauses), yield_now):
        numbers.setdefault(clause.head.schema, []).append(number)
    for part in paced(components(clauses, yield_now), yield_now, CLAUSES_PER_YIELD):
        inside = sorted(number for schema in part.relations for number in numbers[schema])
        own = tuple(clauses[number] for number in paced(inside, yield_now))
        if any(
            item.absent and item.schema in part.relations
            for clause in paced(own, yield_now, CLAUSES_PER_YIELD)
            for item in clause.all_atoms()
        ):
            negative.append(NegativeComponent(part.relations, own))
    return tuple(negative)


def settled(relation: RelationSchema, truth: str) -> RelationSchema:
    """Return the relation of the true, or the possible, rows of a relation of a negative
    component.
    """
    return replace(relation, role=Role.STORED, source=relation.role, truth=truth)


def possible(relation: RelationSchema) -> RelationSchema:
    """Return the upper bound of a relation of conclusions that can have undefined rows."""
    return replace(relation, truth=POSSIBLE)


def uncertain(
    clauses: Sequence[Clause],
    parts: Iterable[NegativeComponent],
    undefined: Collection[RelationSchema],
    yield_now: YieldNow = go_on,
) -> frozenset[RelationSchema]:
    """Return the relations that can have undefined rows if those of `undefined`, of negative
    components, do.

    `yield_now` is called about once a millisecond.
    """
    inside = {schema for part in parts for schema in part.relations}
    outside = (clause for clause in clauses if clause.head.schema not in inside)
    return frozenset(dependents(outside, undefined, yield_now))


def without_negative_components(
    clauses: Sequence[Clause],
    parts: Sequence[NegativeComponent],
    undefined: Collection[RelationSchema],
    keep: bool = False,
    yield_now: YieldNow = go_on,
) -> tuple[Clause, ...]:
    """Return the clauses without negative components, whose relations copy the settled rows.

    With `keep` the clauses of negative components stay, and test the absence of rows that were
    settled as possible: they conclude the same, step by step, as proofs need it. `yield_now` is
    called about once a millisecond.
    """
    inside = {schema: part for part in parts for schema in part.relations}
    bounded = uncertain(clauses, parts, undefined, yield_now)
    folds = {
        c.head.schema: sum(isinstance(item, AggregateClause) for item in c.body)
        for c in clauses
        if c.aggregates
    }
    widths = {schema: schema.arity - count for schema, count in folds.items()}
    rewritten: list[Clause] = []
    for clause in paced(clauses, yield_now, REWRITES_PER_YIELD):
        head = clause.head.schema
        if head not in inside:
            rewritten.extend(
                _bounds(clause, bounded, widths)
                if head in bounded
                else [_bound(clause, TRUE, bounded)]
            )
        elif keep:
            rewritten.append(_bound(_reduct(clause, inside[head].relations), TRUE, bounded))
    for schema in paced(sorted_in_parts(inside, yield_now, str), yield_now, REWRITES_PER_YIELD):
        args = numbered_variables(schema.arity)
        if not keep:
            rewritten.append(
                Clause(ClauseAtom(schema, args), (ClauseAtom(settled(schema, TRUE), args),))
            )
        if schema in bounded:
            rewritten.append(
                Clause(
                    ClauseAtom(possible(schema), args),
                    (ClauseAtom(settled(schema, POSSIBLE), args),),
                )
            )
    return tuple(rewritten)


@dataclass(frozen=True, slots=True)
class Instances:
    """The relation of a clause's instances in a negative component, with a column for each of
    `variables`.

    `head` and `premises` are atoms of the component; an absent premise is one without anonymous
    variables. `is_sure` says that the other items of the body is true in these instances, not
    merely possible.
    """

    schema: RelationSchema
    variables: tuple[Variable, ...]
    head: ClauseAtom
    premises: tuple[ClauseAtom, ...]
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Overestimate:
    """A program without recursion through absence that finds every instance that can matter to a
    negative component.

    `inverted` are relations whose absence depends on the component through two negations; see
    `component.py`. Where instances have a sure and a merely possible form, the sure one follows.
    """

    program: Program
    instances: tuple[Instances, ...]
    inverted: frozenset[RelationSchema]


def overestimate(
    clauses: Sequence[Clause],
    parts: Sequence[NegativeComponent],
    part: NegativeComponent,
    undefined: Collection[RelationSchema],
    yield_now: YieldNow = go_on,
) -> Overestimate:
    """Return the program for `part`, one of `parts`; those before it are settled, `undefined` have
    undefined rows.

    It leaves out the absences within the component. `yield_now` is called about once a millisecond.
    Raises BudgetExceeded for a clause with too many variables.
    """
    bounded = uncertain(clauses, parts, undefined, yield_now) - part.relations
    inverted_relations = {
        s
        for s in part.relations
        if s.role is Role.UNDENIED and s.opposite.derived in part.relations
    }
    projections: dict[tuple[RelationSchema, tuple[bool, ...]], RelationSchema] = {}
    named = [
        _named(clause, part.relations, projections)
        for clause in paced(part.clauses, yield_now, REWRITES_PER_YIELD)
    ]
    for (schema, named_columns), projection in projections.items():
        args = numbered_variables(schema.arity)
        args_kept = tuple(arg for arg, keeps in zip(args, named_columns, strict=True) if keeps)
        named.append(Clause(ClauseAtom(projection, args_kept), (ClauseAtom(schema, args),)))
    inside = part.relations | set(projections.values())
    rewritten: list[Clause] = []
    instances: list[Instances] = []
    for clause in paced(named, yield_now, REWRITES_PER_YIELD):
        for of_clause, clauses_of in _instances(clause, inside, bounded, len(instances)):
            instances.append(of_clause)
            rewritten += clauses_of
    others = [other for other in parts if other is not part]
    below = without_negative_components(
        [c for c in clauses if c.head.schema not in part.relations],
        others,
        undefined,
        yield_now=yield_now,
    )
    goal = part.clauses[0].head.schema
    read = (atom.schema for clause in rewritten for atom in clause.all_atoms())
    reached = dependencies(below, read, yield_now)
    needed = (clause for clause in below if clause.head.schema in reached)
    program = Program((*needed, *rewritten), goal, None, goal, tuple(range(goal.arity)))
    verify(program, "wellfounded", yield_now)
    inverted_relations.update(
        projection
        for (schema, _), projection in projections.items()
        if schema in inverted_relations
    )
    return Overestimate(program, tuple(instances), frozenset(inverted_relations))


def _instances(
    clause: Clause,
    inside: Collection[RelationSchema],
    bounded: Collection[RelationSchema],
    number: int,
) -> Iterator[tuple[Instances, list[Clause]]]:
    """Yield the instances of a clause of a component, and the clauses for them.

    Instances with a body that may be undefined have two forms, the possible one first. Their
    relations are numbered from `number` on. Raises BudgetExceeded for too many variables.
    """
    premises = tuple(item for item in clause.all_atoms() if item.schema in inside)
    other_items = tuple(
        i
        for i in clause.body
        if not (isinstance(i, ClauseAtom) and i.absent and i.schema in inside)
    )
    columns = tuple(dict.fromkeys(v for atom in (clause.head, *premises) for v in atom.variables()))
    if len(columns) > MAX_COLUMNS:
        raise BudgetExceeded(
            f"a rule for {clause.head.schema.stored} has {len(columns)} variables in recursion through negation",
            "ruleVariables",
            MAX_COLUMNS,
            str(clause.rule),
        )
    double = any(item.schema in bounded for item in other_items if isinstance(item, ClauseAtom))
    for index, bound in enumerate((POSSIBLE, TRUE) if double else (POSSIBLE,), number):
        schema = RelationSchema(str(index), len(columns), role=Role.INSTANCE)
        row = ClauseAtom(schema, columns)
        is_sure = bound == TRUE or not double
        clauses = [replace(_bound(replace(clause, body=other_items), bound, bounded), head=row)]
        if bound == POSSIBLE:
            clauses.append(Clause(clause.head, (row,), clause.rule))
        yield Instances(schema, columns, clause.head, premises, is_sure=is_sure), clauses


def clauses_independent_of(
    clauses: Sequence[Clause], relations: Collection[RelationSchema], yield_now: YieldNow = go_on
) -> list[Clause]:
    """Return the clauses that do not depend on any of these relations of negative components.

    `yield_now` is called about once a millisecond.
    """
    depending = dependents(clauses, (*relations, *map(possible, relations)), yield_now)
    return [clause for clause in clauses if clause.head.schema not in depending]


def _bounds(
    clause: Clause, bounded: Collection[RelationSchema], widths: Mapping[RelationSchema, int]
) -> Iterator[Clause]:
    """Yield the clauses for both bounds of a head; `widths` is the number of group arguments of
    GROUPS relations.

    A group with an undefined binding has no sure value; its values without and with such bindings
    are possible.
    """
    groups = [
        atom
        for atom in clause.atoms()
        if atom.schema.role is Role.GROUPS and atom.schema in bounded
    ]
    lower = _bound(clause, TRUE, bounded)
    sure = (_unsure(atom, widths[atom.schema], absent=True) for atom in groups)
    yield replace(lower, body=(*lower.body, *sure))
    yield _bound(clause, POSSIBLE, bounded)
    if groups:
        yield replace(lower, head=replace(clause.head, schema=possible(clause.head.schema)))
    if clause.aggregates:
        (bindings,) = clause.atoms()
        undefined_bindings = (
            replace(bindings, schema=possible(bindings.schema)),
            replace(bindings, absent=True),
        )
        yield Clause(_unsure(clause.head, widths[clause.head.schema]), undefined_bindings)


def _unsure(groups: ClauseAtom, width: int, absent: bool = False) -> ClauseAtom:
    """Return an atom that holds if a group has undefined bindings."""
    schema = replace(groups.schema, arity=width, role=Role.DERIVED, truth="unsure")
    return ClauseAtom(schema, groups.args[:width], absent)


def _bound(clause: Clause, truth: str, bounded: Collection[RelationSchema]) -> Clause:
    """Return the clause for one bound of its head; an absence tests the other bound of its
    relation.
    """
    if clause.head.schema not in bounded and not any(
        item.schema in bounded for item in clause.all_atoms()
    ):
        return clause
    head = (
        possible(clause.head.schema)
        if truth == POSSIBLE and clause.head.schema in bounded
        else clause.head.schema
    )
    body = tuple(
        replace(item, schema=possible(item.schema))
        if isinstance(item, ClauseAtom)
        and item.schema in bounded
        and item.absent is (truth == TRUE)
        else item
        for item in clause.body
    )
    return replace(clause, head=replace(clause.head, schema=head), body=body)


def _reduct(clause: Clause, inside: Collection[RelationSchema]) -> Clause:
    body = tuple(
        replace(item, schema=settled(item.schema, POSSIBLE))
        if isinstance(item, ClauseAtom) and item.absent and item.schema in inside
        else item
        for item in clause.body
    )
    return replace(clause, body=body)


def _named(
    clause: Clause,
    inside: Collection[RelationSchema],
    projections: dict[tuple[RelationSchema, tuple[bool, ...]], RelationSchema],
) -> Clause:
    """Return the clause with its premises' anonymous variables named; absences test a projection
    instead.
    """
    count = 0
    body: list[ClauseItem] = []
    for item in clause.body:
        if not isinstance(item, ClauseAtom) or item.schema not in inside:
            body.append(item)
            continue
        named_columns = tuple(
            not (isinstance(arg, Variable) and arg.anonymous) for arg in item.args
        )
        if item.absent and not all(named_columns):
            projection = RelationSchema(
                str(len(projections)), sum(named_columns), role=Role.PROJECTION
            )
            schema = projections.setdefault((item.schema, named_columns), projection)
            args_kept = tuple(
                arg for arg, keeps in zip(item.args, named_columns, strict=True) if keeps
            )
            body.append(ClauseAtom(schema, args_kept, absent=True))
            continue
        args = []
        for arg, keeps in zip(item.args, named_columns, strict=True):
            args.append(arg if isinstance(arg, str) or keeps else Variable(f"any#{count}"))
            count += not keeps
        body.append(replace(item, args=tuple(args)))
    return replace(clause, body=tuple(body))
