"""COUNT, SUM, MIN, MAX and AVG over stored facts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kbcore.errors import InvalidInput
from kbcore.reason.as_of import valid_rows
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.compile.aggregates import total
from kbplanner.engine.backend import Total
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.terms import ANONYMOUS, Term
from kbplanner.ir.values.numbers import Number, answer_key, python_number
from kbplanner.syntax.diagnostics import counted

OPERATIONS = ("COUNT", "SUM", "MIN", "MAX", "AVG")


@dataclass(frozen=True, slots=True)
class AggregateQuery:
    """An aggregate over one argument of the positive stored facts of a predicate.

    `pattern` selects the facts; None selects facts of every arity. `arg_index` counts from 0 and is
    not needed for COUNT. `skip_non_numeric` leaves out values that are not numbers.
    """

    predicate: str
    op: str
    arg_index: int | None = None
    pattern: Sequence[Term] | None = None
    skip_non_numeric: bool = False


@dataclass(frozen=True, slots=True)
class AggregateOutcome:
    """The result (None for MIN, MAX, AVG of no facts) and the number of facts it covers."""

    result: int | float | None
    matched: int


def aggregate(
    tenant: Tenant,
    partitions: Iterable[Partition],
    query: AggregateQuery,
    as_of: int | None,
    budget: Budget,
) -> AggregateOutcome:
    """Return the aggregate over the facts that are valid now, or at `as_of`.

    Raises InvalidInput for an unknown operation, a missing argIndex or one that no matching fact
    has, and for a value that is not a number unless those are skipped; BudgetExceeded at the
    deadline.
    """
    op, arg_index, pattern = query.op.upper(), query.arg_index, query.pattern
    if op not in OPERATIONS:
        raise InvalidInput.at("op", f"must be one of {', '.join(OPERATIONS)}")
    if op != "COUNT" and arg_index is None:
        raise InvalidInput.at("argIndex", f"is required for {op}")
    matched = 0
    totals: list[Total] = []
    engine = tenant.engine
    for partition in partitions:
        for stored in partition.named(
            query.predicate, None if pattern is None else len(pattern), True
        ):
            arity = stored.schema.arity
            symbols = goal_pattern([ANONYMOUS] * arity if pattern is None else pattern, engine.find)
            if symbols is None:
                continue
            column = None if op == "COUNT" else _column(arg_index, arity)
            part = _total(tenant, stored, symbols, column, as_of, budget)
            matched += part.matched
            if op == "COUNT" or not part.matched:
                continue
            if column is None:
                raise InvalidInput.at(
                    "argIndex",
                    f"{query.predicate} has {counted(arity, 'argument')}, counted from 0",
                )
            if part.other and not query.skip_non_numeric:
                text = engine.text(part.other)
                raise InvalidInput(
                    f"'{text}' is not a number; skipNonNumeric leaves such values out",
                    {"value": text},
                )
            totals.append(part)
    if arg_index is not None and (
        arg_index < 0 or (pattern is not None and arg_index >= len(pattern))
    ):
        raise InvalidInput.at("argIndex", "is out of range")
    return AggregateOutcome(matched if op == "COUNT" else _result(tenant, op, totals), matched)


def _column(arg_index: int | None, arity: int) -> int | None:
    """Return the column that is aggregated; None if facts of this arity do not have it."""
    return arg_index if arg_index is not None and 0 <= arg_index < arity else None


def _total(
    tenant: Tenant,
    stored: StoredRelation,
    pattern: list[int],
    column: int | None,
    as_of: int | None,
    budget: Budget,
) -> Total:
    """Return the total of a column (None: only the count) over the facts that match now or at
    `as_of`.
    """
    if as_of is None:
        return stored.relation.total(pattern, column, budget.yield_now)
    rows, ids = valid_rows(stored, pattern, as_of, budget)
    if column is None:
        return Total(len(ids))
    values = rows[column :: stored.schema.arity]
    return total(values, dict(zip(values, tenant.engine.texts(values), strict=True)))


def _result(tenant: Tenant, op: str, totals: Sequence[Total]) -> Number | None:
    """Return the overall result.

    Integer sums are exact; mixed sums are rounded once, at the end.
    """
    if op in ("MIN", "MAX"):
        texts = [
            tenant.engine.text(part.least if op == "MIN" else part.greatest)
            for part in totals
            if part.numbers
        ]
        if not texts:
            return None
        value = python_number((min if op == "MIN" else max)(texts, key=answer_key))
        if value is None:
            raise InvalidInput(
                "the result is larger than any number that can be written", {"op": op}
            )
    else:
        count = sum(part.numbers for part in totals)
        if op == "AVG" and not count:
            return None
        value = _sum(totals)
        if op == "AVG" and value is not None:
            value /= count
    if isinstance(value, float) and math.isinf(value):
        raise InvalidInput(
            f"{op} has no value: it or one of the numbers is beyond 64 bits or the doubles",
            {"op": op},
        )
    return value


def _sum(totals: Sequence[Total]) -> Number:
    integers = sum(part.whole for part in totals)
    reals = [part.reals for part in totals if part.reals is not None]
    if not reals:
        return integers
    try:
        return math.inf if any(part.infinite for part in totals) else float(sum(reals) + integers)
    except OverflowError:
        return math.inf
