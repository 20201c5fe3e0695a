"""Comparison of two states of a scope: facts and conclusions whose truth differs.

Only predicates that depend on something changed are compared. They are taken component by component
of the dependency graph, each after those that it depends on. A component is evaluated in both
states only if its rules or facts differ, or if the truth of something that it reads does. The
conclusions of both states are relations of one engine, which compares them as sets. Differences
that were found from the changes of facts are only listed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain, compress
from typing import Protocol

from kbcore.errors import BudgetExceeded
from kbcore.reason.budget import Budget
from kbcore.reason.view import (
    all_conclusions,
    conclusions_together,
    independent_batches,
    viewed,
)
from kbcore.retraction.rows import Difference
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import NO_ROW, Engine, Relation
from kbplanner.ir.program import Clause, ClauseAtom, components
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Literal
from kbplanner.pacing import let_go, sorted_in_parts
from kbplanner.passes.wellfounded import POSSIBLE
from kbplanner.syntax.printer import print_atom
from kbtypes.results import PredicateChange, TruthChange

MIN_TOGETHER = 4
"""Number of changed predicates from which on they are evaluated in one run."""

COMPONENTS_PER_YIELD = 100
"""Rules or components looked at between two calls of `yield_now`: about a millisecond."""


RULES_PER_YIELD = 500
"""Rules put in a table, which makes the hash of each, between two calls of `yield_now`."""

CHANGES_PER_YIELD = 100
"""Changes made between two calls of `yield_now`: about a millisecond."""

ROWS_PER_YIELD = 5000
"""Rows looked up in a relation between two calls of `yield_now`: about a millisecond."""


class TruthValue(str, Enum):
    """The truth of an atom."""

    TRUE = "true"
    FALSE = "false"
    UNDEFINED = "undefined"


class ComparisonLists(Protocol):
    """The lists that a comparison adds to."""

    becomes_true: list[TruthChange]
    becomes_false: list[TruthChange]
    becomes_undefined: list[TruthChange]
    by_predicate: list[PredicateChange]


@dataclass(frozen=True, slots=True)
class State:
    """One state of a scope: its tenant, its facts, and the rules that are valid in it."""

    tenant: Tenant
    partition: Partition
    rules: RuleSet


@dataclass(frozen=True, slots=True)
class TruthComparison:
    """Two states of a scope, the stored relations that may differ, and the heads of the rules that
    do.
    """

    before: State
    after: State
    facts: frozenset[RelationSchema]
    heads: frozenset[RelationSchema]


@dataclass(frozen=True, slots=True)
class _Extension:
    """The true rows of a predicate in one state, and those that are true or undefined.

    Both are the same relation if no row is undefined.
    """

    true: Relation
    possible: Relation


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of `arity` symbols one after the other in a flat array, in answer order."""

    symbols: array[int]
    count: int
    arity: int

    def part(self, places: range) -> _Rows:
        """Return the rows at some places."""
        start, stop = places.start * self.arity, places.stop * self.arity
        return _Rows(self.symbols[start:stop], len(places), self.arity)


def compare_truth(
    comparison: TruthComparison, limit: int, budget: Budget, outcome: ComparisonLists
) -> None:
    """Add the differences to `outcome`, at most `limit` to each list.

    The caller holds the read locks of both states. Raises BudgetExceeded.
    """
    changed: set[RelationSchema] = set()
    roots = comparison.facts | comparison.heads
    with ExitStack() as open_runs:
        befores, afters = (
            _extensions(state, roots, budget, open_runs)
            for state in (comparison.before, comparison.after)
        )
        for extensions in befores, afters:
            open_runs.callback(let_go, extensions, budget.give_way)
        order = _in_order(comparison, budget)
        open_runs.callback(let_go, order, budget.give_way)
        for schemas, reads in budget.paced(order, COMPONENTS_PER_YIELD):
            if roots.isdisjoint(schemas) and changed.isdisjoint(reads):
                continue
            for schema in schemas:
                budget.yield_now()
                with ExitStack() as own_runs:
                    before = befores.get(schema) or _extension(
                        comparison.before, schema, budget, own_runs
                    )
                    after = afters.get(schema) or _extension(
                        comparison.after, schema, budget, own_runs
                    )
                    if _compare(comparison, schema, (before, after), limit, budget, outcome):
                        changed.add(schema)


def list_differences(
    comparison: TruthComparison,
    changes: Mapping[RelationSchema, Difference],
    limit: int,
    budget: Budget,
    outcome: ComparisonLists,
) -> None:
    """Add differences that are known already, of atoms that are true or false in both states.

    The caller holds the read locks of both states. Raises BudgetExceeded.
    """
    order = _in_order(comparison, budget)
    engine = comparison.before.tenant.engine
    for schemas, _ in budget.paced(order, COMPONENTS_PER_YIELD):
        for schema in schemas:
            difference = changes.get(schema)
            if difference is not None:
                true, false = (
                    _Rows(
                        engine.sort(rows.symbols, schema.arity, budget.offload, in_place=True),
                        rows.count,
                        schema.arity,
                    )
                    for rows in difference
                )
                undefined = _Rows(array("I"), 0, schema.arity)
                _report(comparison, schema, (true, false, undefined), None, limit, budget, outcome)
    let_go(order, budget.give_way)


def new_rows(
    comparison: TruthComparison, schema: RelationSchema, budget: Budget
) -> Iterator[list[str]]:
    """Yield the arguments of the atoms of one predicate that become true.

    The caller holds the read locks of both states. Raises BudgetExceeded.
    """
    with ExitStack() as open_runs:
        before = _extension(comparison.before, schema, budget, open_runs).true
        after = _extension(comparison.after, schema, budget, open_runs).true
        rows = after.rows(before.compare(after).only_there)
        texts = comparison.after.tenant.engine.texts(rows)
        for start in range(0, len(texts), schema.arity):
            yield texts[start : start + schema.arity]


def _in_order(
    comparison: TruthComparison, budget: Budget
) -> list[tuple[list[RelationSchema], frozenset[RelationSchema]]]:
    """Return the components of all rules before and after, each after those it depends on, with the
    schemas that each reads. Stored predicates without rules come first.
    """
    reads: dict[RelationSchema, set[RelationSchema]] = {}
    clauses = []
    states = comparison.before, comparison.after
    rules = dict.fromkeys(
        budget.paced(chain.from_iterable(state.rules.rules for state in states), RULES_PER_YIELD)
    )
    for rule in budget.paced(rules, COMPONENTS_PER_YIELD):
        head = RelationSchema(rule.head.predicate, rule.head.arity, rule.head.positive)
        read = [
            RelationSchema(item.atom.predicate, item.atom.arity, positive)
            for item in rule.body
            if isinstance(item, Literal)
            for positive in (True, False)  # `not p` depends on the explicit negative, too
        ]
        reads.setdefault(head, set()).update(read)
        body = tuple(ClauseAtom(schema, ()) for schema in read)
        clauses.append(Clause(ClauseAtom(head, ()), body))
    yield_now = budget.yield_now
    unruled = (schema for schema in budget.paced(comparison.facts) if schema not in reads)
    order = [
        ([schema], frozenset[RelationSchema]())
        for schema in budget.paced(sorted_in_parts(unruled, yield_now, str))
    ]
    for part in budget.paced(components(clauses, yield_now), COMPONENTS_PER_YIELD):
        schemas = sorted_in_parts(part.relations, yield_now, str)
        part_reads: set[RelationSchema] = set()
        for schema in budget.paced(schemas):
            part_reads.update(reads[schema])
        order.append((schemas, frozenset(part_reads)))
    for container in rules, clauses, reads:
        let_go(container, budget.give_way)
    return order


def _extensions(
    state: State, schemas: Iterable[RelationSchema], budget: Budget, open_runs: ExitStack
) -> dict[RelationSchema, _Extension]:
    """Return the rows of several predicates in one state, as far as they have rules and no
    undefined rows, from few runs: a program for each would be compiled for all that it depends on.

    Empty if there are few. Those are missing that together exceed a limit of a run.
    """
    ruled = (each for each in budget.paced(schemas) if each in state.rules.derived)
    derived = sorted_in_parts(ruled, budget.yield_now, str)
    if len(derived) < MIN_TOGETHER:
        return {}
    tenant, partition = state.tenant, state.partition
    view = open_runs.enter_context(viewed(tenant, partition, state.rules, derived, budget))
    certain = [
        each
        for each in budget.paced(derived, COMPONENTS_PER_YIELD)
        if not view.rules.uncertain(view.denied, each)
    ]
    extensions: dict[RelationSchema, _Extension] = {}
    for batch in independent_batches(view, certain, budget):
        try:
            relations = conclusions_together(tenant.engine, view, batch, budget, open_runs)
        except BudgetExceeded as error:
            if (error.details or {}).get("limit") == "timeMs":
                raise
            continue
        for each, relation in budget.paced(relations.items()):
            extensions[each] = _Extension(relation, relation)
    return extensions


def _extension(
    state: State, schema: RelationSchema, budget: Budget, open_runs: ExitStack
) -> _Extension:
    """Return the rows of a predicate in one state, which live until `open_runs` is closed."""
    tenant, partition, rules = state.tenant, state.partition, state.rules
    if schema not in rules.derived:
        stored = partition.get(schema)
        if stored is None:  # `bind` would leave an empty relation in the tenant
            rows = tenant.engine.relation(schema.arity)
            open_runs.callback(rows.drop)
        else:
            rows = _visible(tenant.engine, stored.relation, budget, open_runs)
        return _Extension(rows, rows)
    view = open_runs.enter_context(viewed(tenant, partition, rules, (schema,), budget))
    true = all_conclusions(tenant, view, schema, budget, open_runs)
    if not view.rules.uncertain(view.denied, schema):
        return _Extension(true, true)
    possible = replace(schema, truth=POSSIBLE)
    return _Extension(true, all_conclusions(tenant, view, possible, budget, open_runs))


def _visible(engine: Engine, stored: Relation, budget: Budget, open_runs: ExitStack) -> Relation:
    """Return the facts of a stored relation that are valid now."""
    counts = stored.counts()
    if counts.visible == counts.live:
        return stored
    visible = engine.relation(stored.arity)
    open_runs.callback(visible.drop)
    rows = stored.match_rows([0] * stored.arity, budget.yield_now)
    visible.insert(rows, counts.visible)
    return visible


def _compare(
    comparison: TruthComparison,
    schema: RelationSchema,
    extensions: tuple[_Extension, _Extension],
    limit: int,
    budget: Budget,
    outcome: ComparisonLists,
) -> bool:
    """Add the differences of one predicate; return True if there are any."""
    before, after = extensions
    engine = comparison.before.tenant.engine

    def ordered(relation: Relation, ids: array[int]) -> _Rows:
        symbols = relation.rows(ids)
        rows = engine.sort(symbols, schema.arity, budget.offload, in_place=True)
        return _Rows(rows, len(ids), schema.arity)

    true = ordered(after.true, before.true.compare(after.true).only_there)
    false = ordered(before.possible, before.possible.compare(after.possible).only_here)
    undefined = _Rows(array("I"), 0, schema.arity)
    if after.possible is not after.true:
        open_rows = ordered(after.possible, after.possible.compare(after.true).only_here)
        undefined = _chosen(
            open_rows,
            (
                was_true or not was_possible
                for was_true, was_possible in zip(
                    _has(before.true, open_rows, budget),
                    _has(before.possible, open_rows, budget),
                    strict=True,
                )
            ),
            budget,
        )
    rows = true, false, undefined
    return _report(comparison, schema, rows, before, limit, budget, outcome)


def _report(
    comparison: TruthComparison,
    schema: RelationSchema,
    rows_of: tuple[_Rows, _Rows, _Rows],
    before: _Extension | None,
    limit: int,
    budget: Budget,
    outcome: ComparisonLists,
) -> bool:
    """Add the atoms of one predicate that become true, false and undefined; return True if there
    are any.

    `before` has the rows of the earlier state; None: those that become true were false.
    """
    true, false, undefined = rows_of
    if not (true.count or false.count or undefined.count):
        return False
    for rows, target, state in (
        (true, outcome.becomes_true, comparison.after),
        (false, outcome.becomes_false, comparison.before),
        (undefined, outcome.becomes_undefined, comparison.after),
    ):
        listed = rows.part(range(min(rows.count, max(limit - len(target), 0))))
        for part in budget.slices(listed.count, CHANGES_PER_YIELD):
            page = listed.part(part)
            was = [TruthValue.TRUE if rows is false else TruthValue.FALSE] * page.count
            if before is not None:
                was = _truth_of(before, page, budget)
            target += _changes(state, schema, page, was, budget)
    outcome.by_predicate.append(
        PredicateChange(
            schema.predicate,
            schema.arity,
            not schema.positive,
            comparison.after.partition.name,
            true.count,
            false.count,
            undefined.count,
        )
    )
    return True


def _truth_of(extension: _Extension, rows: _Rows, budget: Budget) -> list[TruthValue]:
    """Return the truth of each row."""
    true, possible = (
        _has(relation, rows, budget) for relation in (extension.true, extension.possible)
    )
    return [
        TruthValue.FALSE
        if not is_possible
        else TruthValue.TRUE
        if is_true
        else TruthValue.UNDEFINED
        for is_true, is_possible in zip(true, possible, strict=True)
    ]


def _changes(
    state: State,
    schema: RelationSchema,
    rows: _Rows,
    was: Sequence[TruthValue],
    budget: Budget,
) -> Iterator[TruthChange]:
    """Yield rows in their external form; `was` is the truth of each before."""
    arity = schema.arity
    texts = state.tenant.engine.texts(rows.symbols)
    stored = _visible_flags(state.partition, schema, rows, budget)
    for index in range(rows.count):
        args = tuple(texts[index * arity : (index + 1) * arity])
        yield TruthChange(
            schema.predicate,
            args,
            not schema.positive,
            state.partition.name,
            print_atom(Atom(schema.predicate, args, schema.positive)),
            stored[index],
            was[index].value,
        )


def _visible_flags(
    partition: Partition, schema: RelationSchema, rows: _Rows, budget: Budget
) -> list[bool]:
    """Return for each row whether it is a stored fact that is valid now."""
    stored = partition.get(schema)
    if stored is None:
        return [False] * rows.count
    if not stored.limited:
        return _has(stored.relation, rows, budget)
    return [
        bool(len(stored.relation.match(rows.part(range(i, i + 1)).symbols, limit=1)[1]))
        for i in budget.paced(range(rows.count), CHANGES_PER_YIELD)
    ]


def _has(relation: Relation, rows: _Rows, budget: Budget) -> list[bool]:
    """Return for each row whether a relation has it."""
    flags: list[bool] = []
    for part in budget.slices(rows.count, ROWS_PER_YIELD):
        ids = relation.locate(rows.part(part).symbols, len(part))
        flags += [index != NO_ROW for index in ids]
    return flags


def _chosen(rows: _Rows, flags: Iterable[bool], budget: Budget) -> _Rows:
    """Return the rows with a true flag."""
    indexes: Sequence[int] = list(compress(budget.paced(range(rows.count)), flags))
    symbols = array("I")
    for index in budget.paced(indexes):
        symbols.extend(rows.part(range(index, index + 1)).symbols)
    return _Rows(symbols, len(indexes), rows.arity)
