"""Checks of best-value predicates, whose rules keep one row for each group: the one with the least
or the greatest last argument.

    least dist/2(?x, ?d) :- start/1(?x), ?d := 0.
    least dist/2(?y, ?d) :- least dist/2(?x, ?e), edge/3(?x, ?y, ?w), ?d := ?e + ?w.

The `lower` pass makes such relations, and the engine keeps the best row of each group. A recursion
through such a relation is evaluated by replacing the row of a group whenever a rule concludes a
better one. That has one result, whatever the order of the steps, if a better value never takes a
conclusion away and never makes another value worse: the rules are *monotone* (Ross,
Sagiv: "Monotonic aggregation in deductive databases", 1992). `improving_values` follows the values
that can still improve through a clause; `extremum_findings` refuses rules that use one otherwise.

Each row must also have a proof from rows that are kept, without a circle. A clause of the recursion
therefore concludes a value that either

- changes strictly with each improving value that it reads (`?d = ?e + ?w`): then the rows that a
  kept row was concluded from have not changed since, or it would have changed too; or
- is never better than these values (`?d = max(?e, ?w)` for `min`, or a body that says `?e <= ?d`):
  then a row of a circle could only have been concluded from the circle if all its values were
  equal, in which case the one concluded first has another proof.

The clauses of a recursion are all of the first kind, or all of the second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbplanner.errors import RefusedExtremum
from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    Clause,
    ClauseAtom,
    Component,
    Computation,
    components,
)
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import Comparison, Rule, Variable, extremum_of
from kbplanner.ir.values.numbers import number
from kbplanner.pacing import YieldNow, go_on, paced

_LOWER, _UPPER = ("<", "<="), (">", ">=")
_DOWN, _UP, _UNKNOWN = -1, 1, 0
"""Directions in which a value improves: it can only fall, only rise, or neither is known."""


@dataclass(frozen=True, slots=True)
class ExtremumFinding:
    """Rules that cannot be evaluated: the name of the code, the indexes of the rules in order, and
    the reason. `relations` are those of the recursion concerned.
    """

    name: str
    rules: tuple[int, ...]
    message: str
    hint: str
    relations: frozenset[RelationSchema] = frozenset()


def mixed_extrema(rules: Sequence[Rule], yield_now: YieldNow = go_on) -> Iterator[ExtremumFinding]:
    """Yield the predicates whose rules do not all have the same extremum in their heads.

    `yield_now` is called about once a millisecond.
    """
    by_head: dict[RelationSchema, dict[str, list[int]]] = {}
    for index, rule in paced(enumerate(rules), yield_now, CLAUSES_PER_YIELD):
        head = RelationSchema(rule.head.predicate, rule.head.arity, rule.head.positive)
        extremum = extremum_of(rule.head)
        function = "" if extremum is None else extremum.function
        by_head.setdefault(head, {}).setdefault(function, []).append(index)
    for head, functions in paced(by_head.items(), yield_now, CLAUSES_PER_YIELD):
        if len(functions) > 1:
            words = [word or "no extremum" for word in functions]
            message = f"rules of {head} differ: {' and '.join(words)} in their last arguments"
            hint = "write the same word before the last argument of every head of the predicate"
            indexes = sorted(index for own in functions.values() for index in own)
            yield ExtremumFinding("mixed-extrema", tuple(indexes), message, hint)


def extremum_findings(
    clauses: Sequence[Clause], yield_now: YieldNow = go_on
) -> Iterator[ExtremumFinding]:
    """Yield the reasons why recursions of lowered clauses through best-value predicates cannot be
    evaluated; rules are those of the clauses, as indexes from 0.
    """
    if not any(clause.head.schema.role in BEST for clause in clauses):
        return
    unsettled: dict[RelationSchema, list[RelationSchema]] = {}
    numbers: dict[RelationSchema, list[int]] = {}
    for index, clause in enumerate(clauses):
        numbers.setdefault(clause.head.schema, []).append(index)
    for part in paced(components(clauses, yield_now), yield_now, CLAUSES_PER_YIELD):
        inside = sorted(index for schema in part.relations for index in numbers[schema])
        own = [clauses[index] for index in inside]
        negation = _negation_below(part, own, unsettled)
        if negation is not None:
            unsettled.update(dict.fromkeys(part.relations, negation))
        best = sorted((schema for schema in part.relations if schema.role in BEST), key=str)
        if best and negation is not None:
            names = ", ".join(dict.fromkeys(str(schema.stored) for schema in negation))
            yield ExtremumFinding(
                "not-monotone",
                _rules_of(own),
                f"{best[0].stored} depends on recursion through negation ({names}), which can "
                "leave its values undefined",
                "keep the best value of predicates whose rules do not recurse through negation",
                part.relations,
            )
        elif best and part.recursive:
            for finding in _recursion_findings(part, own):
                yield replace(finding, relations=part.relations)


def _negation_below(
    part: Component,
    own: Sequence[Clause],
    unsettled: Mapping[RelationSchema, list[RelationSchema]],
) -> list[RelationSchema] | None:
    """Return the relations of a recursion through negation that a component is or depends on; None
    without one.

    `own` are the clauses of the component, and `unsettled` has the result for those below.
    """
    atoms = [atom for clause in own for atom in clause.all_atoms()]
    if part.recursive and any(atom.absent and atom.schema in part.relations for atom in atoms):
        return sorted(part.relations, key=str)
    read = {atom.schema for atom in atoms} - part.relations
    return next((unsettled[schema] for schema in read if schema in unsettled), None)


def check_extrema(findings: Iterable[ExtremumFinding]) -> None:
    """Raise RefusedExtremum for the first finding, if there is one."""
    finding = next(iter(findings), None)
    if finding is not None:
        raise RefusedExtremum(finding.message, finding.name, finding.hint, finding.rules)


def first_problem(clause: Clause, moving: Collection[RelationSchema]) -> str | None:
    """Return why a better value of a relation of `moving` could remove a conclusion of a clause,
    or make it worse; None if it cannot.
    """
    improving = improving_values(clause, moving)
    for atom in clause.all_atoms():
        is_best = _is_best(atom, moving)
        if is_best and (problem := _value_problem(atom)):
            return problem
        for arg in atom.args[:-1] if is_best else atom.args:
            if arg in improving:
                return f"{atom.schema.stored} is looked up by the value {arg}"
    repeated = _repeated_value(clause, moving)
    if repeated is not None:
        return f"two values are compared as equal: {repeated}"
    for item in clause.body:
        if isinstance(item, Comparison) and (problem := _comparison_problem(item, improving)):
            return problem
    return _head_problem(clause, improving)


def _recursive_problem(clause: Clause, moving: Collection[RelationSchema]) -> str | None:
    """Return the `first_problem` of a clause of a recursion, whose head must have a best value."""
    problem = first_problem(clause, moving)
    if problem is None and clause.head.schema.role not in BEST:
        return f"{clause.head.schema.stored} depends on values that can still improve"
    return problem


def _is_best(atom: ClauseAtom, moving: Collection[RelationSchema]) -> bool:
    """Return True for an atom of `moving` whose last argument is a best value."""
    return atom.schema in moving and atom.schema.role in BEST


def _value_problem(atom: ClauseAtom) -> str | None:
    """Return why an atom does not only read a best value that improves; None if it does."""
    value = atom.args[-1]
    if atom.absent:
        return f"{atom.schema.stored} stands under not"
    if isinstance(value, str):
        return f"the value of {atom.schema.stored} is compared with {value}"
    if value in atom.args[:-1] and not value.anonymous:
        return f"the value {value} is also in the group of {atom.schema.stored}"
    return None


def _repeated_value(clause: Clause, moving: Collection[RelationSchema]) -> Variable | None:
    """Return a variable that is the best value of two atoms of `moving`, None without one."""
    seen: set[Variable] = set()
    for atom in clause.atoms():
        value = atom.args[-1] if _is_best(atom, moving) else None
        if isinstance(value, Variable) and not value.anonymous:
            if value in seen:
                return value
            seen.add(value)
    return None


def improving_values(clause: Clause, moving: Collection[RelationSchema]) -> Mapping[Variable, int]:
    """Return the variables of a clause whose values change with the values of relations of
    `moving`, and the direction in which they then change.
    """
    improving: dict[Variable, int] = {}
    for atom in clause.atoms():
        value = atom.args[-1] if atom.args else None
        is_improving = atom.schema in moving and atom.schema.role in BEST
        if is_improving and isinstance(value, Variable) and not value.anonymous:
            improving[value] = _DOWN if atom.schema.role is Role.LEAST_VALUE else _UP
    computed = [item for item in clause.body if isinstance(item, Computation)]
    while True:
        grown = {
            item.target: direction
            for item in computed
            if item.target not in improving
            and (direction := _direction(item, improving)) is not None
        }
        if not grown:
            return improving
        improving.update(grown)


def _direction(item: Computation, improving: Mapping[Variable, int]) -> int | None:
    """Return the direction of a computed value; None if it depends on no improving value."""
    moving = [improving.get(arg) if isinstance(arg, Variable) else None for arg in item.args]
    directions = {direction for direction in moving if direction is not None}
    if not directions:
        return None
    if item.function == "-":
        if moving[1] is not None:
            directions = {moving[0], -moving[1]} - {None}  # type: ignore[assignment]
    elif item.function in ("*", "/"):
        factor = item.args[1] if moving[0] is not None else item.args[0]
        value = number(factor) if isinstance(factor, str) else None
        if value is None or value == 0 or (item.function == "/" and moving[0] is None):
            return _UNKNOWN
        if value < 0:
            directions = {-direction for direction in directions}
    elif item.function not in ("=", "+", "min", "max"):
        return _UNKNOWN
    return next(iter(directions)) if len(directions) == 1 else _UNKNOWN


def _comparison_problem(item: Comparison, improving: Mapping[Variable, int]) -> str | None:
    """Return why a comparison can become false when values improve."""
    left, right = (
        improving.get(side) if isinstance(side, Variable) else None
        for side in (item.left, item.right)
    )
    if left is None and right is None:
        return None
    op = item.op
    stays = (op in _LOWER and left in (None, _DOWN) and right in (None, _UP)) or (
        op in _UPPER and left in (None, _UP) and right in (None, _DOWN)
    )
    if stays and not item.negated:
        return None
    text = f"{item.left} {op} {item.right}"
    return f"{'not ' if item.negated else ''}{text} can become false when a value improves"


def _head_problem(clause: Clause, improving: Mapping[Variable, int]) -> str | None:
    head = clause.head
    is_best = head.schema.role in BEST
    for arg in head.args[:-1] if is_best else head.args:
        if arg in improving:
            return f"the value {arg} becomes an argument of {head.schema.stored}"
    if not is_best:
        return None
    value = head.args[-1]
    direction = _DOWN if head.schema.role is Role.LEAST_VALUE else _UP
    if isinstance(value, Variable) and improving.get(value, direction) != direction:
        return f"{value} can get worse when a value that it is computed from improves"
    return None


def _recursion_findings(part: Component, own: Sequence[Clause]) -> Iterator[ExtremumFinding]:
    """Yield what a recursion through best-value predicates does wrong, once for each rule."""
    best = [schema for schema in part.relations if schema.role in BEST]
    names = ", ".join(sorted({str(schema.stored) for schema in best}))
    if len({schema.role for schema in best}) > 1:
        message = f"a recursion through min and max together: {names}"
        hint = "use one of them, with the other sign of the values if need be"
        yield ExtremumFinding("not-monotone", _rules_of(own), message, hint)
        return
    flat: list[Clause] = []
    improves: list[Clause] = []
    for clause in own:
        calls = [atom for atom in clause.all_atoms() if atom.schema in part.relations]
        if not calls:
            continue
        problem = _recursive_problem(clause, part.relations)
        if problem is not None:
            yield ExtremumFinding(
                "not-monotone", _rules_of([clause]), f"recursion through {names}: {problem}", _HINT
            )
            continue
        kind = _common_kind(clause, [atom for atom in calls if atom.schema.role in BEST])
        if not (kind.is_strict or kind.is_bounded):
            yield _unbounded(clause, names)
        elif not kind.is_strict:
            flat.append(clause)
        elif not kind.is_bounded:
            improves.append(clause)
    if flat:
        for clause in improves:
            yield _unbounded(clause, names)


_HINT = (
    "a value of the recursion may only be added to, compared in the direction in which it stays "
    "true, and become the last argument of the head"
)


def _unbounded(clause: Clause, names: str) -> ExtremumFinding:
    least = clause.head.schema.role is Role.LEAST_VALUE
    calls = [
        atom.args[-1] for atom in clause.atoms() if atom.schema.role is clause.head.schema.role
    ]
    read = next(
        (str(arg) for arg in calls if isinstance(arg, Variable) and not arg.anonymous), "?e"
    )
    value = clause.head.args[-1]
    return ExtremumFinding(
        "not-monotone",
        _rules_of([clause]),
        f"recursion through {names}: the new value can be better than the value that the rule "
        "depends on and need not change with it, so that conclusions could support themselves",
        f"add {read} {'<=' if least else '>='} {value} to the body",
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """The dependence of a head's value on the value of an atom: whether it changes with every
    change, and whether it is never better.
    """

    is_strict: bool
    is_bounded: bool


def _kind(clause: Clause, atom: ClauseAtom) -> _Kind:
    value, target = atom.args[-1], clause.head.args[-1]
    if not isinstance(value, Variable) or value.anonymous:
        return _Kind(False, False)
    least = clause.head.schema.role is Role.LEAST_VALUE
    return _Kind(
        target in _strict_terms(value, clause), target in _bounded_terms(value, clause, least)
    )


def _common_kind(clause: Clause, atoms: Iterable[ClauseAtom]) -> _Kind:
    """Return the dependence of a head's value on the values of several atoms together."""
    kinds = [_kind(clause, atom) for atom in atoms]
    return _Kind(all(kind.is_strict for kind in kinds), all(kind.is_bounded for kind in kinds))


def _strict_terms(value: Variable, clause: Clause) -> set[object]:
    """Return the terms that change with every change of `value`."""
    strict: set[object] = {value}
    computed = [
        item
        for item in clause.body
        if isinstance(item, Computation) and item.function in ("=", "+", "-", "*", "/")
    ]
    while grown := {
        item.target
        for item in computed
        if item.target not in strict and not strict.isdisjoint(item.args)
    }:
        strict |= grown
    return strict


def _bounded_terms(value: Variable, clause: Clause, least: bool) -> set[object]:
    """Return the terms that are never better than `value`: not less for `least`, else not
    greater.
    """
    bounded: set[object] = {value}
    below = _LOWER if least else _UPPER
    ordered = list(_ordered(clause, below))
    gains, losses = _signed_terms(clause, least), _signed_terms(clause, not least)
    computed = [item for item in clause.body if isinstance(item, Computation)]
    while grown := {
        *(greater for less, greater in ordered if less in bounded and greater not in bounded),
        *(
            item.target
            for item in computed
            if item.target not in bounded and _is_bounded(item, bounded, least, gains, losses)
        ),
    }:
        bounded |= grown
    return bounded


def _is_bounded(
    item: Computation,
    bounded: Collection[object],
    least: bool,
    gains: Collection[object],
    losses: Collection[object],
) -> bool:
    """Return True if a computed value is never better than the value that `bounded` are measured
    by.

    Adding one of `gains`, and subtracting one of `losses`, makes no value better.
    """
    of_args = [arg in bounded for arg in item.args]
    if item.function == "=":
        return of_args[0]
    if item.function in ("min", "max"):
        return any(of_args) if item.function == ("max" if least else "min") else all(of_args)
    if item.function == "+":
        left, right = item.args
        return (of_args[0] and _has_sign(right, gains, least)) or (
            of_args[1] and _has_sign(left, gains, least)
        )
    return item.function == "-" and of_args[0] and _has_sign(item.args[1], losses, not least)


def _ordered(clause: Clause, below: Collection[str]) -> Iterator[tuple[object, object]]:
    """Yield the pairs of terms of which a comparison says that the first is `below` the second."""
    above = _UPPER if below is _LOWER else _LOWER
    for item in clause.body:
        if isinstance(item, Comparison) and not item.negated:
            if item.op in below:
                yield item.left, item.right
            elif item.op in above:
                yield item.right, item.left


def _signed_terms(clause: Clause, positive: bool) -> set[object]:
    """Return the terms that are compared with a number so that they are at least 0 (`positive`), or
    at most 0.
    """
    return {
        greater
        for less, greater in _ordered(clause, _LOWER if positive else _UPPER)
        if isinstance(less, str) and _is_signed(less, positive)
    }


def _has_sign(term: object, signed: Collection[object], positive: bool) -> bool:
    return _is_signed(term, positive) if isinstance(term, str) else term in signed


def _is_signed(text: str, positive: bool) -> bool:
    value = number(text)
    return value is not None and (value >= 0 if positive else value <= 0)


def _rules_of(clauses: Iterable[Clause]) -> tuple[int, ...]:
    return tuple(sorted({clause.rule - 1 for clause in clauses if clause.rule}))
