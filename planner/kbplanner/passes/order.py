"""The order of a join: the variables already bound decide which atom comes next.

Before:

    cousin(?x, ?y) :- sibling(?p, ?q), parent(?q, ?y), parent(?p, ?x), ?x != ?y.
    ?- cousin(ann, ?y).

After:

    cousin/2(?x, ?y) :- parent/2(?p, ?x), sibling/2(?p, ?q), parent/2(?q, ?y), ?x != ?y.  % rule 1
    cousin/2(?a0, ?a1) :- cousin/2(?a0, ?a1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kbplanner.errors import EngineFault
from kbplanner.ir.conditions import generated_values
from kbplanner.ir.modes import NO_MODES, Modes, permitted
from kbplanner.ir.program import ClauseAtom, ClauseItem, Computation, equated
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import ANONYMOUS, Variable

DERIVED_ROWS = 10_000
"""Assumed size of a derived relation, which is unknown before it is computed."""

MIN_ROWS = 16
"""Smaller relations are assumed to have this many rows, since they may grow while the plan is in
use.
"""


class Statistics(Protocol):
    """Known sizes of stored relations when a plan is made."""

    def rows(self, schema: RelationSchema) -> int:
        """Return the visible rows of a stored relation."""

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Return the number of distinct values of these columns of a stored relation; 0 when
        unknown.
        """


class NoStatistics:
    """Statistics that treat every stored relation alike."""

    def rows(self, schema: RelationSchema) -> int:
        """Return a medium size."""
        return 1000

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Return 0, unknown."""
        return 0


@dataclass(frozen=True, slots=True)
class SmallDerived:
    """Statistics of stored relations, with derived relations for which `is_small` is true."""

    stored: Statistics
    is_small: Callable[[RelationSchema], bool]

    def rows(self, schema: RelationSchema) -> int:
        """Return the visible rows of a stored relation."""
        return self.stored.rows(schema)

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Return the number of distinct values of these columns of a stored relation; 0 when
        unknown.
        """
        return self.stored.distinct(schema, columns)


def order_items(
    items: Sequence[ClauseItem],
    bound: Iterable[Variable],
    statistics: Statistics,
    first: ClauseAtom | None = None,
    seed: RelationSchema | None = None,
    modes: Modes = NO_MODES,
) -> list[ClauseItem]:
    """Order the items of a body for evaluation from left to right, starting with `bound` variables
    known.

    Tests and computations come as soon as the variables they need are bound; of the atoms and the
    generators, the one with the smallest estimated fan-out comes next, and of equal ones the
    earlier one. Before an atom that is expected to give several rows comes an equation that binds
    another variable. `first`, if given, comes first; `seed` is the relation of the goal's own
    bindings. Atoms of the relations in `modes` come after what binds the arguments they need; the
    caller has checked that there is such an order.
    """
    if len(items) == 1 and not is_test(items[0]):
        return list(items)
    left = list(items)
    computed = {item.target for item in items if isinstance(item, Computation)}
    known = set(bound)
    ordered: list[ClauseItem] = []
    expected = _Estimates(items, known, statistics, seed)
    if first is not None:
        left = [item for item in left if item is not first]
        ordered.append(first)
        known.update(first.variables())
    while left:
        if ready := _ready(left, known):
            ordered.extend(ready)
            known.update(item.target for item in ready if isinstance(item, Computation))
            done = set(map(id, ready))
            left = [item for item in left if id(item) not in done]
            continue
        best = min(_sources(left, known, modes), key=expected, default=None)
        if best is None or expected(best) > 1.0:
            bound_by = _equation(left, known, computed)
            if bound_by is not None:
                equation, target = bound_by
                ordered.append(equation)
                known.add(target)
                left = [item for item in left if item is not equation]
                continue
        if best is None:
            raise EngineFault("nothing binds the variables of a test")
        ordered.append(best)
        left = [item for item in left if item is not best]
        known.update(best.variables())
    return ordered


def _ready(items: Sequence[ClauseItem], known: set[Variable]) -> list[ClauseItem]:
    """Return the tests and computations whose variables are known."""
    return [
        item
        for item in items
        if is_test(item) and tested_variables(item) <= known and not _yields(item, known)
    ]


def _sources(items: Sequence[ClauseItem], known: set[Variable], modes: Modes) -> list[ClauseItem]:
    """Return the atoms and generators that can come next."""
    sources = [
        item
        for item in items
        if not is_test(item) or (_yields(item, known) and tested_variables(item) <= known)
    ]
    if not modes:
        return sources
    return [
        item
        for item in sources
        if not isinstance(item, ClauseAtom) or _is_permitted(item, known, modes)
    ]


def _equation(
    items: Sequence[ClauseItem], known: set[Variable], computed: Collection[Variable]
) -> tuple[ClauseItem, Variable] | None:
    """Return the first equation that binds a variable which is not `computed`, and the variable."""
    for item in items:
        binding = equated(item, known)
        if binding is not None and binding[0] not in computed:
            return item, binding[0]
    return None


MIN_REMEMBERED = 8
"""Items of a body from which on estimates are remembered: those of shorter ones are soon made."""


class _Estimates:
    """The estimated rows of the items of a body, made again where more of their variables are
    known; so each item of a long body is not examined for each other one.
    """

    __slots__ = ("_estimates", "_known", "_seed", "_statistics", "_variables")

    def __init__(
        self,
        items: Sequence[ClauseItem],
        known: set[Variable],
        statistics: Statistics,
        seed: RelationSchema | None,
    ) -> None:
        self._known = known
        self._statistics = statistics
        self._seed = seed
        self._estimates: dict[int, tuple[int, float]] = {}
        self._variables = (
            {id(item): frozenset(item.variables()) for item in items}
            if len(items) >= MIN_REMEMBERED
            else {}
        )

    def __call__(self, item: ClauseItem) -> float:
        """Return the estimated rows of an atom or a generator with the variables known now."""
        variables = self._variables.get(id(item))
        if variables is None:
            return _expected(item, self._known, self._statistics, self._seed)
        count = len(variables & self._known)
        estimate = self._estimates.get(id(item))
        if estimate is None or estimate[0] != count:
            value = _expected(item, self._known, self._statistics, self._seed)
            estimate = self._estimates[id(item)] = count, value
        return estimate[1]


def _yields(item: ClauseItem, known: set[Variable]) -> bool:
    """Return True if an item is a generator whose values are new."""
    return isinstance(item, Computation) and item.generates and item.target not in known


def _expected(
    item: ClauseItem, known: set[Variable], statistics: Statistics, seed: RelationSchema | None
) -> float:
    """Estimate the rows that an atom or a generator gives for one combination of values."""
    if isinstance(item, Computation):
        return generated_values(item.function, item.args)
    if isinstance(item, ClauseAtom):
        return fan_out(item, known, statistics, seed)
    raise EngineFault("a test gives no rows")


def _is_permitted(atom: ClauseAtom, known: set[Variable], modes: Modes) -> bool:
    marks = "".join("b" if isinstance(arg, str) or arg in known else "f" for arg in atom.args)
    return permitted(modes, atom.schema, marks)


def is_test(item: ClauseItem) -> bool:
    """Return True if an item needs its variables bound before it: it tests them or computes from
    them.
    """
    return not isinstance(item, ClauseAtom) or item.absent


def tested_variables(item: ClauseItem) -> set[Variable]:
    """Return the named variables that a test or computation needs."""
    if isinstance(item, Computation):
        return set(item.inputs())
    return {variable for variable in item.variables() if not variable.anonymous}


def fan_out(
    atom: ClauseAtom,
    known: set[Variable],
    statistics: Statistics,
    seed: RelationSchema | None = None,
) -> float:
    """Estimate the rows of one lookup in the atom's relation, with the `known` variables bound."""
    columns = [i for i, arg in enumerate(atom.args) if isinstance(arg, str) or arg in known]
    if len(columns) == len(atom.args):
        return 0.0
    unbound = sum(1 for i, arg in enumerate(atom.args) if i not in columns and arg != ANONYMOUS)
    return rows_per_lookup(atom.schema, columns, unbound, statistics, seed)


def rows_per_lookup(
    schema: RelationSchema,
    columns: Sequence[int],
    unbound: int,
    statistics: Statistics,
    seed: RelationSchema | None = None,
) -> float:
    """Estimate the rows of a lookup by these columns, not all of them; `unbound` others are
    read.
    """
    arity = schema.arity
    if columns and schema == seed:
        return 1.0  # one row for each call of the goal: few of them share a value
    if schema.role in (Role.DEMAND, Role.REACH):
        # All demand comes from one goal: its rows often share a value, so that a lookup by some
        # columns returns them all.
        return float(DERIVED_ROWS)
    if schema.role is Role.STORED:
        rows = max(statistics.rows(schema), MIN_ROWS)
        distinct = statistics.distinct(schema, columns) if columns else 0
        if distinct:
            return rows / distinct
    elif isinstance(statistics, SmallDerived) and statistics.is_small(schema):
        rows = MIN_ROWS
    else:
        rows = DERIVED_ROWS
    free = max(unbound, 0.5) if columns else arity
    return float(rows ** (free / arity))
