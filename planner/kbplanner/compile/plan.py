"""Join plans, which the engine runs.

Each operator is a class, whose docstring shows its line in `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kbplanner.ir.operators import COMPARISONS, OPERATIONS
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.values.instants import TIME_FUNCTIONS

NOW = "\0now"
"""The parameter that holds the instant of a run, as the value of `now()`; no constant has this
text.
"""


class RelationView(IntEnum):
    """Which rows of a relation a step reads in a round: all, those new in it, or those before
    them.
    """

    FULL = 0
    DELTA = 1
    OLD = 2


class ColumnKind(IntEnum):
    """Role of a column in a step."""

    ANY = 0
    LOAD = 1
    KEY = 2
    SAME = 3


@dataclass(frozen=True, slots=True)
class ColumnOperand:
    """One column of a read: ignore it, load it into a register, look it up by one, or compare it
    with one.
    """

    kind: ColumnKind
    register: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """`scan parent/2 delta (?x, ?y)`: every row of the view."""

    slot: int
    view: RelationView
    columns: tuple[ColumnOperand, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """`probe parent/2 full (=?x, ?y)`: the rows with these keys, through an index."""

    slot: int
    view: RelationView
    columns: tuple[ColumnOperand, ...]


@dataclass(frozen=True, slots=True)
class MemberStep:
    """`member parent/2 full (=?x, =?y)`: continue if the row exists."""

    slot: int
    view: RelationView
    columns: tuple[ColumnOperand, ...]


@dataclass(frozen=True, slots=True)
class Intersect:
    """`intersect edge/2 full (=?y, ?z), edge/2 full (same ?z, =?x)`: each ?z that both have, from
    the shorter list.

    `probe` has keys and loads one register; `other` has keys and, in one column, SAME of that
    register (generic join: Ngo, Porat, Ré, Rudra 2012).
    """

    probe: Probe
    other: Probe


@dataclass(frozen=True, slots=True)
class Fold:
    """One aggregate of a group: `sum ?v` into `?total`; `function` counts along
    operators.AGGREGATES.
    """

    function: int
    column: int
    to: int


@dataclass(frozen=True, slots=True)
class GroupStep:
    """`group total#1/3 (?c, _, _) ?total = sum`: for each group of new rows with the same loaded
    columns, its aggregates.
    """

    slot: int
    columns: tuple[ColumnOperand, ...]
    folds: tuple[Fold, ...]


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """`absent banned/1 (=?x)`: continue if no row matches."""

    slot: int
    columns: tuple[ColumnOperand, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """`filter ?x < ?y`: continue if the comparison holds; `op` counts along operators.COMPARISONS,
    +8 negates it.
    """

    op: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class CallStep:
    """`call ?z = + (?x, 1)`: continue with the value of a function in a register, if it has one.

    `function` counts along operators.OPERATIONS.
    """

    function: int
    to: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CaptureStep:
    """`capture ?z = ?x "(a+)b" group 1`: continue with the text of a group of the first match of a
    pattern, if it has one.
    """

    to: int
    text: int
    pattern: str
    group: int


@dataclass(frozen=True, slots=True)
class Generate:
    """`generate ?z = range (1, ?y)`: continue with each value of a generator in a register.

    `function` counts along operators.GENERATOR_LIST.
    """

    function: int
    to: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextTest:
    """`test ?x starts_with ?y`: continue if the test holds; `op` counts along
    operators.SUBSTRING_TESTS, +8 negates it.
    """

    op: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Match:
    """`match ?x "a+b"`: continue if the pattern matches somewhere in the text, or, `negated`, if it
    does not.
    """

    text: int
    pattern: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Copy:
    """`copy ?y = ?x`: continue with the value of a register in another."""

    to: int
    source: int


@dataclass(frozen=True, slots=True)
class Equal:
    """`equal ?y = ?x`: for each text that is the same number as that of a register, or just that
    text, in another.
    """

    to: int
    source: int


@dataclass(frozen=True, slots=True)
class ProjectStep:
    """`emit ancestor/2[bf] (?x, ?z)`: add a row; the end of a join plan."""

    slot: int
    registers: tuple[int, ...]


Read = Scan | Probe | MemberStep
Step = (
    Scan
    | Probe
    | MemberStep
    | Intersect
    | GroupStep
    | AntiJoin
    | Filter
    | TextTest
    | Match
    | CallStep
    | CaptureStep
    | Generate
    | Copy
    | Equal
    | ProjectStep
)


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """One version of a clause: its steps in order, the last a Project. `rule` is the number of the
    rule, 0 for none.

    `names` gives, for explain, the text of each register it uses.
    """

    rule: int
    steps: tuple[Step, ...]
    names: dict[int, str]


@dataclass(frozen=True, slots=True)
class StratumPlan:
    """One component of the program and the join plans that conclude its relations."""

    recursive: bool
    plans: tuple[JoinPlan, ...]
    relations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExternalDemand:
    """The demand for a relation that a plugin provides: `slot` has a row for each call.

    `relation` is the stored relation that takes the rows of the calls, `mode` says which of its
    arguments are the columns of the demand.
    """

    slot: int
    relation: RelationSchema
    mode: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole program for one goal and adornment.

    `slots[i]` is the relation of slot i, `derived[i]` whether the run derives it, `demand[i]`
    whether it is demand, which guards the other steps of its rules, and `best[i]` which value of
    its last column it keeps of each group of rows, "min" or "max", "classes" for classes of names,
    "first" if it keeps of the rows of a conclusion the one that came first, None for all rows;
    `parameters` are the constants of the rules, in registers from 0. `seed` takes rows of bound
    goal arguments, in order (None: nothing to bind). For argument i of the goal,
    `answer_columns[i]` is its column in slot `answer`, or None where it is the goal's own constant;
    then the answers are those of one seed only, and the run serves one goal. `external` has the
    calls of plugins that the goal depends on.
    """

    slots: tuple[RelationSchema, ...]
    derived: tuple[bool, ...]
    demand: tuple[bool, ...]
    best: tuple[str | None, ...]
    parameters: tuple[str, ...]
    registers: int
    strata: tuple[StratumPlan, ...]
    seed: int | None
    answer: int
    answer_columns: tuple[int | None, ...]
    adornment: str
    external: tuple[ExternalDemand, ...] = ()

    @property
    def one_seed(self) -> bool:
        """True if a run of the plan can answer one binding of the goal only."""
        return None in self.answer_columns

    @property
    def dated(self) -> bool:
        """True if the plan uses `now()`: its runs hold for one instant only."""
        return NOW in self.parameters

    @property
    def hides_now(self) -> bool:
        """True if the value of `now()` is only compared and computed with, so that no row has it
        and no row is looked up by it.
        """
        if not self.dated:
            return False
        now = self.parameters.index(NOW)
        return all(_hides(join.steps, now) for stratum in self.strata for join in stratum.plans)

    @property
    def base(self) -> tuple[RelationSchema, ...]:
        """The stored relations to bind, in slot order."""
        return tuple(
            slot for slot, derived in zip(self.slots, self.derived, strict=True) if not derived
        )


_HIDING = frozenset(OPERATIONS.index(name) for name in TIME_FUNCTIONS)
"""Functions, by number, that look at the texts of their arguments and make new values."""

_ORDERS = frozenset(COMPARISONS.index(op) for op in ("<", "<=", ">", ">="))


def _hides(steps: Sequence[Step], now: int) -> bool:
    """Return True if the steps of a clause keep the value of a register to themselves."""
    own = {now}
    for step in steps:
        if isinstance(step, Copy):
            if step.source in own:
                own.add(step.to)
        elif isinstance(step, CallStep):
            if step.function not in _HIDING and not own.isdisjoint(step.args):
                return False
        elif isinstance(step, Filter):
            if step.op & 7 not in _ORDERS and not own.isdisjoint((step.left, step.right)):
                return False
        elif not own.isdisjoint(_registers(step)):
            return False
    return True


def _registers(step: Step) -> Iterator[int]:
    """Yield the registers of a step that is no copy, call or filter."""
    if isinstance(step, Intersect):
        yield from _registers(step.probe)
        yield from _registers(step.other)
    elif isinstance(step, ProjectStep):
        yield from step.registers
    elif isinstance(step, (Scan, Probe, MemberStep, AntiJoin, GroupStep)):
        yield from (column.register for column in step.columns if column.kind is not ColumnKind.ANY)
    elif isinstance(step, TextTest):
        yield from (step.left, step.right)
    elif isinstance(step, Generate):
        yield from step.args
    elif isinstance(step, Equal):
        yield step.source
    elif isinstance(step, (Match, CaptureStep)):
        yield step.text
