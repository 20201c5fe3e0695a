"""A rule with aggregates in its head to clauses, of which one counts and sums.

The distinct bindings of the body's named variables become a relation (BINDINGS), those of the group first; a clause makes
one row of it for each group (GROUPS); the head takes its arguments from there:

    total(?c, sum(?v)) :- order(?c, ?o, ?v).

    bindings total#1/3(?c, ?o, ?v) :- order(?c, ?o, ?v).
    groups total#1/2(?c, ?sum#1) :- bindings total#1/3(?c, ?o, ?v), ?sum#1 := sum(?v).
    total/2(?c, ?sum#1) :- groups total#1/2(?c, ?sum#1).

`count(?x)` counts bindings of the group and `?x` alone, and `min` and `max` need no more either: they have a relation of
these, made from that of all bindings where another aggregate of the head needs all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbplanner.errors import InvalidInput
from kbplanner.ir.limits import MAX_COLUMNS
from kbplanner.ir.program import Aggregation, Clause, ClauseAtom, ClauseItem, Computation
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Aggregate, HeadTerm, Term, Variable


def aggregate(
    head: RelationSchema, terms: Sequence[HeadTerm], bodies: Sequence[tuple[ClauseItem, ...]], number: int
) -> Iterator[Clause]:
    """The clauses of a rule with these head terms, one of which at least is an aggregate; any of `bodies` may hold."""
    group = tuple(dict.fromkeys(term for term in terms if isinstance(term, Variable)))
    everything = tuple(v for v in dict.fromkeys(_named(bodies)) if v not in group)
    wanted = list(dict.fromkeys(term for term in terms if isinstance(term, Aggregate)))
    narrow = all(one.function in ("min", "max") or _counts_values(one) for one in wanted)
    sources: dict[tuple[Variable, ...], list[Aggregate]] = {}
    for one in wanted:
        alone = one.variable is not None and (_counts_values(one) or narrow)
        rest = tuple(v for v in (one.variable,) if v is not None and v not in group) if alone else everything
        sources.setdefault(rest, []).append(one)
    if len(group) + max(len(everything), len(wanted)) > MAX_COLUMNS:
        raise InvalidInput(f"a rule with an aggregate has at most {MAX_COLUMNS} variables")

    def schema(place: int, role: Role, more: int) -> RelationSchema:
        name = f"{head.predicate}#{number}" + (f".{place}" if place else "")
        return RelationSchema(name, len(group) + more, head.positive, role)

    whole = ClauseAtom(schema(0, Role.BINDINGS, len(everything)), group + everything)
    if len(sources) > 1 or everything in sources:
        yield from (Clause(whole, body, number) for body in bodies)
        bodies = [(whole,)]
    values: dict[Aggregate, Variable] = {}
    parts: list[ClauseAtom] = []
    for place, (rest, folds) in enumerate(sources.items(), 1):
        bindings = whole
        if rest != everything:
            bindings = ClauseAtom(schema(place, Role.BINDINGS, len(rest)), group + rest)
            yield from (Clause(bindings, body, number) for body in bodies)
        targets = {one: Variable(f"{one.function}#{len(values) + i}") for i, one in enumerate(folds, 1)}
        values.update(targets)
        made = tuple(Aggregation(target, one.function, one.variable) for one, target in targets.items())
        made_as = schema(place if len(sources) > 1 else 0, Role.GROUPS, len(folds))
        groups = ClauseAtom(made_as, group + tuple(targets.values()))
        yield Clause(groups, (bindings, *made), number)
        parts.append(groups)
    args: tuple[Term, ...] = tuple(values[term] if isinstance(term, Aggregate) else term for term in terms)
    yield Clause(ClauseAtom(head, args), tuple(parts), number)


def _counts_values(one: Aggregate) -> bool:
    return one.function == "count" and one.variable is not None


def _named(bodies: Sequence[tuple[ClauseItem, ...]]) -> Iterator[Variable]:
    """The variables of the author's, where they get their values."""
    for item in bodies[0]:
        if isinstance(item, ClauseAtom) and not item.absent:
            yield from item.variables()
        elif isinstance(item, Computation) and "#" not in item.target.name:
            yield item.target
