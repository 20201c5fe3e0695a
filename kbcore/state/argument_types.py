"""The types of arguments: a change is refused if it stores a fact whose arguments are not of the
types that a strict input declares, or declares types that stored facts do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kbcore.errors import Conflict, InvalidInput
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    Change,
    Declare,
    EndFacts,
    MergeScope,
    RestoredFact,
    RestoreFacts,
    RetractFact,
    RetractPattern,
    RetractRule,
    declares_inputs,
)
from kbcore.state.facts import Fact, FactKey, Row
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.rulebook import RuleBook
from kbcore.state.tenant import Tenant
from kbplanner.ir.inputs import Input
from kbplanner.ir.terms import Variable
from kbplanner.pacing import YieldNow, paced
from kbplanner.passes.check import shortened, type_mismatch
from kbplanner.syntax.printer import print_predicate, print_row

MAX_LISTED_FACTS = 10
"""Maximum number of stored facts that an error lists."""

FACTS_PER_YIELD = 500
"""Facts examined between two calls of `yield_now`: about a millisecond."""


def check_arguments(
    tenant: Tenant | None, changes: Sequence[Change], now: int, yield_now: YieldNow
) -> None:
    """Raise an error if changes store facts with arguments of other types than strict inputs
    declare (InvalidInput), or declare types that stored facts do not have (Conflict).

    `now` is in epoch milliseconds: facts that have ended before are not examined. `yield_now` is
    called about once a millisecond.
    """
    before = RuleBook() if tenant is None else tenant.rules
    declares = any(map(declares_inputs, changes))
    if not (declares or before.strict_count):
        return
    after = _declared(before, changes) if declares else before
    if not (after.strict_count or before.strict_count):
        return
    for change in changes:
        if isinstance(change, AssertFacts | RestoreFacts):
            _check_facts(after, change, yield_now)
        elif isinstance(change, AssertRows):
            for rows in change.rows:
                _check_rows(after, rows.scope, rows.predicate, rows.arity, rows.args, yield_now)
        elif isinstance(change, MergeScope) and tenant is not None:
            inputs = after.strict_inputs(change.target)
            for partition in tenant.partitions(change.source):
                _check_stored(tenant, partition, inputs.values(), _none, change.at, yield_now)
    if declares and tenant is not None:
        is_removed = _removals(changes)
        with tenant.lock.read():
            for partition in tenant.partitions():
                known = before.strict_inputs(partition.name)
                new = [
                    declared
                    for name, declared in after.strict_inputs(partition.name).items()
                    if name not in known or known[name].types != declared.types
                ]
                _check_stored(tenant, partition, new, is_removed, now, yield_now)


def type_problem(book: RuleBook, fact: Fact) -> str | None:
    """Return which argument of a fact is not of the type that a strict input declares, or None."""
    declared = book.strict_inputs(fact.scope).get((fact.predicate, len(fact.args)))
    at = None if declared is None else declared.mistyped(fact.args)
    if declared is None or at is None:
        return None
    return _mistyped(declared, fact.args, at, "").message


def _declared(before: RuleBook, changes: Sequence[Change]) -> RuleBook:
    """Return the rules as they are after the declarations of changes."""
    after = before.copy()
    for change in changes:
        if isinstance(change, Declare):
            for declaration in change.declarations:
                after.declare(declaration)
        elif isinstance(change, RetractRule):
            after.withdraw(change.scope, change.id)
    return after


def _check_facts(book: RuleBook, change: AssertFacts | RestoreFacts, yield_now: YieldNow) -> None:
    facts: Sequence[Fact | RestoredFact] = change.facts
    is_single = len(facts) == 1
    for number, fact in enumerate(paced(facts, yield_now, FACTS_PER_YIELD)):
        inputs = book.strict_inputs(fact.scope)
        declared = inputs.get((fact.predicate, len(fact.args))) if inputs else None
        if declared is not None and (at := declared.mistyped(fact.args)) is not None:
            raise _mistyped(declared, fact.args, at, "" if is_single else f"facts[{number}].")


def _check_rows(
    book: RuleBook,
    scope: str | None,
    predicate: str,
    arity: int,
    args: Sequence[str],
    yield_now: YieldNow,
) -> None:
    declared = book.strict_inputs(scope).get((predicate, arity))
    if declared is None:
        return
    for number, start in enumerate(paced(range(0, len(args), arity), yield_now, FACTS_PER_YIELD)):
        row = args[start : start + arity]
        if (at := declared.mistyped(row)) is not None:
            raise _mistyped(declared, row, at, f"facts[{number}].")


def _mistyped(declared: Input, args: Sequence[str], at: int, path: str) -> InvalidInput:
    """Return the error for a fact whose argument at an index is not of its type."""
    name, of_type, field = declared.args[at], declared.types[at], f"{path}args[{at}]"
    problem = type_mismatch(declared, args, at)
    return InvalidInput(
        f"{field}: {problem}",
        {
            "fields": {field: [problem]},
            "predicate": declared.predicate,
            "arity": declared.arity,
            "argument": name,
            "type": of_type,
        },
    )


# ---- stored facts ----


def _check_stored(
    tenant: Tenant,
    partition: Partition,
    inputs: Iterable[Input],
    is_removed: Callable[[FactKey], bool],
    now: int,
    yield_now: YieldNow,
) -> None:
    """Raise Conflict if stored facts of a partition are not of the types of strict inputs.

    Facts that have ended, and those that `is_removed`, do not count.
    """
    for declared in inputs:
        facts: list[str] = []
        for stored in partition.named(declared.predicate, declared.arity):
            for row in _mistyped_rows(tenant, stored, declared, yield_now):
                until, positive = row["validUntil"], not row["negated"]
                key = partition.name, declared.predicate, tuple(row["args"]), positive
                if (until is None or until > now) and not is_removed(key):
                    facts.append(
                        shortened(print_row(declared.predicate, row["args"], not positive))
                    )
                if len(facts) == MAX_LISTED_FACTS:
                    break
        if facts:
            args = f"{print_predicate(declared.predicate, 1)}({', '.join(declared.typed_args)})"
            raise Conflict(
                f"stored facts are not of the types that {args} declares: {', '.join(facts)}",
                {
                    "reason": "types",
                    "predicate": declared.predicate,
                    "arity": declared.arity,
                    "scope": partition.name,
                    "facts": facts,
                },
            )


def _mistyped_rows(
    tenant: Tenant, stored: StoredRelation, declared: Input, yield_now: YieldNow
) -> Iterator[Row]:
    """Yield the facts of a relation with an argument of another type."""
    arity = declared.arity
    for rows, ids in stored.relation.pieces([0] * arity, hidden=True):
        yield_now()
        texts = tenant.engine.texts_once(rows)
        wrong = [
            number
            for number in range(len(ids))
            if declared.mistyped(texts[number * arity : (number + 1) * arity]) is not None
        ]
        for number in wrong:
            row = rows[number * arity : (number + 1) * arity]
            yield from stored.rows(tenant.engine, row, ids[number : number + 1])


def _removals(changes: Sequence[Change]) -> Callable[[FactKey], bool]:
    """Return a function that returns True for the facts that changes remove or end."""
    keys: set[FactKey] = set()
    patterns: list[RetractPattern] = []
    for change in changes:
        if isinstance(change, RetractFact):
            for positive in (True, False) if change.positive is None else (change.positive,):
                keys.add((change.scope, change.predicate, change.args, positive))
        elif isinstance(change, EndFacts):
            keys.update(each.key for each in change.facts if each.until is None)
        elif isinstance(change, RetractPattern):
            patterns.append(change)
    return lambda key: key in keys or any(_matches(each, key) for each in patterns)


def _matches(change: RetractPattern, key: FactKey) -> bool:
    scope, predicate, args, positive = key
    if (scope, predicate, len(args)) != (change.scope, change.predicate, len(change.pattern)):
        return False
    if change.positive not in (None, positive):
        return False
    values: dict[str, str] = {}
    for term, arg in zip(change.pattern, args, strict=True):
        if isinstance(term, Variable):
            if not term.anonymous and values.setdefault(term.name, arg) != arg:
                return False
        elif term != arg:
            return False
    return True


def _none(key: FactKey) -> bool:
    return False
