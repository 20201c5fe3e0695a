"""Constants that differ only in case: often one is a misspelling of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kbplanner.ir.terms import Atom, Literal
from kbplanner.pacing import let_go, paced
from kbplanner.syntax.statements import FactStatement, GoalStatement, RuleStatement, Statement

STATEMENTS_PER_YIELD = 500
"""Statements whose constants are read between two calls of `yield_now`."""


class ArgumentPosition(NamedTuple):
    """An argument of a predicate, numbered from 1."""

    predicate: str
    arity: int
    number: int


class Spelling(NamedTuple):
    """A constant that differs only in case from another one in the same argument position.

    `at` and `other_at` are the indexes of the text and of the statement with its first use.
    """

    constant: str
    other: str
    position: ArgumentPosition
    at: tuple[int, int]
    other_at: tuple[int, int]


class _Use(NamedTuple):
    """The number of uses of a spelling, and the indexes of the first one."""

    uses: int
    at: tuple[int, int]


def case_differences(
    texts: Sequence[Sequence[Statement]], yield_now: Callable[[], None]
) -> Iterator[Spelling]:
    """Yield each constant that differs only in case from one that the same argument of the same
    predicate has more often, or had first.

    Facts, rules and queries of all texts are compared; a name in upper case that is always written
    so is no finding. Takes time linear in the texts.
    """
    # Most texts have no such constants: the uses are counted of those that another one equals.
    upper: dict[ArgumentPosition, dict[str, str]] = {}
    several: dict[tuple[ArgumentPosition, str], dict[str, _Use]] = {}
    for position, constant, _ in _constants(texts, yield_now):
        lower = constant.lower()
        if lower == constant:
            continue
        if upper.setdefault(position, {}).setdefault(lower, constant) != constant:
            several[position, lower] = {}
    if not upper:
        return
    for position, constant, _ in _constants(texts, yield_now):
        if constant in upper.get(position, ()):
            several[position, constant] = {}
    for lowered in upper.values():
        let_go(lowered, yield_now)
    if not several:
        return
    for position, constant, at in _constants(texts, yield_now):
        uses = several.get((position, constant.lower()))
        if uses is not None:
            known = uses.get(constant)
            uses[constant] = _Use(1, at) if known is None else known._replace(uses=known.uses + 1)
    for (position, _), uses in paced(several.items(), yield_now, STATEMENTS_PER_YIELD):
        usual = _usual(uses)
        for constant, use in uses.items():
            if constant != usual:
                yield Spelling(constant, usual, position, use.at, uses[usual].at)
    let_go(several, yield_now)


def _usual(uses: Mapping[str, _Use]) -> str:
    """Return the spelling that is used most often, and first of several."""
    return min(uses, key=lambda each: (-uses[each].uses, uses[each].at))


def _constants(
    texts: Sequence[Sequence[Statement]], yield_now: Callable[[], None]
) -> Iterator[tuple[ArgumentPosition, str, tuple[int, int]]]:
    """Yield the constants of statements with their positions."""
    positions: dict[tuple[str, int], tuple[ArgumentPosition, ...]] = {}
    for text, statements in enumerate(texts):
        for index, statement in enumerate(paced(statements, yield_now, STATEMENTS_PER_YIELD)):
            for atom in _atoms(statement):
                key = atom.predicate, len(atom.args)
                if key not in positions:
                    positions[key] = tuple(
                        ArgumentPosition(*key, number) for number in range(1, key[1] + 1)
                    )
                for position, arg in zip(positions[key], atom.args, strict=True):
                    if isinstance(arg, str):
                        yield position, arg, (text, index)
    let_go(positions, yield_now)


def _atoms(statement: Statement) -> Iterable[Atom]:
    if isinstance(statement, FactStatement):
        return (statement.atom,)
    if isinstance(statement, RuleStatement):
        body = (item.atom for item in statement.rule.body if isinstance(item, Literal))
        return (statement.rule.head, *body)
    if isinstance(statement, GoalStatement):
        return (item.atom for item in statement.body if isinstance(item, Literal))
    return ()
