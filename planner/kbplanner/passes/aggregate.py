"""Translation of a rule with aggregates in its head to clauses, one of which counts and sums.

The distinct bindings of the body's named variables become a relation (BINDINGS), those of the group
first. A clause derives one row from it for each group (GROUPS), and the head takes its arguments
from there.

Before:

    total(?c, sum(?v)) :- order(?c, ?o, ?v).
    ?- total(?c, ?s).

After:

    bindings total#1/3(?c, ?o, ?v) :- order/3(?c, ?o, ?v).  % rule 1
    groups total#1/2(?c, ?sum#1) :- bindings total#1/3(?c, ?o, ?v), ?sum#1 := sum(?v).  % rule 1
    total/2(?c, ?sum#1) :- groups total#1/2(?c, ?sum#1).  % rule 1
    total/2(?a0, ?a1) :- total/2(?a0, ?a1).

`count(?x)` counts bindings of the group and `?x` alone, and `min`, `max` and `representative` need
no more either: they have a relation of these, derived from that of all bindings where another
aggregate of the head needs all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbplanner.errors import InvalidInput
from kbplanner.ir.limits import MAX_COLUMNS
from kbplanner.ir.operators import CHOICES
from kbplanner.ir.program import AggregateClause, Clause, ClauseAtom, ClauseItem, Computation
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Aggregate, Extremum, HeadTerm, Term, Variable


def aggregate(
    head: RelationSchema,
    terms: Sequence[HeadTerm],
    bodies: Sequence[tuple[ClauseItem, ...]],
    number: int,
    group_name: str,
) -> Iterator[Clause]:
    """Yield the clauses of a rule with these head terms, at least one an aggregate; any of `bodies`
    may hold.
    """
    group = tuple(dict.fromkeys(term for term in terms if isinstance(term, Variable)))
    everything = tuple(v for v in dict.fromkeys(_named(bodies)) if v not in group)
    aggregates = list(dict.fromkeys(term for term in terms if isinstance(term, Aggregate)))
    sources = _sources(aggregates, group, everything)
    if len(group) + max(len(everything), len(aggregates)) > MAX_COLUMNS:
        raise InvalidInput(f"a rule with an aggregate has at most {MAX_COLUMNS} variables")

    def schema(index: int, role: Role, more: int) -> RelationSchema:
        name = group_name + (f".{index}" if index else "")
        return RelationSchema(name, len(group) + more, head.positive, role)

    whole = ClauseAtom(schema(0, Role.BINDINGS, len(everything)), group + everything)
    if len(sources) > 1 or everything in sources:
        yield from (Clause(whole, body, number) for body in bodies)
        bodies = [(whole,)]
    values: dict[Aggregate, Variable] = {}
    parts: list[ClauseAtom] = []
    for index, (rest, folds) in enumerate(sources.items(), 1):
        bindings = whole
        if rest != everything:
            bindings = ClauseAtom(schema(index, Role.BINDINGS, len(rest)), group + rest)
            yield from (Clause(bindings, body, number) for body in bodies)
        targets = {
            aggregate: Variable(f"{aggregate.function}#{len(values) + i}")
            for i, aggregate in enumerate(folds, 1)
        }
        values.update(targets)
        aggregations = tuple(
            AggregateClause(target, term.function, term.variable)
            for term, target in targets.items()
        )
        groups_schema = schema(index if len(sources) > 1 else 0, Role.GROUPS, len(folds))
        groups = ClauseAtom(groups_schema, group + tuple(targets.values()))
        yield Clause(groups, (bindings, *aggregations), number)
        parts.append(groups)
    args: tuple[Term, ...] = tuple(
        values[term] if isinstance(term, Aggregate) else term
        for term in terms
        if not isinstance(term, Extremum)  # which stands beside no aggregate
    )
    yield Clause(ClauseAtom(head, args), tuple(parts), number)


def _sources(
    aggregates: Sequence[Aggregate], group: tuple[Variable, ...], everything: tuple[Variable, ...]
) -> dict[tuple[Variable, ...], list[Aggregate]]:
    """Return the aggregates by the variables beside the group whose bindings they need."""
    narrow = all(
        aggregate.function in CHOICES or _counts_values(aggregate) for aggregate in aggregates
    )
    sources: dict[tuple[Variable, ...], list[Aggregate]] = {}
    for aggregate in aggregates:
        alone = aggregate.variable is not None and (_counts_values(aggregate) or narrow)
        rest = (
            tuple(v for v in (aggregate.variable,) if v is not None and v not in group)
            if alone
            else everything
        )
        sources.setdefault(rest, []).append(aggregate)
    return sources


def _counts_values(aggregate: Aggregate) -> bool:
    return aggregate.function == "count" and aggregate.variable is not None


def _named(bodies: Sequence[tuple[ClauseItem, ...]]) -> Iterator[Variable]:
    """Yield the named variables of the author's, in the order in which they are bound."""
    for item in bodies[0]:
        if isinstance(item, ClauseAtom) and not item.absent:
            yield from item.variables()
        elif isinstance(item, Computation) and "#" not in item.target.name:
            yield item.target
