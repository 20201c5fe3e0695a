"""What an engine offers to the rest of Python: the C engine and the reference engine both have this shape.

Symbols are ints from 1; rows are flat `array('I')`, row-major. Nothing here knows predicates or scopes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import NamedTuple, Protocol

from kbplanner.engine.ground import Ground
from kbplanner.engine.lexical import Matching
from kbplanner.engine.salience import Salience


class RunState(IntEnum):
    """How a step ended, or how a run stands against the relations it read."""

    READY = 0
    DONE = 1
    PAUSED = 2
    STALE = 3


class Attribute(IntEnum):
    """Attribute columns of a relation, 8 bytes a cell; times are epoch milliseconds."""

    CREATED_AT = 0
    VALID_FROM = 1
    VALID_UNTIL = 2
    TTL = 3
    LAST_ACCESS = 4
    ACCESSES = 5
    PRIORITY = 6
    CONFIDENCE = 7


REAL_ATTRIBUTES = frozenset({Attribute.PRIORITY, Attribute.CONFIDENCE})
"""Attributes whose cells are floats; the others are ints."""

FOREVER = (1 << 63) - 1
"""VALID_UNTIL of a fact that does not end."""

NO_ROW = 0xFFFFFFFF
"""Id of a row that is not there."""


class Truth(IntEnum):
    """What the well-founded model says of a ground atom."""

    UNDEFINED = 0
    TRUE = 1
    FALSE = 2


SAME = 0x80000000
"""In a match pattern `SAME | j` asks for the value of column j."""


Rest = Callable[[], None]
"""Called between pieces of long work in Python: lets others have their turn, or raises what ends the work."""

Via = Callable[[Callable[[], int]], int]
"""Calls a function for its result, perhaps in another thread."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets of one run; 0 = none."""

    rows: int = 0
    bytes: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class RunStats:
    """What a run has done so far; `budget` is the name of the limit it met, or None; `rule` the rule id at work then.

    `warnings` counts the literals that failed because a function had no value: a division by zero, a text that is no
    number, a result too large. `component` is the stratum a run is at, counted from 0; after DONE, how many there are.
    """

    rows_made: int = 0
    rows_read: int = 0
    probes: int = 0
    steps: int = 0
    bytes: int = 0
    rounds: int = 0
    budget: str | None = None
    rule: int = 0
    warnings: int = 0
    component: int = 0


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """What one version of a rule has done in a run: new rows, rows read, look-ups (a head that was made is one of them).

    `steps` has for each step how many rows or combinations went on from it, for the last the new rows; a step that
    intersects counts as two. Where one row is enough the engine does not go through those that could only make it again.
    """

    rows_made: int
    rows_read: int
    probes: int
    steps: tuple[int, ...]


class Asked(NamedTuple):
    """What became of a small goal: `rows` are its answers in answer order, None where they must be read another way.

    `bytes` are those of the run's own relations; `worked` says that the run was not DONE before; `warnings` and `rows_made`
    are counted as in `RunStats`.
    """

    state: RunState
    rows: array[int] | None = None
    bytes: int = 0
    worked: bool = True
    warnings: int = 0
    rows_made: int = 0


@dataclass(frozen=True, slots=True)
class RelationCounts:
    """`rows` is the next row id, `live` the rows there, `visible` those not hidden, `epoch` counts deletes and hides."""

    rows: int
    live: int
    visible: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Total:
    """One column of some rows, added up: `matched` rows, of which `numbers` have a number in it.

    `whole` is the sum of the integers among them, however large, and `reals` that of the others, None where there are none;
    both are exact. `infinite`: there was one beyond the doubles, which is not in the sum. `least` and `greatest` are the
    symbols of the first and the last number in answer order, `other` that of the first value that is none; 0: there is none.
    """

    matched: int = 0
    numbers: int = 0
    whole: int = 0
    reals: Fraction | None = None
    infinite: bool = False
    least: int = 0
    greatest: int = 0
    other: int = 0


class Difference(NamedTuple):
    """Two relations compared: ids of the rows that one alone has, and of those both have with other cells.

    The two `modified` lists go together by place; `equal` counts the rows that both have with the same cells.
    """

    only_here: array[int]
    only_there: array[int]
    modified_here: array[int]
    modified_there: array[int]
    equal: int


class Relation(Protocol):
    """A set of rows of `arity` symbols with stable ids while `counts().epoch` stays."""

    @property
    def arity(self) -> int:
        """Columns of a row."""

    def insert(self, rows: array[int], count: int) -> tuple[array[int], int]:
        """Add `count` rows; returns the id of each row, and how many were new (id >= counts().rows before)."""

    def delete(self, rows: array[int], count: int) -> int:
        """Remove rows; returns how many were there."""

    def hide(self, rows: array[int], count: int, hidden: bool) -> int:
        """Hide rows from plans and plain matches, or show them again; returns how many changed."""

    def locate(self, rows: array[int], count: int) -> array[int]:
        """The id of each row, hidden ones included; NO_ROW where it is not there."""

    def match(
        self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0, rest: Rest | None = None
    ) -> tuple[array[int], array[int]]:
        """Rows that match (0 = anything, `SAME | j` = as column j) and their ids, in order of id; limit 0 = all.

        `rest` is called between pieces of a long one; nothing may change meanwhile.
        """

    def pieces(
        self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0
    ) -> Iterator[tuple[array[int], array[int]]]:
        """What `match` gives, in pieces; nothing may change between them."""

    def rows(self, ids: array[int]) -> array[int]:
        """The rows with these ids, which are there, in their order."""

    def total(self, pattern: Sequence[int], column: int | None, rest: Rest | None = None) -> Total:
        """Add up a column of the rows that `match` would give; None: count the rows.

        `rest`, if given, is called between pieces of about a millisecond.
        """

    def counts(self) -> RelationCounts:
        """How many rows, and the epoch."""

    def distinct(self, columns: Sequence[int]) -> int:
        """Distinct values of these columns, estimated where there is no index; 0 when not known."""

    def set_attribute(self, attribute: Attribute, ids: array[int], values: Sequence[int] | Sequence[float]) -> None:
        """Write one cell for each id."""

    def fill_attribute(self, attribute: Attribute, first: int, count: int, value: int | float) -> None:
        """Write one value into the cells of ids first .. first+count-1."""

    def attributes(self, attribute: Attribute, ids: array[int]) -> Sequence[int] | Sequence[float]:
        """Read one cell for each id."""

    def uses(self, attribute: Attribute) -> bool:
        """Whether a cell of this attribute was ever set to something else than the default."""

    def copy(self) -> Relation:
        """A relation of its own with the same rows in the same order, hidden flags and attributes; ids may be others."""

    def settle(self, rows: int) -> bool:
        """Copy some more of a frozen relation, about so many rows; whether all of it is there, and it can be read."""

    def compare(self, other: Relation) -> Difference:
        """Rows, hidden ones too, against those of a relation of the same engine and arity.

        The cells compared are VALID_FROM, VALID_UNTIL, TTL and CONFIDENCE, of which NaN equals NaN.
        """

    def salience(self, ids: array[int], how: Salience) -> array[float]:
        """The score of each row."""

    def most_salient(
        self, k: int, how: Salience, minimum: float = 0.0, pattern: Sequence[int] | None = None
    ) -> tuple[array[int], array[float]]:
        """Ids and scores of the at most `k` visible rows that match and score highest, none below `minimum`.

        Highest first; of equal ones the one created last, then the one with the lower id.
        """

    def least_salient(self, threshold: float, how: Salience) -> array[int]:
        """Ids of the visible rows that score below a threshold, in order of id."""

    def touch(self, ids: array[int], now: int) -> None:
        """An access of each row: LAST_ACCESS becomes `now` unless it is later, ACCESSES goes up by one."""

    def bytes(self) -> int:
        """Bytes held: rows, set, attribute columns, indexes."""

    def drop(self) -> None:
        """Give the memory back; the relation must not be used any more. Refused while a paused run reads it."""


class Run(Protocol):
    """One evaluation, kept open as a goal table while it is useful."""

    def seed(self, rows: array[int], count: int) -> None:
        """Add demand: rows of the plan's seed slot."""

    def ask(self, seed: Sequence[int] | None, slot: int, pattern: Sequence[int], limits: Limits, fuel: int) -> Asked:
        """A small goal in one crossing: add demand (None: none), work, read what matches in a derived slot.

        Nothing is read unless the run is DONE within `fuel`, or where the answers are many.
        """

    def step(self, fuel: int, via: Via | None = None) -> RunState:
        """Work for about `fuel` steps; DONE or PAUSED. Raises BudgetExceeded, or Cancelled after cancel().

        `via`, if given, makes the call into the engine: somewhere it holds up nobody. The engine's mutex is held here.
        """

    def check(self) -> RunState:
        """DONE: nothing read has changed. READY: step to continue. STALE: close and start anew."""

    def relation(self, slot: int) -> Relation:
        """The relation bound to a slot of the plan."""

    def stats(self) -> RunStats:
        """Counters so far."""

    def limit(self, limits: Limits) -> None:
        """Set new budgets, counted from now."""

    def profile(self) -> None:
        """Before the first step: keep counts by rule, and let each step end PAUSED where a stratum ends."""

    def counts(self) -> list[RuleCounts]:
        """The counts of a profiled run, one for each version of a rule, in the order of the plan."""

    def cancel(self) -> None:
        """Make the step at work stop soon; may be called from another thread."""

    def close(self) -> None:
        """Give the run's relations back."""


class Steps(Protocol):
    """Work that is stepped to its end within budgets: a run, or a model."""

    def step(self, fuel: int, via: Via | None = None) -> RunState:
        """Work for about `fuel` steps; DONE or PAUSED. Raises BudgetExceeded, or Cancelled after cancel()."""

    def stats(self) -> RunStats:
        """Counters so far."""

    def cancel(self) -> None:
        """Make the step at work stop soon; may be called from another thread."""


class Model(Steps, Protocol):
    """The well-founded model of a ground program while it is worked out."""

    def values(self) -> bytes:
        """A `Truth` for each node, once it is DONE."""

    def close(self) -> None:
        """Give the memory back."""


class CompiledPlan(Protocol):
    """Verified bytecode."""

    def close(self) -> None:
        """Give the plan back; no run of it may be open."""


class Engine(Protocol):
    """Symbols and relations of one tenant. Calls may come from several threads: a mutex lets one in at a time."""

    def intern(self, text: str) -> int:
        """The symbol of a text, made if new."""

    def intern_many(self, texts: Sequence[str]) -> array[int]:
        """The symbols of many texts in one crossing."""

    def find(self, text: str) -> int:
        """The symbol of a text, 0 when it was never interned."""

    def text(self, symbol: int) -> str:
        """The text of a symbol."""

    def texts(self, symbols: array[int]) -> list[str]:
        """The texts of many symbols."""

    def sort(self, rows: array[int], arity: int, via: Via | None = None) -> array[int]:
        """The rows in answer order: numbers before text, numbers by value then text, text by code point.

        `via`, if given, makes the call for a long list of rows.
        """

    def texts_once(self, symbols: array[int]) -> list[str]:
        """The texts of many symbols that nobody is going to ask for again soon."""

    def relation(self, arity: int) -> Relation:
        """A new empty relation."""

    def freeze(self, relations: Sequence[Relation]) -> Sequence[Relation]:
        """Relations as they are now, all or none, to be settled, read and dropped; nothing is copied yet."""

    def load(self, words: array[int]) -> CompiledPlan:
        """Verify bytecode; raises EngineFault naming the word at fault."""

    def open_run(self, plan: CompiledPlan, base: Sequence[Relation], params: Sequence[int], limits: Limits) -> Run:
        """Start an evaluation of a plan over base relations, given in slot order."""

    def model(self, ground: Ground, limits: Limits) -> Model:
        """The well-founded model of a ground program, to be stepped until it is DONE; raises BudgetExceeded."""

    def best_matches(self, how: Matching, k: int) -> tuple[array[int], array[float]]:
        """Places and scores of the at most `k` facts with some of the words that match best.

        Highest first; of equal ones the one whose owner has the lower rank, then the one with the lower place.
        """

    def having(self, how: Matching) -> list[int]:
        """For each word how many facts that may be found have it."""

    @property
    def bytes(self) -> int:
        """Bytes held, everything counted."""

    def close(self) -> None:
        """Give everything back."""
