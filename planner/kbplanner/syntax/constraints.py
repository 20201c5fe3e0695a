"""Declared constraints as rules: each violation is derived as `contradiction(kind, first, second)`.

`first` and `second` are the two facts in the notation of the rule language. The rules are ordinary
rules, so that violations have proofs, go with their facts, and are dumped and replicated like other
conclusions. The name of a rule is its declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import cast

from kbplanner.ir.terms import (
    ANONYMOUS,
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    Expr,
    Literal,
    Rule,
    Term,
    Variable,
)
from kbplanner.ir.values.texts import quoted
from kbplanner.syntax.printer import print_atom, print_predicate

CONTRADICTION = "contradiction"
"""The predicate of violated constraints, with three arguments."""

KEY, DISJOINT, TOTAL = "key", "disjoint", "total"

KINDS = (KEY, DISJOINT, TOTAL)
"""The words of declarations of constraints, and the first argument of their violations."""

CANONICAL = "canonical"
"""The predicate of representatives: `canonical(same, ?name, ?representative)`."""

DIFFERENT = "different"
"""The predicate of names that do not stand for the same thing, and the first argument of the
contradictions with an equivalence relation.
"""

MAX_JOINED = 16
"""Texts that a single `concat` of a rule joins; a fact with many arguments has several."""


def key_rules(atom: Atom) -> Iterator[Rule]:
    """Yield the rules of `@key owns(?car, _)`: facts with equal named arguments are equal.

    There is one rule for each other argument: in its violations the facts are equal in the other
    arguments before it, and differ here, so that no violation is derived twice.
    """
    others = [index for index, term in enumerate(atom.args) if term == ANONYMOUS]
    names = _Names(atom)
    for number, index in enumerate(others):
        left, right = list(atom.args), list(atom.args)
        for earlier in others[:number]:
            left[earlier] = right[earlier] = names.new(f"equal{earlier}")
        left[index], right[index] = values = names.new("one_value"), names.new("other_value")
        for later in others[number + 1 :]:
            left[later], right[later] = names.new(f"one{later}"), names.new(f"other{later}")
        first, second = Atom(atom.predicate, tuple(left)), Atom(atom.predicate, tuple(right))
        part = f", argument {index + 1}" if len(others) > 1 else ""
        yield _rule(
            KEY,
            f"{KEY} {print_atom(atom)}{part}",
            (Literal(first), Literal(second), Comparison("!=", *values)),
            (first, second),
            names,
            ordered=True,
        )


def disjoint_rules(predicates: Sequence[str], arity: int) -> Iterator[Rule]:
    """Yield a rule for each pair of `@disjoint cat, dog`: no arguments satisfy both predicates."""
    args = tuple(Variable(f"x{index}") for index in range(arity))
    suffix = "" if arity == 1 else f"/{arity}"
    for left, right in combinations(predicates, 2):
        first, second = Atom(left, args), Atom(right, args)
        yield _rule(
            DISJOINT,
            f"{DISJOINT} {print_predicate(left, arity)}{suffix}, {print_predicate(right, arity)}{suffix}",
            (Literal(first), Literal(second)),
            (first, second),
            _Names(first),
        )


def total_rules(subject: Atom, required: Sequence[Atom]) -> Iterator[Rule]:
    """Yield a rule for each requirement of `@total person(?x), age(?x, _)`: whenever the first atom
    holds, so do the others. The second fact of a violation is the pattern that nothing matches.
    """
    names = _Names(subject)
    args = tuple(
        names.new(f"any{index}") if arg == ANONYMOUS else arg
        for index, arg in enumerate(subject.args)
    )
    first = Atom(subject.predicate, args)
    for atom in required:
        yield _rule(
            TOTAL,
            f"{TOTAL} {print_atom(subject)}, {print_atom(atom)}",
            (Literal(first), Literal(atom, True)),
            (first, atom),
            names,
        )


def different_rule(predicate: str) -> Rule:
    """Return the rule of `@equivalence same/2`: names that are `different` are not in one class.

    The arguments of its violations are the two names.
    """
    names = Variable("x"), Variable("y")
    return Rule(
        Atom(CONTRADICTION, (DIFFERENT, *names)),
        (Literal(Atom(DIFFERENT, names)), Literal(Atom(predicate, names))),
        f"{DIFFERENT} {print_predicate(predicate, 2)}/2",
    )


def canonical_rule(predicate: str) -> Rule:
    """Return the rule of `@canonical same/2`: each name has the first name of its class, in answer
    order, as its representative.
    """
    name, other = Variable("x"), Variable("y")
    head = Atom(CANONICAL, (predicate, name, Aggregate("representative", other)))
    body = (Literal(Atom(predicate, (name, other))),)
    return Rule(head, body, f"{CANONICAL} {print_predicate(predicate, 2)}/2")


def is_optional(rule: Rule) -> bool:
    """Return True for a rule of a declaration that may well have no facts to fire on."""
    return rule.head.predicate == CONTRADICTION and rule.head.args[:1] == (DIFFERENT,)


def fact_text(fact: Atom) -> str:
    """Return a fact as the violations of constraints name it."""
    args = ", ".join(quoted(str(arg)) for arg in fact.args)
    return print_predicate(fact.predicate, len(fact.args)) + (f"({args})" if fact.args else "")


class _Names:
    """Names of new variables beside those of an author."""

    def __init__(self, atom: Atom) -> None:
        self._taken = {variable.name for variable in atom.variables()}

    def new(self, name: str) -> Variable:
        """Return a variable with a name that the author does not use."""
        while name in self._taken:
            name += "_"
        return Variable(name)


def _rule(
    kind: str,
    name: str,
    body: tuple[BodyItem, ...],
    facts: tuple[Atom, Atom],
    names: _Names,
    *,
    ordered: bool = False,
) -> Rule:
    """Return the rule that concludes a violation of two facts, of each pair once if `ordered`."""
    first, second = names.new("first"), names.new("second")
    texts = (
        Comparison("=", first, _text(facts[0])),
        Comparison("=", second, _text(facts[1])),
        *((Comparison("<", first, second),) if ordered else ()),
    )
    return Rule(Atom(CONTRADICTION, (kind, first, second)), (*body, *texts), name)


def _text(atom: Atom) -> Expr:
    """Return the expression whose value is an atom in the notation of the rule language."""
    if not atom.args:
        return print_predicate(atom.predicate, 0)
    parts: list[Expr] = []
    text = f"{print_predicate(atom.predicate, len(atom.args))}("
    for index, arg in enumerate(atom.args):
        text += ", " if index else ""
        if arg == ANONYMOUS:
            text += "_"
        else:
            parts += [text, Apply("quoted", (cast("Term", arg),))]
            text = ""
    parts.append(f"{text})")
    while len(parts) > MAX_JOINED:
        groups = [tuple(parts[i : i + MAX_JOINED]) for i in range(0, len(parts), MAX_JOINED)]
        parts = [Apply("concat", group) for group in groups]
    return Apply("concat", tuple(parts))
