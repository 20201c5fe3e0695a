"""Recursion through negation, taken out of the program: components that need it become relations settled beforehand.

    win(?x) :- move(?x, ?y), not win(?y).

is a *negative component*: it depends on itself through absence. Its well-founded model is worked out by itself, in full
(`settle.py`), and gives two relations: the rows that are true, and the rows that are possible, true or undefined. To all
other rules they are facts. Where some row is undefined, what rests on it is evaluated twice, as a lower and an upper bound:
what is true follows from what is true and the absence of what is possible; what is possible follows from what is possible
and the absence of what is true: one step of the alternating fixpoint of Van Gelder (1993), which needs no other above the
component.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbplanner.errors import BudgetExceeded
from kbplanner.ir.program import Aggregation, Clause, ClauseAtom, ClauseItem, Program, components
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Term, Variable
from kbplanner.passes.verify import verify

TRUE, POSSIBLE = "true", "possible"

MAX_COLUMNS = 64
"""Columns a relation has at most; a rule with more variables in its recursive part has no instances as rows."""


@dataclass(frozen=True, slots=True)
class NegativeComponent:
    """Relations that depend on themselves through absence, and the clauses that conclude them."""

    relations: frozenset[RelationSchema]
    clauses: tuple[Clause, ...]

    @property
    def cycle(self) -> list[str]:
        """The predicates, with their signs, in a fixed order."""
        return sorted({str(schema.stored) for schema in self.relations})


def negative_components(clauses: Sequence[Clause]) -> tuple[NegativeComponent, ...]:
    """The negative components of lowered clauses, each after those it depends on."""
    found = []
    for part in components(clauses):
        own = tuple(clause for clause in clauses if clause.head.schema in part.relations)
        if any(item.absent and item.schema in part.relations for clause in own for item in _atoms(clause)):
            found.append(NegativeComponent(part.relations, own))
    return tuple(found)


def settled(relation: RelationSchema, truth: str) -> RelationSchema:
    """The relation that holds the true, or the possible, rows of one of a negative component."""
    return replace(relation, role=Role.STORED, source=relation.role, truth=truth)


def possible(relation: RelationSchema) -> RelationSchema:
    """The upper bound of a relation of conclusions that can have undefined rows."""
    return replace(relation, truth=POSSIBLE)


def uncertain(
    clauses: Sequence[Clause], parts: Iterable[NegativeComponent], undefined: Collection[RelationSchema]
) -> frozenset[RelationSchema]:
    """The relations that can have undefined rows, if those of `undefined`, of negative components, have some."""
    inside = {schema for part in parts for schema in part.relations}
    found = set(undefined)
    grown = True
    while grown:
        grown = False
        for clause in clauses:
            head = clause.head.schema
            if head not in found and head not in inside and any(item.schema in found for item in _atoms(clause)):
                found.add(head)
                grown = True
    return frozenset(found)


def apart(
    clauses: Sequence[Clause],
    parts: Sequence[NegativeComponent],
    undefined: Collection[RelationSchema],
    keep: bool = False,
) -> tuple[Clause, ...]:
    """The clauses with negative components taken out: their relations take over what was settled.

    With `keep` the clauses of negative components stay, and only what they ask to be absent is what was settled as not
    possible: they conclude the same, step by step, as proofs need it.
    """
    inside = {schema: part for part in parts for schema in part.relations}
    doubled = uncertain(clauses, parts, undefined)
    folds = {c.head.schema: sum(isinstance(item, Aggregation) for item in c.body) for c in clauses if c.aggregates}
    widths = {schema: schema.arity - count for schema, count in folds.items()}
    made: list[Clause] = []
    for clause in clauses:
        head = clause.head.schema
        if head not in inside:
            made.extend(_bounds(clause, doubled, widths) if head in doubled else [_bound(clause, TRUE, doubled)])
        elif keep:
            made.append(_bound(_reduct(clause, inside[head].relations), TRUE, doubled))
    for schema in sorted(inside, key=str):
        args = _numbered(schema.arity)
        if not keep:
            made.append(Clause(ClauseAtom(schema, args), (ClauseAtom(settled(schema, TRUE), args),)))
        if schema in doubled:
            made.append(Clause(ClauseAtom(possible(schema), args), (ClauseAtom(settled(schema, POSSIBLE), args),)))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Instances:
    """The relation of a clause's instances in a negative component, with a column for each of `variables`.

    `head` and `premises` are atoms of the component; an absent premise is one without anonymous variables. `sure` says that
    the rest of the body is true in these instances, not merely possible.
    """

    schema: RelationSchema
    variables: tuple[Variable, ...]
    head: ClauseAtom
    premises: tuple[ClauseAtom, ...]
    sure: bool


@dataclass(frozen=True, slots=True)
class Overestimate:
    """A program without recursion through absence that finds every instance that can matter to a negative component.

    `inverted` are relations whose absence depends on the component twice negated, which is not at all; `component.py`.
    Where instances have a sure and a merely possible form, the sure one follows.
    """

    program: Program
    instances: tuple[Instances, ...]
    inverted: frozenset[RelationSchema]


def overestimate(
    clauses: Sequence[Clause],
    parts: Sequence[NegativeComponent],
    part: NegativeComponent,
    undefined: Collection[RelationSchema],
) -> Overestimate:
    """The program for `part`, one of `parts`, where those before it are settled and have undefined rows in `undefined`.

    It leaves out what the component asks of itself to be absent. Raises BudgetExceeded for a clause with too many variables.
    """
    doubled = uncertain(clauses, parts, undefined) - part.relations
    twice = {s for s in part.relations if s.role is Role.UNDENIED and s.opposite.derived in part.relations}
    projections: dict[tuple[RelationSchema, tuple[bool, ...]], RelationSchema] = {}
    named = [_named(clause, part.relations, projections) for clause in part.clauses]
    for (schema, kept), projection in projections.items():
        args = _numbered(schema.arity)
        shown = tuple(arg for arg, keeps in zip(args, kept, strict=True) if keeps)
        named.append(Clause(ClauseAtom(projection, shown), (ClauseAtom(schema, args),)))
    inside = part.relations | set(projections.values())
    made: list[Clause] = []
    found: list[Instances] = []
    for clause in named:
        premises = tuple(item for item in _atoms(clause) if item.schema in inside)
        rest = tuple(i for i in clause.body if not (isinstance(i, ClauseAtom) and i.absent and i.schema in inside))
        columns = tuple(dict.fromkeys(v for atom in (clause.head, *premises) for v in atom.variables()))
        if len(columns) > MAX_COLUMNS:
            raise BudgetExceeded(
                f"a rule for {clause.head.schema.stored} has {len(columns)} variables in recursion through negation",
                "ruleVariables",
                MAX_COLUMNS,
                str(clause.rule),
            )
        double = any(item.schema in doubled for item in rest if isinstance(item, ClauseAtom))
        for bound in (POSSIBLE, TRUE) if double else (POSSIBLE,):
            schema = RelationSchema(str(len(found)), len(columns), role=Role.INSTANCE)
            found.append(Instances(schema, columns, clause.head, premises, sure=bound == TRUE or not double))
            made.append(replace(_bound(replace(clause, body=rest), bound, doubled), head=ClauseAtom(schema, columns)))
            if bound == POSSIBLE:
                made.append(Clause(clause.head, (ClauseAtom(schema, columns),), clause.rule))
    others = [other for other in parts if other is not part]
    below = apart([c for c in clauses if c.head.schema not in part.relations], others, undefined)
    goal = part.clauses[0].head.schema
    reached = _reached(below, [atom.schema for clause in made for atom in _atoms(clause)])
    program = Program((*reached, *made), goal, None, goal, tuple(range(goal.arity)))
    verify(program, "wellfounded")
    twice.update(projection for (schema, _), projection in projections.items() if schema in twice)
    return Overestimate(program, tuple(found), frozenset(twice))


def without(clauses: Sequence[Clause], relations: Collection[RelationSchema]) -> list[Clause]:
    """The clauses that do not rest on any of these relations of negative components."""
    found = set(relations)
    found.update(possible(schema) for schema in relations)
    grown = True
    while grown:
        resting = {clause.head.schema for clause in clauses if any(item.schema in found for item in _atoms(clause))}
        grown = not resting <= found
        found |= resting
    return [clause for clause in clauses if clause.head.schema not in found]


def _bounds(clause: Clause, doubled: Collection[RelationSchema], widths: Mapping[RelationSchema, int]) -> Iterator[Clause]:
    """The clauses for both bounds of a head; `widths` says how many arguments of GROUPS relations are those of the group.

    A group with an undefined binding has no value that is sure; the ones it has without and with such bindings are possible.
    """
    groups = [atom for atom in clause.atoms() if atom.schema.role is Role.GROUPS and atom.schema in doubled]
    lower = _bound(clause, TRUE, doubled)
    sure = (_unsure(atom, widths[atom.schema], absent=True) for atom in groups)
    yield replace(lower, body=(*lower.body, *sure))
    yield _bound(clause, POSSIBLE, doubled)
    if groups:
        yield replace(lower, head=replace(clause.head, schema=possible(clause.head.schema)))
    if clause.aggregates:
        (bindings,) = clause.atoms()
        some = replace(bindings, schema=possible(bindings.schema)), replace(bindings, absent=True)
        yield Clause(_unsure(clause.head, widths[clause.head.schema]), some)


def _unsure(groups: ClauseAtom, width: int, absent: bool = False) -> ClauseAtom:
    """That a group has undefined bindings."""
    schema = replace(groups.schema, arity=width, role=Role.DERIVED, truth="unsure")
    return ClauseAtom(schema, groups.args[:width], absent)


def _bound(clause: Clause, truth: str, doubled: Collection[RelationSchema]) -> Clause:
    """The clause for one bound of its head: of relations that have two, absence asks for the other one."""
    head = possible(clause.head.schema) if truth == POSSIBLE and clause.head.schema in doubled else clause.head.schema
    body = tuple(
        replace(item, schema=possible(item.schema))
        if isinstance(item, ClauseAtom) and item.schema in doubled and item.absent is (truth == TRUE)
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
    """The clause with names for anonymous variables of its premises; absent ones are asked of a projection instead."""
    count = 0
    body: list[ClauseItem] = []
    for item in clause.body:
        if not isinstance(item, ClauseAtom) or item.schema not in inside:
            body.append(item)
            continue
        kept = tuple(not (isinstance(arg, Variable) and arg.anonymous) for arg in item.args)
        if item.absent and not all(kept):
            made = RelationSchema(str(len(projections)), sum(kept), role=Role.PROJECTION)
            schema = projections.setdefault((item.schema, kept), made)
            shown = tuple(arg for arg, keeps in zip(item.args, kept, strict=True) if keeps)
            body.append(ClauseAtom(schema, shown, absent=True))
            continue
        args = []
        for arg, keeps in zip(item.args, kept, strict=True):
            args.append(arg if isinstance(arg, str) or keeps else Variable(f"any#{count}"))
            count += not keeps
        body.append(replace(item, args=tuple(args)))
    return replace(clause, body=tuple(body))


def _reached(clauses: Sequence[Clause], roots: Iterable[RelationSchema]) -> Iterator[Clause]:
    """The clauses that relations rest on, in their order."""
    heads: dict[RelationSchema, list[Clause]] = {}
    for clause in clauses:
        heads.setdefault(clause.head.schema, []).append(clause)
    todo = list(roots)
    reached = set(todo)
    while todo:
        for clause in heads.get(todo.pop(), ()):
            for atom in _atoms(clause):
                if atom.schema not in reached:
                    reached.add(atom.schema)
                    todo.append(atom.schema)
    return (clause for clause in clauses if clause.head.schema in reached)


def _atoms(clause: Clause) -> Iterator[ClauseAtom]:
    """The atoms of the body, absent ones as well."""
    return (item for item in clause.body if isinstance(item, ClauseAtom))


def _numbered(arity: int) -> tuple[Term, ...]:
    return tuple(Variable(f"a{i}") for i in range(arity))
