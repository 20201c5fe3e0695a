"""COUNT, SUM, MIN, MAX and AVG over stored facts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kbcore.errors import InvalidInput
from kbcore.reason.match import matching
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.numbers import Number, number
from kbplanner.terms import ANONYMOUS, Term

OPERATIONS = ("COUNT", "SUM", "MIN", "MAX", "AVG")


@dataclass(frozen=True, slots=True)
class AggregateOutcome:
    """The result (None for MIN, MAX, AVG of nothing) and how many facts it was taken over."""

    result: int | float | None
    matched: int


def aggregate(
    tenant: Tenant,
    partitions: Iterable[Partition],
    predicate: str,
    op: str,
    arg_index: int | None,
    pattern: Sequence[Term] | None,
    skip_non_numeric: bool,
    as_of: int | None,
) -> AggregateOutcome:
    """Aggregate one argument of the positive, currently valid facts of a predicate that match a pattern (None: any arity).

    Raises InvalidInput for an unknown operation, a missing argIndex or one that no matching fact has, and for a value
    that is not a number unless those are skipped.
    """
    if op not in OPERATIONS:
        raise InvalidInput.at("op", f"must be one of {', '.join(OPERATIONS)}")
    if op != "COUNT" and arg_index is None:
        raise InvalidInput.at("argIndex", f"is required for {op}")
    matched = 0
    values: list[Number] = []
    for partition in partitions:
        for stored in partition.named(predicate, None if pattern is None else len(pattern), True):
            arity = stored.schema.arity
            terms: Sequence[Term] = [ANONYMOUS] * arity if pattern is None else pattern
            for _, rows, ids in matching(tenant, partition, predicate, terms, True, as_of):
                matched += len(ids)
                if op == "COUNT" or not len(ids) or arg_index is None:
                    continue
                if not 0 <= arg_index < arity:
                    raise InvalidInput.at("argIndex", f"{predicate} has {arity} arguments, counted from 0")
                values.extend(_numbers(tenant.engine.texts(rows[arg_index::arity]), skip_non_numeric))
    if arg_index is not None and (arg_index < 0 or (pattern is not None and arg_index >= len(pattern))):
        raise InvalidInput.at("argIndex", "is out of range")
    return AggregateOutcome(matched if op == "COUNT" else _result(op, values), matched)


def _numbers(texts: Iterable[str], skip: bool) -> Iterable[Number]:
    for text in texts:
        value = number(text)
        if value is not None:
            yield value
        elif not skip:
            raise InvalidInput(f"'{text}' is not a number; skipNonNumeric leaves such values out", {"value": text})


def _result(op: str, values: Sequence[Number]) -> int | float | None:
    if op == "SUM":
        return _sum(values)
    if not values:
        return None
    if op == "AVG":
        return _sum(values) / len(values)
    return min(values) if op == "MIN" else max(values)


def _sum(values: Sequence[Number]) -> Number:
    """Exact for integers; correctly rounded where floats are among them."""
    if all(isinstance(value, int) for value in values):
        return sum(values)
    return math.fsum(values)
