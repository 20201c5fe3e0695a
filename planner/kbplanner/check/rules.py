"""Warnings that need all rules of the checked texts: rules that never fire and shadowed rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    Expr,
    Extremum,
    HeadTerm,
    Literal,
    Rule,
    Variable,
)
from kbplanner.ir.values.comparison import order, test
from kbplanner.ir.values.numbers import is_number
from kbplanner.pacing import YieldNow, go_on, paced

Signature = tuple[str, int]
"""A predicate by name and arity."""

MAX_MATCHES = 50_000
"""Number of comparisons of rules and body items after which the search for shadowed rules ends."""

MAX_PAIRS = 4_000_000
"""Number of pairs of rules with the same head, compared or not, after which that search ends."""

RULES_PER_YIELD = 200
"""Rules, or comparisons of items, between two calls of `yield_now`: about a millisecond."""

_LOWER, _UPPER = (">", ">="), ("<", "<=")


# ---- rules that never fire ----


def contradiction(rule: Rule) -> str | None:
    """Return a reason why the comparisons of a body cannot hold together; None without one.

    Only comparisons of a variable with a constant are examined.
    """
    bounds: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for item in rule.body:
        if isinstance(item, Comparison) and item.op in COMPARISONS and not item.negated:
            variable, op, constant = _bound(item)
            if variable is not None:
                bounds[variable].append((op, constant))
    for name, own in bounds.items():
        for index, (op, constant) in enumerate(own):
            for other_op, other in own[:index]:
                if _contradict((op, constant), (other_op, other)):
                    return f"?{name} {other_op} {other} and ?{name} {op} {constant} contradict"
    return None


def _bound(item: Comparison) -> tuple[str | None, str, str]:
    """Return a comparison as variable, operator and constant."""
    left, right, op = item.left, item.right, item.op
    if isinstance(left, str) and isinstance(right, Variable):
        left, right = right, left
        op = op.replace("<", "\0").replace(">", "<").replace("\0", ">")
    if isinstance(left, Variable) and isinstance(right, str) and not left.anonymous:
        return left.name, op, right
    return None, op, ""


def _contradict(first: tuple[str, str], second: tuple[str, str]) -> bool:
    for (op, constant), (other_op, other) in ((first, second), (second, first)):
        if op in ("=", "=="):
            # Equal values satisfy the same comparisons, except that == and !== compare texts.
            exact = other_op in ("==", "!==") and op == "="
            return not exact and not test(COMPARISONS.index(other_op), constant, other)
    low, high = (first, second) if first[0] in _LOWER else (second, first)
    if low[0] not in _LOWER or high[0] not in _UPPER:
        return False
    if not (is_number(low[1]) and is_number(high[1])):
        return False
    sign = order(low[1], high[1])
    return sign is not None and (sign > 0 or (sign == 0 and (low[0], high[0]) != (">=", "<=")))


def never_fire(
    rules: Sequence[Rule], with_facts: Iterable[Signature], yield_now: YieldNow = go_on
) -> Iterator[tuple[int, Atom]]:
    """Yield the index of each rule that needs a predicate without conclusions, and the atom.

    A predicate has none if it has no facts, has rules, and each of them needs such a predicate:
    the least fixpoint of the predicates that can have conclusions, computed with a count of open
    atoms for each rule. Predicates without rules can have facts from elsewhere.
    """
    heads = {_signed(rule.head) for rule in paced(rules, yield_now, RULES_PER_YIELD)}
    facts = set(with_facts)
    waiting: dict[tuple[str, int, bool], list[int]] = defaultdict(list)
    missing: list[set[tuple[str, int, bool]]] = []
    for index, rule in paced(enumerate(rules), yield_now, RULES_PER_YIELD):
        signatures = map(_signed, _positive_atoms(rule))
        needed = {each for each in signatures if each in heads and each[:2] not in facts}
        missing.append(needed)
        for signed in needed:
            waiting[signed].append(index)
    firing = [index for index, needed in paced(enumerate(missing), yield_now) if not needed]
    while firing:
        if not len(firing) % RULES_PER_YIELD:
            yield_now()
        for index in waiting.pop(_signed(rules[firing.pop()].head), ()):
            before = len(missing[index])
            missing[index] = {signed for signed in missing[index] if signed in waiting}
            if before and not missing[index]:
                firing.append(index)
    for index, needed in paced(enumerate(missing), yield_now, RULES_PER_YIELD):
        if needed:
            atoms = _positive_atoms(rules[index])
            yield index, next(atom for atom in atoms if _signed(atom) in needed)


def _positive_atoms(rule: Rule) -> Iterator[Atom]:
    """Yield the atoms of a body that are not negated."""
    for item in rule.body:
        if isinstance(item, Literal) and not item.negated:
            yield item.atom


def _signed(atom: Atom) -> tuple[str, int, bool]:
    return atom.predicate, atom.arity, atom.positive


# ---- shadowed rules ----


def is_trivial(rule: Rule) -> bool:
    """Return True if a rule concludes only what its own body needs."""
    return Literal(rule.head) in rule.body


def shadowed(rules: Sequence[Rule], yield_now: YieldNow = go_on) -> Iterator[tuple[int, int]]:
    """Yield the index of each rule that adds nothing, and that of a more general rule.

    A rule is more general if a substitution of its variables makes its head equal and its body a
    part of the other (theta-subsumption; Plotkin, "A note on inductive generalization", 1970). Of
    two equally general rules the later is shadowed. `yield_now` is called about once a millisecond.
    """
    by_head: dict[tuple[str, int, bool], list[int]] = defaultdict(list)
    for index, rule in paced(enumerate(rules), yield_now, RULES_PER_YIELD):
        if not any(isinstance(arg, Aggregate) for arg in rule.head.args):
            by_head[_signed(rule.head)].append(index)
    matcher = _Matcher(yield_now)
    pairs_left = MAX_PAIRS
    for indexes in paced(by_head.values(), yield_now, RULES_PER_YIELD):
        needs = {
            index: frozenset(map(_kind, rules[index].body))
            for index in paced(indexes, yield_now, RULES_PER_YIELD)
        }
        hidden: set[int] = set()
        for index in reversed(indexes):
            yield_now()
            pairs_left -= len(indexes)
            if pairs_left < 0:
                return
            for other in indexes:
                if other == index or other in hidden or not needs[other] <= needs[index]:
                    continue
                if matcher.exhausted:
                    return
                if _holds_wherever(rules[other], rules[index]) and matcher.subsumes(
                    rules[other], rules[index]
                ):
                    hidden.add(index)
                    yield index, other
                    break


def _holds_wherever(general: Rule, special: Rule) -> bool:
    """Return True if a rule holds in each scope of another, with at least its confidence."""
    in_scope = general.scope is None or general.scope == special.scope
    confidences = [
        1.0 if each.confidence is None else each.confidence for each in (general, special)
    ]
    return in_scope and confidences[0] >= confidences[1]


def _kind(item: BodyItem) -> tuple[str, int, bool, bool]:
    if isinstance(item, Literal):
        return (*_signed(item.atom), item.negated)
    return item.op, -1, True, item.negated


Substitution = Mapping[str, HeadTerm]


class _Matcher:
    """The search for substitutions; it ends after MAX_MATCHES matches in all."""

    def __init__(self, yield_now: YieldNow) -> None:
        self._left = MAX_MATCHES
        self._yield_now = yield_now

    @property
    def exhausted(self) -> bool:
        """True if the search was ended, so that further rules may be shadowed."""
        return self._left <= 0

    def subsumes(self, general: Rule, special: Rule) -> bool:
        """Return True if a substitution makes a rule a part of another."""
        self._left -= 1
        start = self._atom(general.head, special.head, {}, False)
        return start is not None and self._body(general.body, special.body, start)

    def _body(
        self, items: Sequence[BodyItem], targets: Sequence[BodyItem], bound: Substitution
    ) -> bool:
        if not items:
            return True
        for target in targets:
            extended = self._item(items[0], target, bound)
            if extended is not None and self._body(items[1:], targets, extended):
                return True
            if self.exhausted:
                return False
        return False

    def _item(self, item: BodyItem, target: BodyItem, bound: Substitution) -> Substitution | None:
        self._left -= 1
        if not self._left % RULES_PER_YIELD:
            self._yield_now()
        if _kind(item) != _kind(target):
            return None
        if isinstance(item, Literal) and isinstance(target, Literal):
            return self._atom(item.atom, target.atom, bound, item.negated)
        if isinstance(item, Comparison) and isinstance(target, Comparison):
            left = self._expression(item.left, target.left, bound)
            return None if left is None else self._expression(item.right, target.right, left)
        return None

    def _atom(
        self, atom: Atom, target: Atom, bound: Substitution, negated: bool
    ) -> Substitution | None:
        if _signed(atom) != _signed(target):
            return None
        current: Substitution | None = bound
        for arg, other in zip(atom.args, target.args, strict=True):
            if isinstance(arg, Variable) and arg.anonymous:
                # A positive `_` matches anything; under `not` it stands for every value.
                if negated and not (isinstance(other, Variable) and other.anonymous):
                    return None
            elif current is not None:
                current = self._term(arg, other, current)
        return current

    def _term(self, term: HeadTerm, target: HeadTerm, bound: Substitution) -> Substitution | None:
        if isinstance(term, Extremum) and isinstance(target, Extremum):
            same = term.function == target.function
            return self._term(term.variable, target.variable, bound) if same else None
        if not isinstance(term, Variable):
            return bound if term == target else None
        if isinstance(target, Variable) and target.anonymous:
            # Each `_` is a variable of its own: it can only be matched by a variable used once,
            # which the caller cannot know, so it is not matched.
            return None
        if term.name in bound:
            return bound if bound[term.name] == target else None
        return {**bound, term.name: target}

    def _expression(self, expr: Expr, target: Expr, bound: Substitution) -> Substitution | None:
        if isinstance(expr, Apply):
            if (
                not isinstance(target, Apply)
                or expr.function != target.function
                or len(expr.args) != len(target.args)
            ):
                return None
            current: Substitution | None = bound
            for arg, other in zip(expr.args, target.args, strict=True):
                if current is not None:
                    current = self._expression(arg, other, current)
            return current
        return None if isinstance(target, Apply) else self._term(expr, target, bound)


def same_rule(rule: Rule, other: Rule) -> bool:
    """Return True if two rules have the same items in the same order up to names of variables."""
    names: dict[str, str] = {}
    return (
        len(rule.body) == len(other.body)
        and rule.confidence == other.confidence
        and _same(rule.head, other.head, names)
        and all(_same(*pair, names) for pair in zip(rule.body, other.body, strict=True))
        and len(set(names.values())) == len(names)
    )


def _same(term: object, other: object, names: dict[str, str]) -> bool:
    if type(term) is not type(other):
        return False
    if isinstance(term, Variable) and isinstance(other, Variable):
        return names.setdefault(term.name, other.name) == other.name
    return all(
        _same(left, right, names) for left, right in zip(_parts(term), _parts(other), strict=False)
    ) and (len(_parts(term)), _label(term)) == (len(_parts(other)), _label(other))


def _parts(term: object) -> tuple[object, ...]:
    if isinstance(term, Atom | Apply):
        return term.args
    if isinstance(term, Literal):
        return (term.atom,)
    if isinstance(term, Comparison):
        return term.left, term.right
    return (term.variable,) if isinstance(term, Aggregate | Extremum) else ()


def _label(term: object) -> object:
    if isinstance(term, Atom):
        return term.predicate, term.positive
    if isinstance(term, Literal):
        return term.negated
    if isinstance(term, Comparison):
        return term.op, term.negated
    return term.function if isinstance(term, Apply | Aggregate | Extremum) else term
