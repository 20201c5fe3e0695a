"""Warnings about predicates used with an unusual number of arguments, or misspelt.

`p/1` and `p/2` are different predicates and may coexist, so this is never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain

from kbplanner.ir.inputs import Input
from kbplanner.ir.masks import Mask
from kbplanner.ir.requirements import Requirement
from kbplanner.ir.terms import Literal, Rule
from kbplanner.pacing import YieldNow, go_on, let_go, paced
from kbplanner.syntax.constraints import DIFFERENT, is_optional
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.statements import (
    DeclarationStatement,
    FactStatement,
    GoalStatement,
    RuleStatement,
    Statement,
    TextSpan,
)

MAX_SUGGESTIONS = 100
"""Number of unknown predicates of a text for which a similar name is looked for."""

NAMES_PER_YIELD = 300
SIMILAR_PER_YIELD = 50
"""Names looked up, and compared with another, between two calls of `yield_now`: about a
millisecond.
"""

MAX_DISTANCE = 2
"""Maximum edit distance between a misspelt name and a known one."""


def arity_warnings(
    statements: Sequence[Statement],
    known: Mapping[str, set[int]],
    defined_elsewhere: Iterable[tuple[str, int]] = (),
    unread_names: AbstractSet[str] = frozenset(),
    *,
    only_similar: bool = False,
    yield_now: YieldNow = go_on,
) -> list[RuleWarning]:
    """Warn once about each predicate and arity of a text that is not used elsewhere.

    `known` holds the stored predicates with their arities; facts, rule heads and declared inputs
    of the text itself count as well. Warned about are a known predicate with a new arity, and, in
    bodies, goals and masks, an unknown predicate, with the known one of a similar name if there is
    one. `defined_elsewhere` are predicates of other texts. Names of `unread_names`, which a text
    with errors may define, are not unknown. With `only_similar` a predicate is unknown only if a
    similar name is known. `yield_now` is called about once a millisecond.
    """
    defined: dict[str, set[int]] = {
        name: set(arities) for name, arities in paced(known.items(), yield_now, NAMES_PER_YIELD)
    }
    own = ((name, arity) for name, arity, _ in _defined(statements, yield_now))
    for name, arity in paced(chain(own, defined_elsewhere), yield_now, NAMES_PER_YIELD):
        defined.setdefault(name, set()).add(arity)
    warnings: list[RuleWarning] = []
    reported: set[tuple[str, int]] = set()
    for name, arity, span in paced(_defined(statements, yield_now), yield_now, NAMES_PER_YIELD):
        if name in known and arity not in known[name] and (name, arity) not in reported:
            reported.add((name, arity))
            warnings.append(_arity_warning(name, arity, known[name], span))
    for name, arity, span in paced(_used(statements, yield_now), yield_now, NAMES_PER_YIELD):
        if (name, arity) in reported or arity in defined.get(name, ()) or name in unread_names:
            continue
        reported.add((name, arity))
        if name in defined:
            warnings.append(_arity_warning(name, arity, defined[name], span))
            continue
        nearest = None
        if len(reported) <= MAX_SUGGESTIONS:
            others = (other for other, arities in defined.items() if arity in arities)
            nearest = nearest_name(name, paced(others, yield_now, SIMILAR_PER_YIELD))
        if only_similar and (nearest is None or name in (nearest + "s", nearest.removesuffix("s"))):
            continue  # singular and plural are often two predicates, as in orders(count(*)) :- order(?x)
        hint = None if nearest is None else f"did you mean {nearest}/{arity}?"
        warnings.append(
            RuleWarning("unknown-predicate", f"no facts or rules for {name}/{arity}", hint, span)
        )
    let_go(reported, yield_now)
    let_go(defined, yield_now)
    return warnings


def rule_statement(rule: Rule, line: int = 1) -> RuleStatement:
    """Return a statement for a rule that is not text; `line` is its place in a file of JSON
    lines.
    """
    start = TextSpan(line, 1, line, 1)
    atoms = [rule.head, *(item.atom for item in rule.body if isinstance(item, Literal))]
    return RuleStatement(
        rule, start, (), tuple((atom.predicate, atom.arity, start) for atom in atoms)
    )


def nearest_name(name: str, others: Iterable[str]) -> str | None:
    """Return the nearest name by edit distance, if near enough; of equally near names the first in
    alphabetical order.

    Short names must be nearer: one letter of three, two of six.
    """
    max_distance = min(MAX_DISTANCE, len(name) // 3)
    if not max_distance:
        return None
    best: tuple[int, str] | None = None
    letters = set(name)
    for other in others:
        # One change takes away at most one letter and adds one.
        if (
            abs(len(other) - len(name)) <= max_distance
            and len(letters.symmetric_difference(other)) <= 2 * max_distance
        ):
            distance = edit_distance(name, other, max_distance)
            if distance <= max_distance and (best is None or (distance, other) < best):
                best = (distance, other)
    return best[1] if best else None


def edit_distance(name: str, other: str, max_distance: int | None = None) -> int:
    """Count letters to insert, delete, replace or swap with their neighbour (optimal string
    alignment).

    Counts above `max_distance` may be too small, but are above it.
    """
    while name and other and name[-1] == other[-1]:
        name, other = name[:-1], other[:-1]
    while name and other and name[0] == other[0]:
        name, other = name[1:], other[1:]
    if max_distance == 1 and len(name) + len(other) > 2 and (name[::-1] != other or len(name) > 2):
        return 2
    above: list[int] = []
    upper: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(name):
        above, upper, row = upper, row, [i + 1]
        for j, right in enumerate(other):
            cost = min(upper[j + 1] + 1, row[j] + 1, upper[j] + (left != right))
            if i and j and left == other[j - 1] and name[i - 1] == right:
                cost = min(cost, above[j - 1] + 1)
            row.append(cost)
        if max_distance is not None and min(row) > max_distance < min(upper):
            return max_distance + 1  # no later row is less than both
    return row[-1]


def _defined(
    statements: Sequence[Statement], yield_now: YieldNow
) -> Iterator[tuple[str, int, TextSpan]]:
    """Yield the predicates of facts, rule heads and declared inputs."""
    for statement in paced(statements, yield_now):
        if isinstance(statement, FactStatement):
            yield statement.atom.predicate, statement.atom.arity, statement.span
        elif isinstance(statement, DeclarationStatement):
            declared = statement.declaration
            if isinstance(declared, Input):
                yield declared.predicate, declared.arity, statement.span
        elif isinstance(statement, RuleStatement):
            yield statement.predicates[0]


def _used(
    statements: Sequence[Statement], yield_now: YieldNow
) -> Iterator[tuple[str, int, TextSpan]]:
    """Yield the predicates of bodies, goals, masks and requirements."""
    for statement in paced(statements, yield_now):
        if isinstance(statement, RuleStatement):
            optional = is_optional(statement.rule)
            for predicate in statement.predicates[1:]:
                if not optional or predicate[:2] != (DIFFERENT, 2):
                    yield predicate
        elif isinstance(statement, GoalStatement):
            yield from statement.predicates
        elif isinstance(statement, DeclarationStatement):
            declared = statement.declaration
            if isinstance(declared, Mask | Requirement):  # a misspelt one would hide nothing
                yield declared.predicate, declared.arity, statement.span


def _arity_warning(name: str, arity: int, others: set[int], span: TextSpan) -> RuleWarning:
    counts = " or ".join(str(count) for count in sorted(others))
    message = f"{name} has {arity} argument{'s' * (arity != 1)} here and {counts} elsewhere"
    return RuleWarning(
        "arity", message, "predicates of different arity are different predicates", span
    )
