"""Places that only one fact can take: its atom of either sign, and what a declared `@key` names.

Two facts that take the same place with different values are rivals; a conflict strategy decides
between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbcore.state.facts import Fact
from kbplanner.ir.terms import Comparison, Literal, Rule, Term, Variable
from kbplanner.ir.values.comparison import is_equal
from kbplanner.syntax.constraints import CONTRADICTION, KEY


@dataclass(frozen=True, slots=True)
class ScopePlace:
    """One place that a fact takes.

    `fixed` are the arguments that its rivals have too, None for any. `differing` is the number of
    the argument in which they differ, None for facts of the other sign.
    """

    scope: str | None
    predicate: str
    fixed: tuple[str | None, ...]
    differing: int | None

    @property
    def pattern(self) -> tuple[Term, ...]:
        """The arguments of rivals, as a pattern of stored facts."""
        return tuple(
            Variable(f"any{index}") if arg is None else arg for index, arg in enumerate(self.fixed)
        )

    def sign_of_rivals(self, fact: Fact) -> bool:
        """Return the sign of the rivals of a fact that takes this place."""
        return not fact.positive if self.differing is None else fact.positive

    def are_rivals(self, fact: Fact, args: Iterable[str], positive: bool) -> bool:
        """Return True if another fact that takes this place is a rival of the given one."""
        if positive != self.sign_of_rivals(fact):
            return False
        if self.differing is None:
            return True
        return not is_equal(fact.args[self.differing], list(args)[self.differing])


Keys = Mapping[tuple[str, int], Sequence[Rule]]
"""The rules of declared keys, by the names and arities of their predicates."""


def keys_of(rules: Iterable[Rule]) -> Keys:
    """Return the declared keys among rules."""
    keys: dict[tuple[str, int], list[Rule]] = {}
    for rule in rules:
        if rule.head.predicate == CONTRADICTION and rule.head.args[0] == KEY:
            first = next(item.atom for item in rule.body if isinstance(item, Literal))
            keys.setdefault((first.predicate, first.arity), []).append(rule)
    return keys


def opposite_place(fact: Fact) -> ScopePlace:
    """Return the place that a fact and its opposite take."""
    return ScopePlace(fact.scope, fact.predicate, fact.args, None)


def places_of(fact: Fact, keys: Keys) -> Iterator[ScopePlace]:
    """Yield the places that a fact takes, that of its opposite first."""
    yield opposite_place(fact)
    if fact.positive and keys:
        for rule in keys.get((fact.predicate, len(fact.args)), ()):
            claim = _key_place(fact, rule)
            if claim is not None:
                yield claim


def _key_place(fact: Fact, rule: Rule) -> ScopePlace | None:
    """Return the place of a fact under the rule of a key of its predicate, None if it concerns
    others.
    """
    first, second = (item.atom for item in rule.body[:2] if isinstance(item, Literal))
    differing = differing_in(rule)
    values: dict[Variable, str] = {}
    fixed: list[str | None] = []
    for term, other, arg in zip(first.args, second.args, fact.args, strict=True):
        expected = values.setdefault(term, arg) if isinstance(term, Variable) else term
        if expected != arg:
            return None
        fixed.append(arg if term == other else None)
    return ScopePlace(fact.scope, fact.predicate, tuple(fixed), differing)


def claim_of(rule: Rule) -> tuple[int, ...] | None:
    """Return the numbers of the arguments that rivals under the rule of a key have alike; None if
    the rule concerns some facts only.
    """
    first, second = (item.atom for item in rule.body[:2] if isinstance(item, Literal))
    if not all(isinstance(term, Variable) for term in first.args):
        return None
    if len({*first.args}) < first.arity:
        return None
    pairs = zip(first.args, second.args, strict=True)
    return tuple(index for index, (term, other) in enumerate(pairs) if term == other)


def differing_in(rule: Rule) -> int:
    """Return the number of the argument in which two facts violate a key."""
    first = next(item.atom for item in rule.body if isinstance(item, Literal))
    comparison = next(
        item for item in rule.body if isinstance(item, Comparison) and item.op == "!="
    )
    return first.args.index(comparison.left)
