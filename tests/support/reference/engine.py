"""The reference engine: the same bytecode in plain Python, slow and simple.

It is the oracle of the differential tests. It implements the protocols of `backend`; the word
formats and the meaning of a round are those of csrc/BYTECODE.md.
"""

from __future__ import annotations

import heapq
import operator
import threading
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from kbplanner.compile.aggregates import fold
from kbplanner.compile.bytecode import Opcode
from kbplanner.engine.backend import (
    Offload,
    RuleCounts,
    RunLimits,
    RunState,
    RunStats,
    SmallGoalResult,
)
from kbplanner.engine.backend import Relation as BackendRelation
from kbplanner.engine.ground import Ground
from kbplanner.engine.lexical import Matching
from kbplanner.engine.vectors import (
    NO_POSITION,
    NearestSearch,
    SignSearch,
    StoredVectors,
    sign_words,
)
from kbplanner.errors import BudgetExceeded, Cancelled, EngineFault
from kbplanner.ir.conditions import generate
from kbplanner.ir.operators import AGGREGATES, GENERATOR_LIST, OPERATIONS
from kbplanner.ir.values.comparison import kept, test
from kbplanner.ir.values.compute import compute, fits, text_test
from kbplanner.ir.values.numbers import answer_key
from kbplanner.ir.values.pattern import captured, matches
from support.reference.model import ReferenceModel
from support.reference.plan import READS, Component, ReferencePlan, Rule, decode
from support.reference.relation import BestRows, Classes, FirstRows, ReferenceRelation


class ReferenceRun:
    """One evaluation."""

    def __init__(
        self,
        engine: ReferenceEngine,
        plan: ReferencePlan,
        base: Sequence[ReferenceRelation],
        params: Sequence[int],
        limits: RunLimits,
    ) -> None:
        base_relations = iter(base)
        self._engine = engine
        self._plan = plan
        self._params = list(params)
        self._slots = [
            _derived(plan, slot, engine) if derived else next(base_relations)
            for slot, derived in enumerate(plan.derived)
        ]
        self._epochs = [relation.epoch for relation in self._slots]
        self._marks: list[dict[int, int]] = [dict.fromkeys(c.reads, 0) for c in plan.components]
        self._started = False
        self._limits = limits
        self._cancelled = False
        self._rows = self._read = self._probes = self._rounds = self._steps = self._rule = (
            self._warnings
        ) = 0
        self._budget: str | None = None
        self._work: Iterator[None] | None = None
        self._component = 0
        self._profiled = self._at_end = False
        self._place = 0  # index of the current rule among all rules of the plan
        self._counts = [[0, 0, 0] for component in plan.components for _ in component.rules]
        self._passed = [
            [0] * len(rule.steps) for component in plan.components for rule in component.rules
        ]
        self._charged = (0, 0, 0)

    def seed(self, rows: array[int], count: int) -> None:
        """Add demand."""
        if self._plan.seed is None:
            raise EngineFault("the plan takes no seeds")
        self._slots[self._plan.seed].insert(rows, count)

    def step(self, fuel: int, offload: Offload | None = None) -> RunState:
        """Step for about `fuel` steps."""
        if self._work is None:
            self._work = self._evaluate()
        for _ in range(max(fuel, 1)):
            if next(self._work, self) is self:
                self._work = None
                self._started = True
                return RunState.DONE
            if self._at_end:
                self._at_end = False
                break
        return RunState.PAUSED

    def check(self) -> RunState:
        """Compare the run with the current state of the relations it read."""
        state = RunState.DONE if self._started else RunState.READY
        read = {
            slot for component in self._plan.components for slot in component.reads
        } | self._plan.sensitive
        for slot in read:
            relation = self._slots[slot]
            if relation.epoch != self._epochs[slot]:
                return RunState.STALE
            marks = [marks[slot] for marks in self._marks if slot in marks]
            if self._started and any(mark < len(relation.order) for mark in marks):
                state = RunState.READY
                if slot in self._plan.sensitive:
                    return RunState.STALE
        for slot in self._plan.sensitive:
            if self._started and self._sizes[slot] != len(self._slots[slot].order):
                return RunState.STALE
        return state

    def ask(
        self,
        seed: Sequence[int] | None,
        slot: int,
        pattern: Sequence[int],
        limits: RunLimits,
        fuel: int,
    ) -> SmallGoalResult:
        """Run a small goal in one call."""
        if seed is not None:
            self.seed(array("I", seed), 1)
        state = self.check()
        worked = state is RunState.READY
        if worked:
            self.limit(limits)
            state = self.step(fuel)
        if state is not RunState.DONE:
            return SmallGoalResult(state)
        rows, _ = self._slots[slot].match(pattern)
        return SmallGoalResult(
            state, self._engine.sort(rows, len(pattern)), 0, worked, self._warnings, self._rows
        )

    def relation(self, slot: int) -> ReferenceRelation:
        """Return the relation bound to a slot."""
        return self._slots[slot]

    def stats(self) -> RunStats:
        """Return the counters so far."""
        counted = self._rows, self._read, self._probes, self._steps, 0, self._rounds
        return RunStats(*counted, self._budget, self._rule, self._warnings, self._component)

    def profile(self) -> None:
        """Count by rule, and end each step PAUSED where a stratum ends."""
        self._profiled = True

    def counts(self) -> list[RuleCounts]:
        """Return the counts, one for each version of a rule, in the order of the plan."""
        self._charge()
        return [
            RuleCounts(counts[0], counts[1], counts[2], (*passed[:-1], counts[0]))
            for counts, passed in zip(self._counts, self._passed, strict=True)
        ]

    def _charge(self) -> None:
        """Charge the rule at work for the work since the last charge."""
        now = self._rows, self._read, self._probes
        if self._counts:
            counts = self._counts[self._place]
            self._counts[self._place] = [
                c + n - b for c, n, b in zip(counts, now, self._charged, strict=True)
            ]
        self._charged = now

    def limit(self, limits: RunLimits) -> None:
        """Set new budgets, counted from now."""
        self._limits = RunLimits(
            limits.rows and limits.rows + self._rows,
            limits.bytes,
            limits.steps and limits.steps + self._steps,
        )

    def cancel(self) -> None:
        """Stop the current step."""
        self._cancelled = True

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _evaluate(self) -> Iterator[None]:
        self._sizes = [len(relation.order) for relation in self._slots]
        self._component = index = 0
        for component, marks in zip(self._plan.components, self._marks, strict=True):
            first = not self._started
            while True:
                high = {slot: len(self._slots[slot].order) for slot in component.reads}
                if not first and all(marks[slot] == high[slot] for slot in component.reads):
                    break
                self._rounds += 1
                yield from self._round(component, marks, high, first, index)
                marks.update(high)
                first = False
                if not component.recursive:
                    break
            index += len(component.rules)
            self._component += 1
            if self._profiled and self._component < len(self._plan.components):
                self._at_end = True
                yield

    def _round(
        self,
        component: Component,
        marks: Mapping[int, int],
        high: Mapping[int, int],
        first: bool,
        index: int,
    ) -> Iterator[None]:
        bounds = {
            slot: ((0, high[slot]), (marks[slot], high[slot]), (0, marks[slot]))
            for slot in component.reads
        }
        for rule_index, rule in enumerate(component.rules, index):
            views = [bounds[step[1]][step[2]] for step in rule.steps if step[0] in READS]
            if not views and not first:
                continue
            if all(low < top for low, top in views):
                self._charge()
                self._rule, self._place = rule.number, rule_index
                yield from self._steps_from(rule, 0, dict(enumerate(self._params)), bounds)

    def _steps_from(
        self,
        rule: Rule,
        index: int,
        registers: dict[int, int],
        bounds: Mapping[int, Sequence[tuple[int, int]]],
    ) -> Iterator[None]:
        step = rule.steps[index]
        opcode = step[0]
        if index:
            self._passed[self._place][index - 1] += 1
        if opcode == Opcode.EMIT:
            self._emit(step, registers)
        elif opcode in (Opcode.COMPARE, Opcode.TEST, Opcode.MATCHES):
            if self._holds(step, registers):
                yield from self._steps_from(rule, index + 1, registers, bounds)
        elif opcode in (Opcode.COPY, Opcode.EQUAL):
            for symbol in self._equals(step, registers):
                yield from self._steps_from(rule, index + 1, {**registers, step[1]: symbol}, bounds)
        elif opcode in (Opcode.CALL, Opcode.CAPTURE):
            value = self._computed(step, registers)
            self._tick()
            yield
            if value is not None:
                to = step[1 if opcode == Opcode.CAPTURE else 2]
                bound = {**registers, to: self._engine.intern(value)}
                yield from self._steps_from(rule, index + 1, bound, bounds)
        elif opcode == Opcode.GENERATE:
            for text in self._generated(step, registers):
                self._tick()
                yield
                bound = {**registers, step[2]: self._engine.intern(text)}
                yield from self._steps_from(rule, index + 1, bound, bounds)
        elif opcode == Opcode.AGGREGATE:
            for bound in self._groups(step, registers, bounds):
                self._tick()
                yield
                yield from self._steps_from(rule, index + 1, bound, bounds)
        elif opcode == Opcode.ABSENT:
            relation = self._slots[step[1]]
            self._probes += 1
            if not any(
                True for _ in self._matching(relation, 0, len(relation.order), step[2:], registers)
            ):
                yield from self._steps_from(rule, index + 1, registers, bounds)
        else:
            low, high = bounds[step[1]][step[2]]
            self._probes += opcode != Opcode.SCAN
            for bound in self._matching(self._slots[step[1]], low, high, step[3:], registers):
                self._tick()
                yield
                yield from self._steps_from(rule, index + 1, bound, bounds)

    def _holds(self, step: tuple[int, ...], registers: Mapping[int, int]) -> bool:
        """Return True if a test of registers holds."""
        text = self._engine.text
        if step[0] == Opcode.MATCHES:
            return matches(step[4:], text(registers[step[2]])) != bool(step[1])
        left, right = text(registers[step[2]]), text(registers[step[3]])
        return (test if step[0] == Opcode.COMPARE else text_test)(step[1], left, right)

    def _equals(self, step: tuple[int, ...], registers: Mapping[int, int]) -> list[int]:
        """Return the symbols that COPY or EQUAL gives to its register."""
        source = registers[step[2]]
        return [source] if step[0] == Opcode.COPY else self._engine.same_value(source)

    def _computed(self, step: tuple[int, ...], registers: Mapping[int, int]) -> str | None:
        """Return the value of CALL or CAPTURE, None without one; count a warning for a call."""
        text = self._engine.text
        if step[0] == Opcode.CAPTURE:
            return captured(step[4:], text(registers[step[2]]))
        value = compute(OPERATIONS[step[1]], [text(registers[arg]) for arg in step[4:]])
        self._warnings += value is None
        return value

    def _generated(self, step: tuple[int, ...], registers: Mapping[int, int]) -> Iterator[str]:
        """Yield the values of GENERATE; count a warning if it has no meaning for its arguments."""
        function = GENERATOR_LIST[step[1]].name
        values = generate(function, [self._engine.text(registers[arg]) for arg in step[4:]])
        if values is None:
            self._warnings += 1
        # The elements of a list are not made, so that any length of a constant will do.
        return (text for text in values or () if function == "member" or fits(text))

    def _groups(
        self,
        step: tuple[int, ...],
        registers: dict[int, int],
        bounds: Mapping[int, Sequence[tuple[int, int]]],
    ) -> Iterator[dict[int, int]]:
        relation = self._slots[step[1]]
        loads = {
            at: word & 0x3FFFFFFF
            for at, word in enumerate(step[3 : 3 + relation.arity])
            if word >> 30 == 1
        }
        folds = [step[at : at + 3] for at in range(4 + relation.arity, len(step), 3)]
        groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for row in relation.visible(*bounds[step[1]][step[2]]):
            groups.setdefault(tuple(row[at] for at in loads), []).append(row)
        for key, rows in groups.items():
            bound = {**registers, **dict(zip(loads.values(), key, strict=True))}
            for function, column, to in folds:
                texts = [self._engine.text(row[column]) if row else "" for row in rows]
                value, warnings = fold(AGGREGATES[function], texts)
                self._warnings += warnings
                if value is None:
                    break
                bound[to] = self._engine.intern(value)
            else:
                yield bound

    def _matching(
        self,
        relation: ReferenceRelation,
        low: int,
        high: int,
        columns: Sequence[int],
        registers: dict[int, int],
    ) -> Iterator[dict[int, int]]:
        for row in relation.visible(low, high):
            bound = dict(registers)
            for word, value in zip(columns, row, strict=True):
                kind, register = word >> 30, word & 0x3FFFFFFF
                if kind == 1:
                    bound[register] = value
                elif kind in (2, 3) and bound[register] != value:
                    break
            else:
                self._read += 1
                yield bound

    def _emit(self, step: Sequence[int], registers: Mapping[int, int]) -> None:
        relation = self._slots[step[1]]
        row = [registers[register] for register in step[2:]]
        if self._plan.best[step[1]] in ("min", "max"):
            value = kept(self._engine.text(row[-1]))
            if value is None:
                self._warnings += 1
                return
            row[-1] = self._engine.intern(value)
        before = len(relation.order)
        relation.add(tuple(row))
        self._rows += len(relation.order) - before
        if self._limits.rows and self._rows > self._limits.rows:
            self._spend("derivedRows", self._limits.rows)

    def _tick(self) -> None:
        self._steps += 1
        if self._cancelled:
            raise Cancelled("the evaluation was stopped")
        if self._limits.steps and self._steps > self._limits.steps:
            self._spend("steps", self._limits.steps)

    def _spend(self, limit: str, value: int) -> None:
        self._budget = limit
        raise BudgetExceeded.of_run(limit, value, str(self._rule))


def _derived(plan: ReferencePlan, slot: int, engine: ReferenceEngine) -> ReferenceRelation:
    """Return the empty relation of a slot, which keeps what `plan.best` says."""
    arity, best = plan.arities[slot], plan.best[slot]
    if best is None:
        return ReferenceRelation(arity)
    if best == "classes":
        return Classes(arity)
    if best == "first":
        return FirstRows(arity, plan.keys[slot])
    return BestRows(arity, best, engine.text)


class ReferenceEngine:
    """Symbols and relations in Python lists and dicts."""

    def __init__(self) -> None:
        self._symbols: dict[str, int] = {}
        self._texts: list[str] = [""]
        self._lock = threading.Lock()

    def intern(self, text: str) -> int:
        """Return the symbol of a text; create it if it is new."""
        with self._lock:
            symbol = self._symbols.setdefault(text, len(self._texts))
            if symbol == len(self._texts):
                self._texts.append(text)
            return symbol

    def intern_many(self, texts: Sequence[str]) -> array[int]:
        """Return the symbols of many texts."""
        return array("I", [self.intern(text) for text in texts])

    def find(self, text: str) -> int:
        """Return the symbol of a text, 0 if it was never interned."""
        return self._symbols.get(text, 0)

    def find_many(self, texts: Sequence[str]) -> array[int]:
        """Return the symbols of many texts, 0 for one that was never interned."""
        return array("I", map(self.find, texts))

    def text(self, symbol: int) -> str:
        """Return the text of a symbol."""
        return self._texts[symbol]

    def same_value(self, symbol: int) -> list[int]:
        """Return the symbols that are `=` to the given one."""
        text = self._texts[symbol]
        return [other for other in range(1, len(self._texts)) if test(0, self._texts[other], text)]

    def texts(self, symbols: array[int]) -> list[str]:
        """Return the texts of many symbols."""
        return [self._texts[symbol] for symbol in symbols]

    def sort(
        self,
        rows: array[int],
        arity: int,
        offload: Offload | None = None,
        *,
        in_place: bool = False,
    ) -> array[int]:
        """Return the rows in answer order."""
        if arity == 0:
            return rows
        whole = [rows[i : i + arity] for i in range(0, len(rows), arity)]
        whole.sort(key=lambda row: [answer_key(self._texts[symbol]) for symbol in row])
        return array("I", [symbol for row in whole for symbol in row])

    def texts_once(self, symbols: array[int]) -> list[str]:
        """Return the texts of many symbols."""
        return self.texts(symbols)

    def relation(self, arity: int) -> ReferenceRelation:
        """Return a new empty relation."""
        return ReferenceRelation(arity, self._texts)

    def freeze(self, relations: Sequence[BackendRelation]) -> list[ReferenceRelation]:
        """Return copies."""
        return [
            relation.copy() for relation in relations if isinstance(relation, ReferenceRelation)
        ]

    def load(self, words: array[int]) -> ReferencePlan:
        """Decode bytecode of this planner."""
        return decode(words)

    def open_run(
        self,
        plan: ReferencePlan,
        base: Sequence[ReferenceRelation],
        params: Sequence[int],
        limits: RunLimits,
        instant: tuple[int, str] | None = None,
    ) -> ReferenceRun:
        """Start an evaluation."""
        if instant is not None:
            index, text = instant
            params = (*params[:index], self.intern(text), *params[index + 1 :])
        return ReferenceRun(self, plan, base, params, limits)

    def model(self, ground: Ground, limits: RunLimits) -> ReferenceModel:
        """Return the well-founded model of a ground program."""
        return ReferenceModel(ground, limits)

    def best_matches(self, search: Matching, k: int) -> tuple[array[int], array[float]]:
        """Return indexes and scores of the at most `k` facts that match the words best."""
        scores: dict[int, float] = {}
        for indexes, weight in search.words:
            for index, times in Counter(indexes).items():
                if search.is_searchable(index):
                    length = search.lengths[index]
                    norm = times + search.flat + search.slope * length
                    scores[index] = scores.get(index, 0.0) + weight * times * search.scale / norm
        best = heapq.nsmallest(
            k,
            (index for index, score in scores.items() if score >= search.minimum),
            key=lambda index: (-scores[index], search.ranks[search.owners[index]], index),
        )
        return array("I", best), array("d", [scores[index] for index in best])

    def having(self, search: Matching) -> list[int]:
        """Return, for each word, how many of the searchable facts have it."""
        return [
            sum(search.is_searchable(index) for index in set(indexes))
            for indexes, _ in search.words
        ]

    def nearest(
        self, search: NearestSearch, positions: array[int], k: int
    ) -> tuple[array[int], array[float]]:
        """Return the vectors nearest to the query among those at `positions`, as indexes into
        `positions`.
        """
        query, dimension = search.query, len(search.query.cells)
        cells = memoryview(search.cells).cast("b")
        scores = {}
        for index, position in enumerate(positions):
            if position != NO_POSITION:
                vector = cells[position * dimension : (position + 1) * dimension]
                product = sum(map(operator.mul, query.cells, vector))
                score = product * query.factor * search.factors[position]
                if score >= search.least:
                    scores[index] = score
        best = heapq.nsmallest(k, scores, key=lambda index: (-scores[index], index))
        return array("I", best), array("d", [scores[index] for index in best])

    def add_vectors(
        self, vectors: StoredVectors, start: int, stop: int, sums: array[float]
    ) -> None:
        """Add the vectors at the positions from `start` to `stop` to `sums`, number by number."""
        for position in range(start, stop):
            for index, summand in enumerate(_numbers(vectors, position)):
                sums[index] += summand

    def write_signs(
        self,
        vectors: StoredVectors,
        start: int,
        stop: int,
        centre: array[float],
        signs: array[int],
    ) -> None:
        """Write the signs of the vectors at the positions from `start` to `stop`."""
        words = sign_words(vectors.dimension)
        for position in range(start, stop):
            first = position * words
            signs[first : first + words] = array("Q", bytes(8 * words))
            for index, cell in enumerate(_numbers(vectors, position)):
                signs[first + index // 64] |= (cell > centre[index]) << index % 64

    def differing_signs(
        self,
        search: SignSearch,
        positions: memoryview,
        differing: memoryview,
        counts: array[int],
    ) -> None:
        """Write how many signs of the vectors at `positions` differ from the query."""
        words = len(search.query)
        for index, position in enumerate(positions):
            if position == NO_POSITION:
                differing[index] = 0xFFFF
                continue
            signs = search.signs[position * words : (position + 1) * words]
            differing[index] = sum(map(int.bit_count, map(operator.xor, signs, search.query)))
            counts[differing[index]] += 1

    def at_most(self, differing: array[int], most: int, count: int) -> array[int]:
        """Return the indexes of the first `count` numbers that are at most `most`."""
        indexes = (index for index, count_ in enumerate(differing) if count_ <= most)
        return array("I", islice(indexes, count))

    @property
    def bytes(self) -> int:
        """Return 0: memory is not measured here."""
        return 0

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


def _numbers(vectors: StoredVectors, position: int) -> Iterator[float]:
    """Yield the numbers of a vector."""
    cells = memoryview(vectors.cells).cast("b")
    start = position * vectors.dimension
    for cell in cells[start : start + vectors.dimension]:
        yield cell * vectors.factors[position]
