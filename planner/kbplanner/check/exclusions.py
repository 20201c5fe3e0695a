"""Premises that exclude each other: an atom and its absence, disjoint predicates, and two values of
a key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.terms import Atom, Comparison, Literal, Rule, Variable
from kbplanner.ir.values.comparison import test
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.syntax.constraints import CONTRADICTION, DISJOINT, KEY
from kbplanner.syntax.printer import print_item

MAX_PAIRS = 500
"""Pairs of atoms of one predicate in a body that are compared."""

RULES_PER_YIELD = 50
"""Rules examined between two calls of `yield_now`: about a millisecond."""

_Signed = tuple[str, int, bool]


class Exclusions:
    """Pairs of atoms that the constraints of some rules exclude."""

    def __init__(self, rules: Iterable[Rule], yield_now: YieldNow = go_on) -> None:
        self._disjoint: dict[_Signed, list[tuple[str, str | None]]] = defaultdict(list)
        self._keys: dict[_Signed, list[tuple[tuple[int, ...], int, str | None]]] = defaultdict(list)
        for rule in paced(rules, yield_now, RULES_PER_YIELD):
            first, second = (*rule.body, None, None)[:2]
            is_constraint = rule.head.predicate == CONTRADICTION and rule.head.arity == 3
            if not (is_constraint and isinstance(first, Literal) and isinstance(second, Literal)):
                continue
            left, right = first.atom, second.atom
            if rule.head.args[0] == DISJOINT:
                self._disjoint[_signed(left)].append((right.predicate, rule.scope))
                self._disjoint[_signed(right)].append((left.predicate, rule.scope))
            elif rule.head.args[0] == KEY:
                pairs = list(zip(left.args, right.args, strict=True))
                equal = tuple(
                    at for at, (left_arg, right_arg) in enumerate(pairs) if left_arg == right_arg
                )
                compared = {
                    (item.left, item.right) for item in rule.body if isinstance(item, Comparison)
                }
                differs = next((at for at, pair in enumerate(pairs) if pair in compared), None)
                if differs is not None:
                    self._keys[_signed(left)].append((equal, differs, rule.scope))

    def reason(self, rule: Rule) -> str | None:
        """Return why the premises of a rule exclude each other; None if they do not."""
        positive = [i.atom for i in rule.body if isinstance(i, Literal) and not i.negated]
        absent = [i.atom for i in rule.body if isinstance(i, Literal) and i.negated]
        by_predicate: dict[_Signed, list[Atom]] = defaultdict(list)
        for atom in positive:
            by_predicate[_signed(atom)].append(atom)
        for atom in absent:
            for other in by_predicate.get(_signed(atom), ()):
                if _covers(atom, other):
                    absence = print_item(Literal(atom, True))
                    return f"never fires: {print_item(Literal(other))} and {absence} contradict"
        if rule.head.predicate == CONTRADICTION:
            return None
        for first, second, word in self._excluded(by_predicate, rule.scope):
            atoms = f"{print_item(Literal(first))} and {print_item(Literal(second))}"
            return f"fires only where @{word} is violated: {atoms} exclude each other"
        return None

    def _excluded(
        self, by_predicate: dict[_Signed, list[Atom]], scope: str | None
    ) -> Iterator[tuple[Atom, Atom, str]]:
        """Yield the pairs of atoms that a constraint excludes, with its word."""
        for signed, atoms in by_predicate.items():
            for name, declared_scope in self._disjoint.get(signed, ()):
                others = by_predicate.get((name, *signed[1:]), ())
                if declared_scope in (None, scope):
                    for atom in atoms:
                        if atom.args and not _has_anonymous(atom):
                            yield from (
                                (atom, each, DISJOINT) for each in others if each.args == atom.args
                            )
            for equal, differs, declared_scope in self._keys.get(signed, ()):
                if declared_scope not in (None, scope):
                    continue
                for first, second in list(combinations(atoms, 2))[:MAX_PAIRS]:
                    same = all(
                        first.args[at] == second.args[at] and not _is_anonymous(first.args[at])
                        for at in equal
                    )
                    if same and _differ(first.args[differs], second.args[differs]):
                        yield first, second, KEY


def excluded_premises(
    rules: Sequence[Rule], yield_now: YieldNow = go_on
) -> Iterator[tuple[int, str]]:
    """Yield the index of each rule whose premises exclude each other, and the reason."""
    exclusions = Exclusions(rules, yield_now)
    for index, rule in paced(enumerate(rules), yield_now, RULES_PER_YIELD):
        if (reason := exclusions.reason(rule)) is not None:
            yield index, reason


def _signed(atom: Atom) -> _Signed:
    return atom.predicate, atom.arity, atom.positive


def _covers(absent: Atom, atom: Atom) -> bool:
    """Return True if the absence of one atom implies that of the other."""
    return all(
        _is_anonymous(term) or term == other
        for term, other in zip(absent.args, atom.args, strict=True)
    )


def _is_anonymous(term: object) -> bool:
    return isinstance(term, Variable) and term.anonymous


def _has_anonymous(atom: Atom) -> bool:
    return any(map(_is_anonymous, atom.args))


def _differ(left: object, right: object) -> bool:
    """Return True for two constants with different values."""
    if not (isinstance(left, str) and isinstance(right, str)):
        return False
    return test(COMPARISONS.index("!="), left, right)
