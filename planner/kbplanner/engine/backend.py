"""Protocol of an engine, implemented by the C engine and the reference engine.

Symbols are ints from 1; rows are flat `array('I')`, row-major. This interface knows no predicates
or scopes.
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
from kbplanner.engine.vectors import NearestSearch, SignSearch, StoredVectors
from kbplanner.pacing import YieldNow as YieldNow


class RunState(IntEnum):
    """Result of a step, or state of a run against the relations it read."""

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
    LABELS = 8


DETAILS = tuple(each for each in Attribute if each is not Attribute.LABELS)
"""Attributes whose cells mean the same in every relation; LABELS are numbers of sets of one."""

REAL_ATTRIBUTES = frozenset({Attribute.PRIORITY, Attribute.CONFIDENCE})
"""Attributes whose cells are floats; the others are ints."""

FOREVER = (1 << 63) - 1
"""VALID_UNTIL of a fact without an end."""

EPOCH = -(1 << 63)
"""VALID_FROM of a fact that is valid from the epoch; 0 means valid since creation."""

NO_ROW = 0xFFFFFFFF
"""Id of a row that does not exist."""


def beginning(cell: int, created: int) -> int:
    """Return when a fact becomes valid, by its cell VALID_FROM."""
    return created if cell == 0 else 0 if cell == EPOCH else cell


def beginning_cell(start: int | None) -> int:
    """Return the cell VALID_FROM of a fact that is valid from `start`; None: from its creation."""
    return 0 if start is None else start or EPOCH


class Truth(IntEnum):
    """Truth value of a ground atom in the well-founded model."""

    UNDEFINED = 0
    TRUE = 1
    FALSE = 2


SLICE = 100_000
"""Steps that a run or a model takes inside the engine before it releases the mutex."""

SAME = 0x80000000
"""In a match pattern `SAME | j` asks for the value of column j."""


Offload = Callable[[Callable[[], int]], int]
"""Calls a function and returns its result, possibly in another thread."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run; 0 = none."""

    rows: int = 0
    bytes: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class RunStats:
    """Counters of a run so far; `budget` is the limit that was reached, or None; `rule` the rule at
    work then.

    `warnings` counts the literals that failed because a function had no value: a division by zero,
    a text that is not a number, a result too large. `component` is the number of the current
    stratum, from 0; after DONE, the number of strata.
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
    """Counters of one version of a rule in a run: new rows, rows read, lookups (including that of
    the head).

    `steps` has, for each step, the number of rows or combinations that passed it, for the last step
    the new rows; a step that intersects counts as two. Where one row is enough, the engine skips
    rows that would only derive the same row again.
    """

    rows_made: int
    rows_read: int
    probes: int
    steps: tuple[int, ...]


class SmallGoalResult(NamedTuple):
    """Result of a small goal: `rows` are its answers in answer order, None where they must be read
    separately.

    `bytes` are those of the run's own relations; `worked` says that the run was not DONE before;
    `warnings` and `rows_made` are counted as in `RunStats`.
    """

    state: RunState
    rows: array[int] | None = None
    bytes: int = 0
    worked: bool = True
    warnings: int = 0
    rows_made: int = 0


@dataclass(frozen=True, slots=True)
class RelationCounts:
    """`rows` is the next row id, `live` the existing rows, `visible` those not hidden; `epoch`
    counts deletes and hides.
    """

    rows: int
    live: int
    visible: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Total:
    """Sum of one column of some rows: `matched` rows, of which `numbers` have a number in it.

    `whole` is the sum of the integers, however large, and `reals` that of the other numbers, None
    without any; both are exact. `infinite`: a number beyond the doubles occurred, which is not in
    the sum. `least` and `greatest` are the symbols of the first and the last number in answer
    order, `other` that of the first value that is not a number; 0: none.
    """

    matched: int = 0
    numbers: int = 0
    whole: int = 0
    reals: Fraction | None = None
    infinite: bool = False
    least: int = 0
    greatest: int = 0
    other: int = 0


class RelationDifference(NamedTuple):
    """Difference of two relations: ids of rows that only one of them has, and of rows whose cells
    differ.

    The two `modified` lists correspond index by index; `equal` counts the rows with the same cells
    in both.
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
        """Add `count` rows; return the id of each row, and how many are new (id >= counts().rows
        before).
        """

    def delete(self, rows: array[int], count: int) -> int:
        """Remove rows; return how many existed."""

    def hide(self, rows: array[int], count: int, hidden: bool) -> int:
        """Hide rows from plans and plain matches, or show them again; return how many changed."""

    def locate(self, rows: array[int], count: int) -> array[int]:
        """Return the id of each row, including hidden ones; NO_ROW where it does not exist."""

    def missing(self, rows: array[int], count: int) -> tuple[array[int], int]:
        """Return those of `count` rows that do not exist, in their order, and their number."""

    def match(
        self,
        pattern: Sequence[int],
        *,
        hidden: bool = False,
        limit: int = 0,
        yield_now: YieldNow | None = None,
    ) -> tuple[array[int], array[int]]:
        """Return matching rows (0 = any value, `SAME | j` = as column j) and ids, ordered by id;
        limit 0 = all.

        `yield_now` is called between pieces of long work; the relation must not change until the
        call returns.
        """

    def match_many(
        self, patterns: array[int], count: int, *, hidden: bool = False
    ) -> tuple[array[int], array[int]]:
        """Return the ids of the rows that match each of `count` patterns, as `match` finds them,
        and for each id the number of its pattern; in order of the patterns.
        """

    def match_rows(self, pattern: Sequence[int], yield_now: YieldNow | None = None) -> array[int]:
        """Return the rows that `match` returns, without their ids."""

    def pieces(
        self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0
    ) -> Iterator[tuple[array[int], array[int]]]:
        """Yield what `match` returns, in pieces; the relation must not change between them."""

    def rows(self, ids: array[int]) -> array[int]:
        """Return the rows with these ids, which must exist, in the given order."""

    def total(
        self, pattern: Sequence[int], column: int | None, yield_now: YieldNow | None = None
    ) -> Total:
        """Sum a column over the rows that `match` would return; None: count the rows.

        `yield_now` is called between pieces of about a millisecond.
        """

    def counts(self) -> RelationCounts:
        """Return the numbers of rows, and the epoch."""

    def distinct(self, columns: Sequence[int]) -> int:
        """Return the number of distinct values of these columns, estimated without an index; 0 when
        unknown.
        """

    def set_attribute(
        self, attribute: Attribute, ids: array[int], values: Sequence[int] | Sequence[float]
    ) -> None:
        """Write one cell for each id."""

    def fill_attribute(
        self, attribute: Attribute, first: int, count: int, value: int | float
    ) -> None:
        """Write one value into the cells of ids first .. first+count-1."""

    def attributes(self, attribute: Attribute, ids: array[int]) -> Sequence[int] | Sequence[float]:
        """Return one cell for each id."""

    def uses(self, attribute: Attribute) -> bool:
        """Return True if a cell of this attribute was ever set to a value other than the
        default.
        """

    def copy(self) -> Relation:
        """Return a copy with the same rows in the same order, hidden flags and attributes; ids may
        differ.
        """

    def settle(self, rows: int) -> bool:
        """Copy about this many rows more of a snapshot; return True when it is complete and can be
        read.
        """

    def compare(self, other: Relation) -> RelationDifference:
        """Compare rows, including hidden ones, with those of a relation of the same engine and
        arity.

        The compared cells are VALID_FROM, VALID_UNTIL, TTL and CONFIDENCE; NaN equals NaN.
        """

    def salience(self, ids: array[int], scoring: Salience) -> array[float]:
        """Return the score of each row."""

    def most_salient(
        self, k: int, scoring: Salience, minimum: float = 0.0, pattern: Sequence[int] | None = None
    ) -> tuple[array[int], array[float]]:
        """Return ids and scores of the at most `k` visible matching rows with the highest scores >=
        `minimum`.

        Highest first; among equal scores the one created last, then the one with the lower id.
        """

    def least_salient(self, threshold: float, scoring: Salience) -> array[int]:
        """Return the ids of the visible rows that score below a threshold, in order of id."""

    def touch(self, ids: array[int], now: int) -> None:
        """Record an access of each row: LAST_ACCESS becomes `now` unless it is later, ACCESSES
        increases by one.
        """

    def bytes(self) -> int:
        """Return the bytes held: rows, set, attribute columns, indexes."""

    def drop(self) -> None:
        """Free the memory; the relation must not be used afterwards. Refused while a paused run
        reads it.
        """


class Run(Protocol):
    """One evaluation, kept open as a goal table while it is useful."""

    def seed(self, rows: array[int], count: int) -> None:
        """Add demand: rows of the plan's seed slot."""

    def ask(
        self,
        seed: Sequence[int] | None,
        slot: int,
        pattern: Sequence[int],
        limits: RunLimits,
        fuel: int,
    ) -> SmallGoalResult:
        """Run a small goal in one call: add demand (None: none), step, read the matches in a
        derived slot.

        Nothing is read unless the run is DONE within `fuel`, or if there are many answers.
        """

    def step(self, fuel: int, offload: Offload | None = None) -> RunState:
        """Step for about `fuel` steps; DONE or PAUSED. Raises BudgetExceeded, or Cancelled after
        cancel().

        `offload`, if given, makes the call into the engine, for example in another thread. The
        caller holds the engine's mutex.
        """

    def check(self) -> RunState:
        """Return DONE if nothing read has changed, READY if step can continue, STALE if a new run
        is needed.
        """

    def relation(self, slot: int) -> Relation:
        """Return the relation bound to a slot of the plan."""

    def stats(self) -> RunStats:
        """Return the counters so far."""

    def limit(self, limits: RunLimits) -> None:
        """Set new budgets, counted from now."""

    def profile(self) -> None:
        """Enable counts by rule (before the first step), and end a step PAUSED where a stratum
        ends.
        """

    def counts(self) -> list[RuleCounts]:
        """Return the counts of a profiled run, one for each version of a rule, in the order of the
        plan.
        """

    def cancel(self) -> None:
        """Stop the current step soon; may be called from another thread."""

    def close(self) -> None:
        """Free the run's relations."""


class Steps(Protocol):
    """Work that is stepped to its end within its limits: a run, or a model."""

    def step(self, fuel: int, offload: Offload | None = None) -> RunState:
        """Step for about `fuel` steps; DONE or PAUSED. Raises BudgetExceeded, or Cancelled after
        cancel().
        """

    def stats(self) -> RunStats:
        """Return the counters so far."""

    def cancel(self) -> None:
        """Stop the current step soon; may be called from another thread."""


class Model(Steps, Protocol):
    """The well-founded model of a ground program while it is computed."""

    def values(self) -> bytes:
        """Return a `Truth` for each node, once the model is DONE."""

    def close(self) -> None:
        """Free the memory."""


class CompiledPlan(Protocol):
    """Verified bytecode."""

    def close(self) -> None:
        """Free the plan; no run of it may be open."""


class Engine(Protocol):
    """Symbols and relations of one tenant. Threads may share it: a mutex admits one call at a
    time.
    """

    def intern(self, text: str) -> int:
        """Return the symbol of a text; create it if it is new."""

    def intern_many(self, texts: Sequence[str]) -> array[int]:
        """Return the symbols of many texts in one call."""

    def find(self, text: str) -> int:
        """Return the symbol of a text, 0 if it was never interned."""

    def find_many(self, texts: Sequence[str]) -> array[int]:
        """Return the symbols of many texts in one call, 0 for one that was never interned."""

    def text(self, symbol: int) -> str:
        """Return the text of a symbol."""

    def texts(self, symbols: array[int]) -> list[str]:
        """Return the texts of many symbols."""

    def sort(
        self,
        rows: array[int],
        arity: int,
        offload: Offload | None = None,
        *,
        in_place: bool = False,
    ) -> array[int]:
        """Return the rows in answer order: numbers before text, numbers by value then text, text by
        code point.

        `offload`, if given, makes the call for a long list of rows. With `in_place` the array
        itself may be changed and returned.
        """

    def texts_once(self, symbols: array[int]) -> list[str]:
        """Return the texts of many symbols without caching them."""

    def relation(self, arity: int) -> Relation:
        """Return a new empty relation."""

    def freeze(self, relations: Sequence[Relation]) -> Sequence[Relation]:
        """Return snapshots of all relations, or of none, to be settled, read and dropped; copying
        is incremental.
        """

    def load(self, words: array[int]) -> CompiledPlan:
        """Verify bytecode; raises EngineFault naming the word at fault."""

    def open_run(
        self,
        plan: CompiledPlan,
        base: Sequence[Relation],
        params: Sequence[int],
        limits: RunLimits,
        instant: tuple[int, str] | None = None,
    ) -> Run:
        """Start an evaluation of a plan over base relations, given in slot order.

        `instant` is the index and the text of a parameter that no row of the run has.
        """

    def model(self, ground: Ground, limits: RunLimits) -> Model:
        """Return the well-founded model of a ground program, to be stepped until DONE; raises
        BudgetExceeded.
        """

    def best_matches(self, search: Matching, k: int) -> tuple[array[int], array[float]]:
        """Return indexes and scores of the at most `k` facts that match the words best.

        Highest first; among equal scores the one whose owner has the lower rank, then the lower
        index.
        """

    def having(self, search: Matching) -> list[int]:
        """Return, for each word, how many of the searchable facts have it."""

    def nearest(
        self, search: NearestSearch, positions: array[int], k: int
    ) -> tuple[array[int], array[float]]:
        """Return the at most `k` vectors nearest to the query among those at `positions`, as
        indexes into `positions`, and their scores.

        Highest first; among equal scores the lower index.
        """

    def add_vectors(
        self, vectors: StoredVectors, start: int, stop: int, sums: array[float]
    ) -> None:
        """Add the vectors at the positions from `start` to `stop` to `sums`, number by number."""

    def write_signs(
        self,
        vectors: StoredVectors,
        start: int,
        stop: int,
        centre: array[float],
        signs: array[int],
    ) -> None:
        """Write the signs of the vectors at the positions from `start` to `stop`."""

    def differing_signs(
        self,
        search: SignSearch,
        positions: memoryview,
        differing: memoryview,
        counts: array[int],
    ) -> None:
        """Write how many signs of the vectors at `positions` differ from the query, 0xFFFF for
        NO_POSITION, and count in `counts` how many vectors have each number.

        `positions` are integers of 32 bits, `differing` of 16 bits.
        """

    def at_most(self, differing: array[int], most: int, count: int) -> array[int]:
        """Return the indexes of the first `count` numbers that are at most `most`."""

    @property
    def bytes(self) -> int:
        """Return all bytes held."""

    def close(self) -> None:
        """Free everything."""
