"""Batched replay of rule instances for proofs.

Expanding a single proof node takes about ten engine calls; in a batch, nodes share them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from kbcore.state.rulebook import ParsedRule
from kbplanner.engine.backend import Engine
from kbplanner.engine.columns import dicts_of
from kbplanner.engine.ground import Ground, Shortest
from kbplanner.engine.ground_solver import Search
from kbplanner.evaluate.grounding import GroundBlock, GroundRun, Instance
from kbplanner.evaluate.witness import CompleteInstances, valued_variables
from kbplanner.ir.program import ClauseAtom
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import (
    Aggregate,
    BodyItem,
    Comparison,
    HeadTerm,
    Literal,
    Rule,
    Term,
    Variable,
)
from kbplanner.ir.values.compute import value_of
from kbplanner.passes.instances import InstanceRelation

Values = dict[Variable, str]
"""The values of variables in an instance of a rule."""

FIRST_BATCH, BATCH_GROWTH, MAX_BATCH = 8, 8, 1024
"""Instances replayed in the first batch, growth factor, and maximum: about a millisecond of work.
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Solved:
    """A finished run with its ground program, its shortest proofs, and its instances with all
    values.
    """

    engine: Engine
    run: GroundRun
    ground: Ground
    shortest: Shortest
    complete: CompleteInstances

    def chosen(self, instance: Instance, atom: ClauseAtom) -> int:
        """Return the number of the instance that proves a premise of another instance."""
        symbols = (
            instance.binding[arg] if isinstance(arg, Variable) else self.engine.find(str(arg))
            for arg in atom.args
        )
        return self.shortest.chosen[self.run.nodes(atom.schema, array("I", symbols), 1)[0]]

    def gathered(self, binding: int) -> Instance:
        """Return the instance of the original rule body behind a binding, which may be part of
        another binding.
        """
        instance = self.complete.instance(self.shortest.chosen[binding])
        while instance.source.premises and instance.source.premises[0].schema.role is Role.BINDINGS:
            instance = self.complete.instance(self.chosen(instance, instance.source.premises[0]))
        return instance


class BatchPicker:
    """Selection of the instances of a proof to replay in one batch: the requested one and likely
    next ones, which are those of its premises and of expected proofs.
    """

    def __init__(self, solved: Solved) -> None:
        self._search = Search(solved.ground, solved.shortest, solved.run.parts)
        self._size = FIRST_BATCH

    def expect(self, instances: Iterable[int]) -> None:
        """Add instances that will be requested."""
        self._search.expect(instances)

    def pick(self, first: int, expected: int = MAX_BATCH) -> Sequence[int]:
        """Return the numbers of the next batch in order, including `first` unless it was picked
        before.

        Instances beyond the `expected` number are not likely to be requested.
        """
        size = max(min(self._size, expected), 1)
        self._size = min(self._size * BATCH_GROWTH, MAX_BATCH)
        return self._search.pick(first, size)


@dataclass(frozen=True, slots=True)
class BatchPremise:
    """An item of a rule's body, and the clause atom that represents it for all values.

    `places` are the columns with its arguments. Without an atom the item is examined separately for
    each instance.
    """

    item: BodyItem
    atom: ClauseAtom | None
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The mapping from instances of a clause to proof steps of its rule.

    The columns are the clause's `variables` followed by `constants`, the symbols that its atoms
    use. `names` are the rule's variables in the clause, with their columns. `equations` is True if
    the rule may have further variables whose values follow from equations.
    """

    rule: ParsedRule
    source: InstanceRelation
    variables: tuple[Variable, ...]
    constants: tuple[int, ...]
    names: tuple[tuple[Variable, int], ...]
    equations: bool
    premises: tuple[BatchPremise, ...]


class Columns:
    """Instances of a block as columns of symbols and of texts."""

    def __init__(
        self,
        step: Step,
        block: GroundBlock,
        places: Sequence[int],
        complete: CompleteInstances,
        engine: Engine,
    ) -> None:
        self.count = len(places)
        columns = complete.columns(block, places)
        self.symbols = [columns[variable] for variable in step.variables]
        self.symbols += [[symbol] * self.count for symbol in step.constants]
        texts = engine.texts(array("I", chain.from_iterable(self.symbols)))
        self.texts = [
            texts[first : first + self.count] for first in range(0, len(texts), self.count)
        ]

    def bindings(self, names: Sequence[tuple[Variable, int]]) -> list[dict[str, str]]:
        """Return for each row the texts of variables, which are given with their columns."""
        columns = {str(variable): self.texts[index] for variable, index in names}
        return dicts_of(dict.fromkeys(columns, ""), self.count, columns)

    def keys(self, places: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the symbols of the given columns, row by row."""
        return _across(self.symbols, places, self.count)

    def values(self, places: Sequence[int]) -> list[tuple[str, ...]]:
        """Return the texts of the given columns, row by row."""
        return _across(self.texts, places, self.count)


def _across(
    columns: Sequence[Sequence[T]], places: Sequence[int], count: int
) -> list[tuple[T, ...]]:
    return list(zip(*[columns[index] for index in places], strict=True)) if places else [()] * count


def step_of(source: InstanceRelation, stored: ParsedRule, engine: Engine) -> Step | None:
    """Return the mapping from instances of a clause to steps of its rule.

    None if the rule aggregates.
    """
    rule = stored.rule
    if any(isinstance(arg, Aggregate) for arg in rule.head.args):
        return None
    variables = valued_variables(source)
    columns: dict[HeadTerm, int] = {variable: index for index, variable in enumerate(variables)}
    constants: list[int] = []
    premises: list[BatchPremise] = []
    for item in rule.body:
        atom = standing_for(item, source) if isinstance(item, Literal) else None
        for arg in atom.args if atom else ():
            if isinstance(arg, str) and arg not in columns and (symbol := engine.find(arg)):
                columns[arg] = len(variables) + len(constants)
                constants.append(symbol)
        if atom is None or any(arg not in columns for arg in atom.args):
            premises.append(BatchPremise(item, None, ()))
        else:
            premises.append(BatchPremise(item, atom, tuple(columns[arg] for arg in atom.args)))
    names = tuple((v, columns[v]) for v in variables_of(rule) if v in columns)
    return Step(
        stored, source, variables, tuple(constants), names, bool(_equations(rule)), tuple(premises)
    )


def parted(
    blocks: Sequence[GroundBlock], numbers: Sequence[int]
) -> Iterator[tuple[GroundBlock, list[int]]]:
    """Group ordered instance numbers by block; yield each block with the positions in it."""
    for block in blocks:  # other instances belong to groups
        first = bisect_left(numbers, block.start)
        end = bisect_left(numbers, block.start + block.count, first)
        if first < end:
            yield block, [number - block.start for number in numbers[first:end]]


def variables_of(rule: Rule) -> dict[Variable, None]:
    """Return the named variables of a rule, in order of appearance."""
    return dict.fromkeys(
        v for part in (rule.head, *rule.body) for v in part.variables() if not v.anonymous
    )


def values_of(rule: Rule, known: Values) -> Values:
    """Add the values of variables that follow from equations of the rule and may be missing in its
    clause.
    """
    equations = _equations(rule)
    grown = True
    while grown:
        grown = False
        for item in equations:
            for variable, value in ((item.left, item.right), (item.right, item.left)):
                if not isinstance(variable, Variable) or variable in known:
                    continue
                value_text = value_of(value, {v.name: text for v, text in known.items()})
                if value_text is not None:
                    known[variable] = value_text
                    grown = True
    return known


def _equations(rule: Rule) -> list[Comparison]:
    return [
        i for i in rule.body if isinstance(i, Comparison) and i.op in ("=", "==") and not i.negated
    ]


def standing_for(item: Literal, source: InstanceRelation) -> ClauseAtom | None:
    """Return the clause atom that represents a body item of its rule for all values, or None if
    that depends on them.
    """
    schema = RelationSchema(item.atom.predicate, item.atom.arity, item.atom.positive)
    atoms = [] if item.negated else [a for a in source.whole.atoms() if _is_of(a, schema)]
    same = next((atom for atom in atoms if atom.args == item.atom.args), None)
    return atoms[0] if len(atoms) == 1 else same


def stands_for(
    atom: ClauseAtom, schema: RelationSchema, expected: Sequence[Term], values: Values
) -> bool:
    """Return whether a clause atom represents a rule atom, given as its relation and arguments with
    values.
    """
    if not _is_of(atom, schema):
        return False
    args = with_values(atom.args, values)
    return all(
        isinstance(want, Variable) or want == have
        for want, have in zip(expected, args, strict=True)
    )


def _is_of(atom: ClauseAtom, schema: RelationSchema) -> bool:
    """Return whether a clause atom reads the stored or derived rows of a relation."""
    return (
        atom.schema.role in (Role.STORED, Role.DERIVED, Role.STEP, *BEST, Role.UNDENIED)
        and atom.schema.stored == schema
    )


def with_values(args: Sequence[HeadTerm], values: Values) -> tuple[Term, ...]:
    """Return terms with variables replaced by their values; anonymous variables stay."""
    terms = (arg for arg in args if isinstance(arg, (str, Variable)))
    return tuple(values.get(term, term) if isinstance(term, Variable) else term for term in terms)
