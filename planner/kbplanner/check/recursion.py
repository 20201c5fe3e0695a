"""Findings about recursion: through aggregates, best values, negation and computed values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbplanner.compile.rules import RuleSet
from kbplanner.errors import InvalidInput
from kbplanner.ir.extrema import ExtremumFinding, extremum_findings, mixed_extrema
from kbplanner.ir.program import Clause, aggregate_cycles
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Atom, Rule, extremum_of
from kbplanner.pacing import let_go, paced
from kbplanner.passes.linearise import linearise
from kbplanner.passes.lower import RULES_PER_YIELD, lower

REFUSED = ("recursive-aggregate", "mixed-extrema", "not-monotone")
"""Names of findings about rules that cannot be evaluated."""


@dataclass(frozen=True, slots=True)
class Recursion:
    """A finding about a rule: the name of its code, and the index of the rule."""

    name: str
    rule: int
    message: str
    hint: str


def recursion_findings(
    rules: Sequence[Rule], first: int, yield_now: Callable[[], None] = lambda: None
) -> Iterator[Recursion]:
    """Yield what the recursion of safe rules leads to; rules before index `first` are stored and
    are not reported. `yield_now` is called after some rules, and between the checks.

    Rules that recurse through an aggregate, or keep a best value in a way that cannot be evaluated,
    are left out of the later checks.
    """
    return _RecursionCheck(rules, first, yield_now).findings()


class _RecursionCheck:
    """The checks of one list of rules; each is of the rules that earlier ones do not refuse.

    `numbers` are the indexes of the rules whose clauses are checked, in order.
    """

    def __init__(self, rules: Sequence[Rule], first: int, yield_now: Callable[[], None]) -> None:
        self._rules = rules
        self._first = first
        self._yield_now = yield_now
        self._refused: set[int] = set()

    def findings(self) -> Iterator[Recursion]:
        """Yield all findings."""
        rules, yield_now = self._rules, self._yield_now
        lowered = _lowered(rules, yield_now)
        if lowered is None:
            yield from self._invalid()
        yield from self._mixed_extrema()
        numbers = self._numbers()
        yield_now()
        if lowered is None or self._refused:
            lowered = lower([rules[index] for index in numbers], yield_now=yield_now)
        clauses = linearise(lowered, yield_now)
        yield_now()
        yield from self._aggregates(clauses, numbers)
        yield from self._extrema(clauses, numbers)
        yield_now()
        yield from _accepted(rules, self._numbers(), self._first, yield_now)
        clauses_of_rules = [*lowered, *clauses]
        del lowered, clauses
        let_go(clauses_of_rules, yield_now)

    def _numbers(self) -> list[int]:
        """Return the indexes of the rules that are not refused."""
        return [index for index in range(len(self._rules)) if index not in self._refused]

    def _invalid(self) -> Iterator[Recursion]:
        for index in paced(range(self._first, len(self._rules)), self._yield_now, RULES_PER_YIELD):
            try:
                lower([self._rules[index]])
            except InvalidInput as error:
                self._refused.add(index)
                yield Recursion("invalid", index, error.message, "")

    def _mixed_extrema(self) -> Iterator[Recursion]:
        numbers = self._numbers()
        for finding in mixed_extrema([self._rules[index] for index in numbers], self._yield_now):
            indexes = [numbers[rule] for rule in finding.rules]
            self._refused.update(indexes)
            yield from _found(finding, indexes, self._first)

    def _aggregates(self, clauses: Sequence[Clause], numbers: Sequence[int]) -> Iterator[Recursion]:
        for cycle, inside in aggregate_cycles(clauses, self._yield_now):
            indexes = sorted({numbers[clause.rule - 1] for clause in inside if clause.rule})
            self._refused.update(indexes)
            names = [str(schema.stored) for schema in cycle if schema.role is Role.DERIVED]
            message, hint = _aggregate_texts(
                names, self._rules[indexes[0]].head if indexes else None
            )
            reported = [index for index in indexes if index >= self._first]
            if not reported:  # a new rule closes a cycle of stored ones
                closing = _rule_in(cycle, clauses, numbers, self._first)
                reported = [] if closing is None else [closing]
            for index in reported:
                yield Recursion("recursive-aggregate", index, message, hint)

    def _extrema(self, clauses: Sequence[Clause], numbers: Sequence[int]) -> Iterator[Recursion]:
        for finding in extremum_findings(clauses, self._yield_now):
            indexes = [numbers[rule] for rule in finding.rules]
            if all(index < self._first for index in indexes):
                # A new rule closes a cycle of stored ones.
                closing = _rule_in(finding.relations, clauses, numbers, self._first)
                indexes += [] if closing is None else [closing]
            self._refused.update(indexes)
            yield from _found(finding, indexes, self._first)


def _aggregate_texts(names: list[str], head: Atom | None) -> tuple[str, str]:
    """Return the message and the hint about recursion through an aggregate."""
    message = (
        f"recursion through an aggregate: the rules of {_listed(names)} would count what they "
        "conclude"
    )
    if head is None:
        return message, "aggregate over a predicate whose rules do not use the result"
    named = f"{head.predicate}/{head.arity}"
    return message, f"aggregate over a predicate whose rules do not depend on {named}"


def _lowered(rules: Sequence[Rule], yield_now: Callable[[], None]) -> tuple[Clause, ...] | None:
    """Return the rules lowered; None if one of them is not valid."""
    try:
        return lower(rules, yield_now=yield_now)
    except InvalidInput:
        return None


def _found(finding: ExtremumFinding, indexes: Sequence[int], first: int) -> Iterator[Recursion]:
    """Yield a finding for each rule that is not stored."""
    for index in indexes:
        if index >= first:
            yield Recursion(finding.name, index, finding.message, finding.hint)


def _accepted(
    rules: Sequence[Rule], numbers: Sequence[int], first: int, yield_now: Callable[[], None]
) -> Iterator[Recursion]:
    rule_set = RuleSet((rules[index] for index in numbers), yield_now=yield_now)
    for part in rule_set.negative_components(frozenset(), yield_now):
        yield_now()
        index = _rule_in(part.relations, part.clauses, numbers, first)
        if index is not None:
            yield Recursion(
                "negative-recursion",
                index,
                f"recursion through negation: {', '.join(part.cycle)}",
                "answers follow the well-founded semantics; includeUndefined shows what is neither "
                "true nor false",
            )
    for index in paced(numbers, yield_now, RULES_PER_YIELD):
        head = rules[index].head
        if (
            index >= first
            and extremum_of(head) is None
            and rules[index] in rule_set.computed_recursion
        ):
            sign = "" if head.positive else "~"
            yield Recursion(
                "endless",
                index,
                f"{sign}{head.predicate}/{head.arity} recurses through a computed value and may "
                "not end",
                "bound it, for instance with ?x < 100, or goals may meet their budget",
            )


def _rule_in(
    relations: Iterable[RelationSchema],
    clauses: Iterable[Clause],
    numbers: Sequence[int],
    first: int,
) -> int | None:
    """Return the first new rule that concludes one of some relations."""
    inside = frozenset(relations)
    indexes = (
        numbers[clause.rule - 1]
        for clause in clauses
        if clause.rule and clause.head.schema in inside
    )
    return min((index for index in indexes if index >= first), default=None)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)
