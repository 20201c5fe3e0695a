"""Instances of rules replayed many at a time: their rows read as columns, and found once how a clause stands for its rule.

A node of a proof by itself costs some ten crossings into the engine, among many others a share of one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from kbcore.state.rulebook import StoredRule
from kbplanner.engine.backend import Engine
from kbplanner.engine.ground import Ground, Shortest
from kbplanner.evaluate.evaluated import value_of
from kbplanner.evaluate.grounding import Block, GroundRun, Instance
from kbplanner.evaluate.witness import Complete, named
from kbplanner.ir.program import ClauseAtom
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    BodyItem,
    Comparison,
    Expr,
    HeadTerm,
    Literal,
    Rule,
    Term,
    Variable,
)
from kbplanner.passes.instances import InstanceRelation

Values = dict[Variable, str]
"""The values of variables in an instance of a rule."""

FIRST, GROWTH, MOST = 8, 4, 256
"""Instances replayed together at first, how much faster the next time, and at most: less than a millisecond."""

_DISCOVERED, _PICKED = 1, 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Solved:
    """A finished run, the ground program read from it, its shortest proofs, and its instances with all their values."""

    engine: Engine
    run: GroundRun
    ground: Ground
    shortest: Shortest
    complete: Complete

    def chosen(self, instance: Instance, atom: ClauseAtom) -> int:
        """The number of the instance that gives a premise of another."""
        values = (instance.binding[arg] if isinstance(arg, Variable) else self.engine.find(str(arg)) for arg in atom.args)
        return self.shortest.chosen[self.run.nodes(atom.schema, array("I", values), 1)[0]]

    def gathered(self, binding: int) -> Instance:
        """The instance of the author's body behind a binding, which may be part of another one."""
        instance = self.complete.instance(self.shortest.chosen[binding])
        while instance.source.premises and instance.source.premises[0].schema.role is Role.BINDINGS:
            instance = self.complete.instance(self.chosen(instance, instance.source.premises[0]))
        return instance


class Lots:
    """Picks the instances of a proof that are replayed together: the one that is asked for, and what is likely to be next.

    That is what its premises rest on, level by level; then what was found in this way before. No instance is picked twice.
    """

    def __init__(self, ground: Ground, shortest: Shortest, parts: int) -> None:
        self._ground = ground
        self._parts = parts
        self._shortest = shortest
        self._states = bytearray(len(ground))
        self._later: deque[int] = deque()
        self._size = FIRST

    def pick(self, first: int) -> list[int]:
        """The numbers of some instances, `first` among them unless it was picked before, in order."""
        states, ground, later = self._states, self._ground, self._later
        premises, ends, free = ground.premises, ground.ends, ground.free
        heights, chosen, parts = self._shortest.heights, self._shortest.chosen, self._parts
        near, picked = deque([first]), list[int]()
        while len(picked) < self._size and (near or later):
            number = near.popleft() if near else later.popleft()
            if states[number] == _PICKED:
                continue
            states[number] = _PICKED
            picked.append(number)
            nodes = premises[ends[number - 1] if number else 0 : ends[number]]
            for node in nodes:
                below = chosen[node]
                if below < parts:  # what the part rests on, which is looked at in this loop as well
                    nodes.extend(ground.of(below))
                elif heights[node] and below >= free and not states[below]:
                    states[below] = _DISCOVERED
                    near.append(below)
        later.extend(near)
        self._size = min(self._size * GROWTH, MOST)
        picked.sort()
        return picked


@dataclass(frozen=True, slots=True)
class Premise:
    """An item of a rule's body, and the atom of the clause that stands for it whatever the values are.

    `places` are the columns with its arguments. Without an atom the item has to be looked at for each instance.
    """

    item: BodyItem
    atom: ClauseAtom | None
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """How the instances of a clause are steps by a rule.

    Columns are the clause's `variables` and then `constants`, symbols that its atoms use. `names` are the rule's variables
    that the clause has, with their columns; `equations` says that the rule may have others, with values that follow.
    """

    rule: StoredRule
    source: InstanceRelation
    variables: tuple[Variable, ...]
    constants: tuple[int, ...]
    names: tuple[tuple[Variable, int], ...]
    equations: bool
    premises: tuple[Premise, ...]


class Columns:
    """Some instances of a block: the symbols of each column of its step, and their texts."""

    def __init__(self, step: Step, block: Block, places: Sequence[int], complete: Complete, engine: Engine) -> None:
        self.count = len(places)
        columns = complete.columns(block, places)
        self.symbols = [columns[variable] for variable in step.variables]
        self.symbols += [[symbol] * self.count for symbol in step.constants]
        texts = engine.texts(array("I", chain.from_iterable(self.symbols)))
        self.texts = [texts[first : first + self.count] for first in range(0, len(texts), self.count)]

    def keys(self, places: Sequence[int]) -> list[tuple[int, ...]]:
        """The symbols in some columns, row by row."""
        return _across(self.symbols, places, self.count)

    def values(self, places: Sequence[int]) -> list[tuple[str, ...]]:
        """The texts in some columns, row by row."""
        return _across(self.texts, places, self.count)


def _across(columns: Sequence[Sequence[T]], places: Sequence[int], count: int) -> list[tuple[T, ...]]:
    return list(zip(*[columns[place] for place in places], strict=True)) if places else [()] * count


def step_of(source: InstanceRelation, stored: StoredRule, engine: Engine) -> Step | None:
    """How the instances of a clause are steps by its rule; None where the rule aggregates."""
    rule = stored.rule
    if any(isinstance(arg, Aggregate) for arg in rule.head.args):
        return None
    variables = named(source)
    columns: dict[HeadTerm, int] = {variable: place for place, variable in enumerate(variables)}
    constants: list[int] = []
    premises: list[Premise] = []
    for item in rule.body:
        atom = standing_for(item, source) if isinstance(item, Literal) else None
        for arg in atom.args if atom else ():
            if isinstance(arg, str) and arg not in columns and (symbol := engine.find(arg)):
                columns[arg] = len(variables) + len(constants)
                constants.append(symbol)
        if atom is None or any(arg not in columns for arg in atom.args):
            premises.append(Premise(item, None, ()))
        else:
            premises.append(Premise(item, atom, tuple(columns[arg] for arg in atom.args)))
    names = tuple((v, columns[v]) for v in variables_of(rule) if v in columns)
    return Step(stored, source, variables, tuple(constants), names, bool(_equations(rule)), tuple(premises))


def parted(blocks: Sequence[Block], numbers: Sequence[int]) -> Iterator[tuple[Block, list[int]]]:
    """Numbers of instances, in order, by the block they are in: with their places there."""
    at = 0
    for block in blocks:
        while at < len(numbers) and numbers[at] < block.start:
            at += 1  # of a group, whose instances no block has
        first, end = at, block.start + block.count
        while at < len(numbers) and numbers[at] < end:
            at += 1
        if first < at:
            yield block, [number - block.start for number in numbers[first:at]]


def variables_of(rule: Rule) -> dict[Variable, None]:
    """The named variables of a rule, in order of appearance."""
    return dict.fromkeys(v for part in (rule.head, *rule.body) for v in part.variables() if not v.anonymous)


def values_of(rule: Rule, known: Values) -> Values:
    """Add the variables that the rule sets equal to others or computes: in its clause they need not appear."""
    equations = _equations(rule)
    grown = True
    while grown:
        grown = False
        for item in equations:
            for variable, value in ((item.left, item.right), (item.right, item.left)):
                if not isinstance(variable, Variable) or variable in known:
                    continue
                given = value_of(value, {v.name: text for v, text in known.items()})
                if given is not None:
                    known[variable] = given
                    grown = True
    return known


def _equations(rule: Rule) -> list[Comparison]:
    return [i for i in rule.body if isinstance(i, Comparison) and i.op in ("=", "==") and not i.negated]


def standing_for(item: Literal, source: InstanceRelation) -> ClauseAtom | None:
    """The atom of a clause that stands for an item of its rule, where whatever the values there can be no other."""
    schema = RelationSchema(item.atom.predicate, item.atom.arity, item.atom.positive)
    found = [] if item.negated else [a for a in source.whole.atoms() if _is_of(a, schema)]
    same = next((atom for atom in found if atom.args == item.atom.args), None)
    return found[0] if len(found) == 1 else same


def stands_for(atom: ClauseAtom, schema: RelationSchema, wanted: Sequence[Term], values: Values) -> bool:
    """Whether a clause's atom is what became of a rule's, given as the relation and the arguments with their values."""
    if not _is_of(atom, schema):
        return False
    found = with_values(atom.args, values)
    return all(isinstance(want, Variable) or want == have for want, have in zip(wanted, found, strict=True))


def _is_of(atom: ClauseAtom, schema: RelationSchema) -> bool:
    """Whether a clause's atom reads what is stored or concluded of a relation."""
    return atom.schema.role in (Role.STORED, Role.DERIVED, Role.UNDENIED) and atom.schema.stored == schema


def with_values(args: Sequence[HeadTerm], values: Values) -> tuple[Term, ...]:
    """Terms with their values; anonymous variables stay."""
    terms = (arg for arg in args if not isinstance(arg, Aggregate))
    return tuple(values.get(term, term) if isinstance(term, Variable) else term for term in terms)


def filled(expr: Expr, values: Values) -> Expr:
    """An expression with the values of its variables."""
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(filled(arg, values) for arg in expr.args))
    return values.get(expr, expr) if isinstance(expr, Variable) else expr
