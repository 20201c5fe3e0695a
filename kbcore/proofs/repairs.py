"""The next changes on the way to a goal: sets of facts, of which every way to the goal has one.

Backward chaining with assumptions (abductive logic programming; Kakas, Kowalski and Toni, Abductive
logic programming, Journal of Logic and Computation 2, 1992): a premise holds in the world, or it is
assumed as a fact, or a rule that needs assumptions concludes it. The assumptions that make an atom
true are kept in a table for each call, so that recursive rules terminate; an assumption may have
variables, which other premises bind. A premise that has to become false loses a fact of a proof, or
an atom that the proof needs to be absent becomes true.

The sets are candidates only: a change for one premise can make another one false, and a conclusion
with a second proof stays true. `how_to` evaluates each set, and goes on from those that are not
enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, product

from kbcore.proofs.worlds import MAX_ROWS, NO_CHANGES, Changes, FactChange, World, folds
from kbcore.reason.ask import GOAL
from kbcore.reason.budget import Budget
from kbplanner.ir.conditions import generate, generator_of
from kbplanner.ir.modes import Modes, permitted
from kbplanner.ir.operators import COMPARISONS, SUBSTRING_TESTS
from kbplanner.ir.schema import RelationSchema
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
    Term,
    Variable,
    expression_variables,
)
from kbplanner.ir.unify import Substitution
from kbplanner.ir.values.comparison import test
from kbplanner.ir.values.compute import compute, text_test
from kbplanner.passes.check import counterpart

MAX_STEPS = 5000
"""Premises that a search looks at, each with one set of values."""

FURTHER_STEPS = 500
"""Premises that are looked at for larger changes, after the smallest were found."""

MAX_WAYS = 100
"""Ways that are found to make one atom true, or the goal, before other ways are left out."""

MAX_CALLS = 200
"""Atoms that are to become true on the way to a goal, before others are left out."""

STEPS_PER_YIELD = 200
"""Premises between two calls of `yield_now`: about a millisecond."""


class StepsExceeded(Exception):
    """The search has looked at as many premises as it may."""


class Effort:
    """The work of a search: its steps, and True in `truncated` once a part was left out.

    `is_further` once the smallest changes are known: a search for larger ones promises nothing.
    `is_over` once the steps are used up.
    """

    def __init__(self, budget: Budget, max_steps: int = MAX_STEPS) -> None:
        self.budget = budget
        self.truncated = False
        self.is_further = self.is_over = False
        self._steps = 0
        self._max_steps = max_steps

    def look_further(self) -> None:
        """Look at FURTHER_STEPS more premises at most, for larger changes."""
        self.is_further = True
        self._max_steps = min(MAX_STEPS, self._steps + FURTHER_STEPS)

    def finish(self) -> None:
        """Allow FURTHER_STEPS more premises after the last, to use what the tables have."""
        self.cut()
        self.is_over = True
        self._max_steps = self._steps + FURTHER_STEPS

    def cut(self) -> None:
        """Record that a part of the search was left out."""
        self.truncated |= not self.is_further

    def step(self) -> None:
        """Count a step. Raises StepsExceeded, and BudgetExceeded at the deadline."""
        self._steps += 1
        if not self._steps % STEPS_PER_YIELD:
            self.budget.yield_now()
        if self._steps > self._max_steps:
            raise StepsExceeded

    def shown(self, rows: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
        """Return the rows that are tried of those of a premise."""
        if len(rows) <= MAX_ROWS:
            return rows
        self.cut()
        return rows[:MAX_ROWS]


@dataclass(frozen=True, slots=True)
class ChangeableFacts:
    """The rules of a search by the stored schema of their heads, and what facts it may change."""

    rules: dict[RelationSchema, list[Rule]]
    changing: frozenset[tuple[str, int]]
    negatives: frozenset[RelationSchema]
    modes: Modes
    reached: dict[RelationSchema, frozenset[RelationSchema]] = field(default_factory=dict)

    def may_change(self, atom: Atom) -> bool:
        """Return True if facts of the predicate of an atom may be added and removed.

        Explicit negatives may where the rules, the goal or the facts have some.
        """
        return self._may_change(schema_of(atom))

    def _may_change(self, schema: RelationSchema) -> bool:
        if schema in self.modes or not (schema.positive or schema in self.negatives):
            return False
        return (schema.predicate, schema.arity) in self.changing or schema not in self.rules

    def reach(self, atom: Atom) -> frozenset[RelationSchema]:
        """Return the schemas of the facts of which one has to change where an atom becomes true."""
        schema = schema_of(atom)
        known = self.reached.get(schema)
        if known is None:
            waiting, seen = [schema], {schema}
            while waiting:
                below = {
                    each
                    for rule in self.rules.get(waiting.pop(), ())
                    for item in rule.body
                    if isinstance(item, Literal)
                    for each in _read_by(item)
                } - seen
                seen |= below
                waiting += below
            known = self.reached[schema] = frozenset(filter(self._may_change, seen))
        return known

    def is_permitted(self, atom: Atom) -> bool:
        """Return True if a plugin can be asked with these arguments bound, or none is needed."""
        marks = "".join("f" if isinstance(arg, Variable) else "b" for arg in atom.args)
        return permitted(self.modes, schema_of(atom), marks)


@dataclass(frozen=True, slots=True)
class _Answer:
    """Arguments for which an atom becomes true, and the changes that it needs.

    `is_open` if the changes are only a part: the value of an aggregate is not known before they
    are made.
    """

    args: tuple[HeadTerm, ...]
    changes: Changes
    is_open: bool


_Branch = tuple[Substitution, Changes, bool]

_Call = tuple[Atom, int]
"""An atom that is to become true, and the number of changes that may be made for it."""


@dataclass(frozen=True, slots=True)
class _Left:
    """The premises of a rule that are still to be looked at, those that are to be assumed once the
    others have given values to their variables, the number of changes that may be made, and the
    number of rules above.
    """

    items: tuple[BodyItem, ...]
    most: int
    assumed: tuple[Atom, ...] = ()
    depth: int = 0

    def without(self, index: int) -> _Left:
        """Return the premises without one."""
        return replace(self, items=self.items[:index] + self.items[index + 1 :])


def schema_of(atom: Atom) -> RelationSchema:
    """Return the stored schema of an atom."""
    return RelationSchema(atom.predicate, atom.arity, atom.positive)


class Repairs:
    """The search for the next changes in one world, of at most `most` facts.

    Without `shares` each assumed premise of a rule has changes of its own.
    """

    def __init__(
        self, world: World, vocabulary: ChangeableFacts, effort: Effort, most: int, *, shares: bool
    ) -> None:
        self._shares = shares
        self._world = world
        self._vocabulary = vocabulary
        self._effort = effort
        self._most = most
        self._tables: dict[_Call, dict[_Answer, None]] = {}
        self._callers: dict[_Call, set[_Call]] = {}
        self._fresh = count()
        self._goal: _Call = Atom(GOAL), most
        self._caller = self._goal

    def options(self, body: Sequence[BodyItem], *, make: bool) -> list[Changes]:
        """Return the next changes; those with variables hold for any values of these.

        Raises BudgetExceeded.
        """
        results: dict[Changes, None] = {}
        new, again, numbers = [self._goal], set[_Call](), {self._goal: 0}
        try:
            while new or again:  # the calls of a call before the call itself is repeated
                call = new.pop() if new else max(again, key=numbers.__getitem__)
                again.discard(call)
                self._caller = call
                known = len(self._tables)
                if call == self._goal:
                    self._add_ways(results, body, make=make)
                elif self._extend(call):
                    again |= self._callers[call]
                for each in list(self._tables)[known:]:
                    numbers[each] = len(numbers)
                    new.append(each)
        except StepsExceeded:
            self._effort.finish()
            with suppress(StepsExceeded):
                for call in sorted(again - {self._goal}, key=numbers.__getitem__, reverse=True):
                    self._caller = call
                    self._extend(call)
            self._effort.finish()
            with suppress(StepsExceeded):
                self._add_ways(results, body, make=make)
        return list(results)

    def _add_ways(
        self, results: dict[Changes, None], body: Sequence[BodyItem], *, make: bool
    ) -> None:
        self._caller = self._goal
        for changes in self._of_goal(body, make=make):
            results.setdefault(changes)
            if len(results) >= MAX_WAYS:
                self._effort.cut()
                return

    # -- the goal ----------------------------------------------------------------------------------

    def _of_goal(self, body: Sequence[BodyItem], *, make: bool) -> Iterator[Changes]:
        if make:
            items = tuple(map(_listed, body)) if len(body) == 1 else tuple(body)
            for values, changes, _ in self._join(_Left(items, self._most), {}, NO_CHANGES):
                if changes:
                    yield _named(_resolved_changes(changes, values))
            return
        answer = self._world.first_answer(body, self._effort.budget)
        for item in answer or ():
            if not isinstance(item, Literal):
                continue
            if not item.negated:
                for row in self._rows(item.atom)[:1]:
                    atom = Atom(item.atom.predicate, row, item.atom.positive)
                    yield from self._breaks(atom, self._most)
                continue
            if item.atom.ground or not item.atom.positive:
                yield from self._makes(item.atom, self._most)
            if item.atom.positive:
                denial = counterpart(item)
                for row in self._rows(denial)[:1]:
                    yield from self._breaks(Atom(denial.predicate, row, False), self._most)

    # -- tables ------------------------------------------------------------------------------------

    def _answers(self, atom: Atom, most: int, depth: int) -> Iterable[_Answer]:
        """Return what is known to make an atom true, and have the present call repeated when there
        is more. `depth` is the number of rules above.
        """
        call = _canonical(atom), most
        if call not in self._tables and len(self._tables) >= MAX_CALLS:
            self._effort.cut()
            return []
        self._callers.setdefault(call, set()).add(self._caller)
        return list(self._tables.setdefault(call, {}))

    def _extend(self, call: _Call) -> bool:
        """Add what makes a call true to its table; return True if there was anything new."""
        table, (atom, most) = self._tables[call], call
        size = len(table)
        for rule in self._vocabulary.rules.get(schema_of(atom), ()):
            own = self._renamed(rule)
            values = unified(own.head.args, atom.args, {})
            if values is None:
                continue
            is_open = folds(rule)
            left = _Left(own.body, most)
            for bound, changes, open_below in self._join(left, values, NO_CHANGES):
                if changes:
                    args = tuple(self._argument(arg, bound) for arg in own.head.args)
                    self._add(table, args, _resolved_changes(changes, bound), is_open or open_below)
                    if len(table) >= MAX_WAYS:
                        self._effort.cut()
                        return len(table) > size
            if is_open:
                for changes in self._fold_breaks(own, atom, most):
                    self._add(table, atom.args, changes, True)
        return len(table) > size

    def _add(
        self,
        table: dict[_Answer, None],
        args: tuple[HeadTerm, ...],
        changes: Changes,
        is_open: bool,
    ) -> None:
        names: Substitution = {}
        for variable in Atom("", args).variables():
            names.setdefault(variable, Variable(f"a{len(names)}"))
        answer = _Answer(
            tuple(names.get(arg, arg) if isinstance(arg, Variable) else arg for arg in args),
            _named(changes, names),
            is_open,
        )
        table.setdefault(answer)

    def _fold_breaks(self, rule: Rule, atom: Atom, most: int) -> Iterator[Changes]:
        """Yield changes that take a row from a group that a rule folds."""
        args = tuple(
            Variable(f"folded{index}") if isinstance(own, (Aggregate, Extremum)) else asked
            for index, (own, asked) in enumerate(zip(rule.head.args, atom.args, strict=True))
        )
        for row in self._rows(Atom(atom.predicate, args, atom.positive)):
            yield from self._breaks(Atom(atom.predicate, row, atom.positive), most)

    def _argument(self, arg: HeadTerm, values: Substitution) -> HeadTerm:
        if isinstance(arg, (Aggregate, Extremum)):
            return Variable(f"open{next(self._fresh)}")
        return resolved(arg, values)

    # -- premises ----------------------------------------------------------------------------------

    def _join(self, left: _Left, values: Substitution, changes: Changes) -> Iterator[_Branch]:
        """Yield the values for which premises become true, with the changes that they need."""
        self._effort.step()
        index = self._next(left.items, values)
        if index is None:
            if left.assumed:
                yield from self._assume(left, values, changes)
            elif left.items:
                yield from self._guess(left, values, changes)
            else:
                for merged in self._merged(changes, values, left.most):
                    yield merged, _resolved_changes(changes, merged), False
            return
        item, rest = left.items[index], left.without(index)
        if isinstance(item, Comparison):
            for bound in self._compared(item, values):
                yield from self._join(rest, bound, changes)
        elif item.negated:
            yield from self._negated(item, rest, values, changes)
        else:
            yield from self._positive(item.atom, rest, values, changes)

    def _next(self, items: Sequence[BodyItem], values: Substitution) -> int | None:
        """Return the index of the premise to look at: a test whose variables are bound, or else the
        positive literal with the fewest unbound arguments.
        """
        best: tuple[int, int] | None = None
        for index, item in enumerate(items):
            if isinstance(item, Comparison):
                if _is_ready(item, values):
                    return index
                continue
            atom = _resolved_atom(item.atom, values)
            unbound = [arg for arg in atom.args if isinstance(arg, Variable)]
            if item.negated:
                if all(variable.anonymous for variable in unbound):
                    return index
            elif self._vocabulary.is_permitted(atom):
                rank = len(unbound), index
                best = rank if best is None else min(best, rank)
        return None if best is None else best[1]

    def _guess(self, left: _Left, values: Substitution, changes: Changes) -> Iterator[_Branch]:
        """Try the constants for a variable of premises that cannot be looked at without."""
        variables = (resolved(each, values) for item in left.items for each in item.variables())
        variable = next(
            each for each in variables if isinstance(each, Variable) and not each.anonymous
        )
        for constant in self._world.constants:
            yield from self._join(left, {**values, variable: constant}, changes)

    def _positive(
        self, premise: Atom, left: _Left, values: Substitution, changes: Changes
    ) -> Iterator[_Branch]:
        """Look at a premise: it holds for some values, and others are assumed later."""
        atom = self._with_names(_resolved_atom(premise, values))
        rows = self._rows(atom)
        for row in rows:
            bound = unified(atom.args, row, values)
            if bound is not None:
                yield from self._join(left, bound, changes)
        if atom.ground and rows:
            return
        assumed = (*left.assumed, atom)
        if self._vocabulary.reach(atom) and self._needed(assumed, changes) <= left.most:
            yield from self._join(replace(left, assumed=assumed), values, changes)

    def _needed(
        self,
        assumed: Sequence[Atom],
        changes: Changes,
        other: frozenset[RelationSchema] = frozenset(),
    ) -> int:
        """Return the least number of changes that premises to assume and changes need together:
        those without a common predicate need separate ones. Changes of `other` are not counted.
        """
        if not self._shares:
            return len(changes) + len(assumed)
        number, seen = 0, set(other)
        for schema in {schema_of(each.atom) for each in changes}:
            number += schema not in seen
            seen.add(schema)
        for reach in sorted(map(self._vocabulary.reach, assumed), key=len):
            if seen.isdisjoint(reach):
                number += 1
                seen |= reach
        return number

    def _assume(self, left: _Left, values: Substitution, changes: Changes) -> Iterator[_Branch]:
        """Make the premise true that has the fewest unbound and the most bound arguments."""
        atoms = [_resolved_atom(atom, values) for atom in left.assumed]
        index = min(range(len(atoms)), key=lambda each: (_unbound(atoms[each]), -atoms[each].arity))
        atom, others = atoms[index], tuple(atoms[:index] + atoms[index + 1 :])
        if atom.ground and self._rows(atom):
            return  # the same values were tried with the premise as one that holds
        rest = replace(left, assumed=others)
        if self._vocabulary.may_change(atom):
            added = changes | {FactChange(True, atom)}
            for merged in self._merged(added, values, left.most):
                yield from self._join(rest, merged, _resolved_changes(added, merged))
        if schema_of(atom) not in self._vocabulary.rules:
            return
        most = left.most - self._needed(others, changes, self._vocabulary.reach(atom))
        for answer in self._answers(atom, most, left.depth) if most > 0 else ():
            names: Substitution = {}
            args = tuple(self._imported(arg, names) for arg in answer.args)
            bound = unified(args, atom.args, values)
            if bound is None:
                continue
            needed = changes | self._imported_changes(answer.changes, names)
            for merged in self._merged(needed, bound, left.most):
                if answer.is_open:
                    yield merged, _resolved_changes(needed, merged), True
                else:
                    yield from self._join(rest, merged, _resolved_changes(needed, merged))

    def _negated(
        self, item: Literal, left: _Left, values: Substitution, changes: Changes
    ) -> Iterator[_Branch]:
        atom = _resolved_atom(item.atom, values)
        blockers = self._world.blockers(atom, self._effort.budget)
        if not blockers:
            yield from self._join(left, values, changes)
            return
        blocker = blockers[0]
        ways = list(self._breaks(blocker, left.most))
        if blocker.positive:
            ways += self._makes(Atom(blocker.predicate, blocker.args, False), left.most)
        for way in dict.fromkeys(ways):
            needed = changes | way
            for merged in self._merged(needed, values, left.most):
                yield from self._join(left, merged, _resolved_changes(needed, merged))

    def _makes(self, atom: Atom, most: int) -> Iterator[Changes]:
        """Yield changes that make an atom true, or an instance of it."""
        for values, changes, _ in self._join(_Left((Literal(atom),), most), {}, NO_CHANGES):
            if changes:
                yield self._imported_changes(_resolved_changes(changes, values), {})

    def _breaks(self, atom: Atom, most: int) -> Iterator[Changes]:
        """Yield changes that take something from a proof of a true atom."""
        support = self._world.support(atom, self._effort.budget)
        for fact in support.facts:
            if self._vocabulary.may_change(fact):
                yield frozenset((FactChange(False, fact),))
        for absent in support.absent:
            yield from self._makes(absent, most)
        for rule, conclusion in support.groups:
            own = self._renamed(rule)
            values = unified(own.head.args, conclusion.args, {}, folded=True)
            if values is not None:
                for bound, changes, _ in self._join(_Left(own.body, most), values, NO_CHANGES):
                    if changes:
                        yield self._imported_changes(_resolved_changes(changes, bound), {})

    def _compared(self, item: Comparison, values: Substitution) -> Iterator[Substitution]:
        """Yield the values for which a comparison that is ready holds."""
        if item.op == "matches":  # the engine alone reads patterns
            left = _value(item.left, values)
            test_item = None if left is None else replace(item, left=left)
            if test_item is not None and self._world.holds(test_item, self._effort.budget):
                yield values
            return
        yield from _compared(item, values)

    # -- changes and names -------------------------------------------------------------------------

    def _merged(self, changes: Changes, values: Substitution, most: int) -> Iterator[Substitution]:
        """Yield values for which changes are at most as many as may be made, and consistent."""
        distinct = _resolved_changes(changes, values)
        if undoes(distinct):
            return
        if len(distinct) <= most:
            yield values
            return
        added = [each.atom for each in distinct if each.adds]
        for index, atom in enumerate(added):
            for other in added[index + 1 :]:
                if schema_of(atom) == schema_of(other):
                    bound = unified(atom.args, other.args, values)
                    if bound is not None:
                        yield from self._merged(distinct, bound, most)

    def _rows(self, atom: Atom) -> Sequence[tuple[str, ...]]:
        return self._effort.shown(self._world.rows(_canonical(atom), self._effort.budget))

    def _renamed(self, rule: Rule) -> Rule:
        """Return a rule with variables of its own."""
        names: Substitution = {}
        head = self._imported_atom(rule.head, names)
        return Rule(head, tuple(self._renamed_item(item, names) for item in rule.body))

    def _renamed_item(self, item: BodyItem, names: Substitution) -> BodyItem:
        if isinstance(item, Literal):
            return Literal(self._imported_atom(item.atom, names), item.negated)
        left, right = (self._imported_expression(side, names) for side in (item.left, item.right))
        return Comparison(item.op, left, right, item.negated)

    def _imported_expression(self, expression: Expr, names: Substitution) -> Expr:
        if isinstance(expression, Apply):
            args = tuple(self._imported_expression(arg, names) for arg in expression.args)
            return Apply(expression.function, args)
        return self._imported_term(expression, names)

    def _imported(self, arg: HeadTerm, names: Substitution) -> HeadTerm:
        if isinstance(arg, Extremum):
            variable = self._imported_term(arg.variable, names)
            return Extremum(arg.function, variable) if isinstance(variable, Variable) else arg
        return arg if isinstance(arg, Aggregate) else self._imported_term(arg, names)

    def _imported_term(self, term: Term, names: Substitution) -> Term:
        if not isinstance(term, Variable) or term.anonymous:
            return term
        if term not in names:
            names[term] = Variable(f"v{next(self._fresh)}")
        return names[term]

    def _imported_changes(self, changes: Changes, names: Substitution) -> Changes:
        return frozenset(
            FactChange(adds, self._imported_atom(atom, names)) for adds, atom in changes
        )

    def _imported_atom(self, atom: Atom, names: Substitution) -> Atom:
        args = tuple(self._imported(arg, names) for arg in atom.args)
        return Atom(atom.predicate, args, atom.positive)

    def _with_names(self, atom: Atom) -> Atom:
        """Return an atom with a variable of its own for each anonymous one."""
        return Atom(
            atom.predicate,
            tuple(
                Variable(f"v{next(self._fresh)}")
                if isinstance(arg, Variable) and arg.anonymous
                else arg
                for arg in atom.args
            ),
            atom.positive,
        )


class FirstRepairs(Repairs):
    """The search for some next changes in one world, in no table: each is found by few steps, and
    all of them by very many. A rule is used below `most_depth` others at most; `is_cut` is True if
    one further below was left out.
    """

    def __init__(
        self, world: World, vocabulary: ChangeableFacts, effort: Effort, most: int, most_depth: int
    ) -> None:
        super().__init__(world, vocabulary, effort, most, shares=False)
        self._most_depth = most_depth
        self.is_cut = False

    def first(self, body: Sequence[BodyItem]) -> Iterator[Changes]:
        """Yield changes without variables that may make a goal true; some of them again.

        Raises BudgetExceeded and StepsExceeded.
        """
        return filter(is_ground, self._of_goal(body, make=True))

    def _answers(self, atom: Atom, most: int, depth: int) -> Iterator[_Answer]:
        if depth >= self._most_depth:
            self.is_cut = True
            return
        for rule in self._vocabulary.rules.get(schema_of(atom), ()):
            own = self._renamed(rule)
            values = None if folds(rule) else unified(own.head.args, atom.args, {})
            if values is None:
                continue
            left = _Left(own.body, most, depth=depth + 1)
            for bound, changes, is_open in self._join(left, values, NO_CHANGES):
                if changes:
                    args = tuple(resolved(arg, bound) for arg in own.head.args)
                    yield _Answer(args, _resolved_changes(changes, bound), is_open)


def grounded(changes: Changes, constants: Sequence[str]) -> Iterator[Changes]:
    """Yield changes with constants for their variables."""
    variables = list(dict.fromkeys(v for each in changes for v in each.atom.variables()))
    for choice in product(constants, repeat=len(variables)):
        values: Substitution = dict(zip(variables, choice, strict=True))
        yield _resolved_changes(changes, values)


def is_ground(changes: Changes) -> bool:
    """Return True if changes have no variables."""
    return all(each.atom.ground for each in changes)


def undoes(changes: Changes) -> bool:
    """Return True if changes add a fact and remove it too."""
    return any(not adds and FactChange(True, atom) in changes for adds, atom in changes)


def resolved(term: HeadTerm, values: Substitution) -> HeadTerm:
    """Return what a term stands for: a constant, or a variable without a value."""
    while isinstance(term, Variable) and term in values:
        term = values[term]
    return term


def unified(
    left: Iterable[HeadTerm],
    right: Iterable[HeadTerm],
    values: Substitution,
    *,
    folded: bool = False,
) -> Substitution | None:
    """Return values that make arguments equal; None if there are none.

    Aggregates match every value, and so do extrema if `folded`, which otherwise stand for their
    variables.
    """
    bound = dict(values)
    for own, asked in zip(left, right, strict=True):
        if isinstance(own, Extremum):
            if folded:
                continue
            own = own.variable
        if isinstance(own, Aggregate) or isinstance(asked, (Aggregate, Extremum)):
            continue
        first, other = resolved(own, bound), resolved(asked, bound)
        if first == other:
            continue
        if isinstance(first, Variable) and isinstance(other, (Variable, str)):
            bound[first] = other
        elif isinstance(other, Variable) and isinstance(first, str):
            bound[other] = first
        else:
            return None
    return bound


def _unbound(atom: Atom) -> int:
    return sum(isinstance(arg, Variable) for arg in atom.args)


def _read_by(literal: Literal) -> tuple[RelationSchema, ...]:
    """Return the schemas that decide a premise: those of both signs under `not`."""
    schema = schema_of(literal.atom)
    return (schema, schema.opposite) if literal.negated else (schema,)


def _resolved_atom(atom: Atom, values: Substitution) -> Atom:
    return Atom(atom.predicate, tuple(resolved(arg, values) for arg in atom.args), atom.positive)


def _resolved_changes(changes: Changes, values: Substitution) -> Changes:
    return frozenset(FactChange(adds, _resolved_atom(atom, values)) for adds, atom in changes)


def _canonical(atom: Atom) -> Atom:
    """Return an atom whose variables are named by their order."""
    names: Substitution = {}
    for variable in atom.variables():
        if not variable.anonymous:
            names.setdefault(variable, Variable(f"a{len(names)}"))
    return _replaced(atom, names) if names else atom


def _replaced(atom: Atom, names: Substitution) -> Atom:
    """Return an atom with other names for its variables."""
    args = (names.get(arg, arg) if isinstance(arg, Variable) else arg for arg in atom.args)
    return Atom(atom.predicate, tuple(args), atom.positive)


def _named(changes: Changes, names: Substitution | None = None) -> Changes:
    """Return changes with variables named by their order, after those in `names`."""
    names = {} if names is None else names
    ordered = sorted(changes, key=_without_names)
    for change in ordered:
        for variable in change.atom.variables():
            names.setdefault(variable, Variable(f"a{len(names)}"))
    return frozenset(FactChange(adds, _replaced(atom, names)) for adds, atom in ordered)


def _without_names(change: FactChange) -> tuple[bool, str, bool, list[str]]:
    atom = change.atom
    args = ["" if isinstance(arg, Variable) else "=" + str(arg) for arg in atom.args]
    return change.adds, atom.predicate, atom.positive, args


def _listed(item: BodyItem) -> BodyItem:
    """Return a goal as it is answered: `not p(?x)` lists the explicit negatives."""
    if isinstance(item, Literal) and item.negated and not item.atom.ground:
        return Literal(counterpart(item))
    return item


# ---- comparisons ----


def _is_bound(expression: Expr, values: Substitution) -> bool:
    return all(isinstance(resolved(v, values), str) for v in expression_variables(expression))


def _is_ready(item: Comparison, values: Substitution) -> bool:
    """Return True if a comparison can be tested, or gives a variable its value."""
    if generator_of(item) is not None:
        return _is_bound(item.right, values) and (not item.negated or _is_bound(item.left, values))
    bound = _is_bound(item.left, values), _is_bound(item.right, values)
    return all(bound) or (any(bound) and _target(item, values) is not None)


def _target(item: Comparison, values: Substitution) -> tuple[Variable, Expr] | None:
    """Return the variable that an equation gives a value, and the expression with the value."""
    if item.op not in ("=", "==") or item.negated:
        return None
    for side, other in ((item.left, item.right), (item.right, item.left)):
        if not isinstance(side, Variable) or (item.op == "==" and isinstance(other, Apply)):
            continue
        variable = resolved(side, values)
        if isinstance(variable, Variable) and _is_bound(other, values):
            return variable, other
    return None


def _generated(item: Comparison, generator: Apply, values: Substitution) -> Iterator[Substitution]:
    """Yield the values for which the left side of a comparison is an element of a generator."""
    args = [_value(arg, values) for arg in generator.args]
    texts = [arg for arg in args if arg is not None]
    elements = None if len(texts) < len(args) else generate(generator.function, texts)
    if elements is None:
        return
    if not _is_bound(item.left, values):
        for text in dict.fromkeys(elements):
            bound = unified([_term(item.left)], [text], values)
            if bound is not None:
                yield bound
        return
    element = _value(item.left, values)
    if element is not None and (element in elements) != item.negated:
        yield values


def _compared(item: Comparison, values: Substitution) -> Iterator[Substitution]:
    """Yield the values for which a comparison that is ready holds."""
    call = generator_of(item)
    if call is not None:
        yield from _generated(item, call, values)
        return
    target = (
        None
        if _is_bound(item.left, values) and _is_bound(item.right, values)
        else _target(item, values)
    )
    if target is not None:
        value = _value(target[1], values)
        if value is not None:
            yield {**values, target[0]: value}
        return
    left, right = _value(item.left, values), _value(item.right, values)
    if left is None or right is None:
        return
    negation = 8 if item.negated else 0
    if item.op in SUBSTRING_TESTS:
        holds = text_test(SUBSTRING_TESTS.index(item.op) + negation, left, right)
    else:
        holds = test(COMPARISONS.index(item.op) + negation, left, right)
    if holds:
        yield values


def _term(expression: Expr) -> Term:
    return "" if isinstance(expression, Apply) else expression


def _value(expression: Expr, values: Substitution) -> str | None:
    """Return the value of an expression whose variables are bound; None if it has none."""
    if not isinstance(expression, Apply):
        value = resolved(expression, values)
        return value if isinstance(value, str) else None
    args = [_value(arg, values) for arg in expression.args]
    texts = [arg for arg in args if arg is not None]
    return None if len(texts) < len(args) else compute(expression.function, texts)
