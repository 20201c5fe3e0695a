"""Values that the instance of a clause leaves out: of its parts and of unseen items.

The rows of instances have columns only for what distinguishes them (`passes/instances.py`). A proof
shows the values of all variables. Those of a part are in the instance that derives it. Those of
`Unseen` items are searched for in stored facts, by a run that stops at the first values.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from kbplanner.engine.backend import Engine, RunLimits, RunState, YieldNow
from kbplanner.engine.ground import Shortest
from kbplanner.errors import EngineFault
from kbplanner.evaluate.grounding import GroundBlock, GroundRun, Instance
from kbplanner.evaluate.loaded import Bind, LoadedPlan, load
from kbplanner.ir.program import Clause, ClauseAtom, Program
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Variable
from kbplanner.passes.instances import InstanceRelation
from kbplanner.passes.order import Statistics
from kbplanner.passes.parts import Unseen

Symbols = tuple[int, ...]

FIRST_FUEL, FUEL_PER_KEY, MAX_FUEL = 500, 20, 20_000
"""Steps before a run is checked: enough for all keys where each has few values; at most, some
tenths of a millisecond.
"""

KEYS_PER_RUN = 256
"""Keys whose values are searched for in one run."""


class Witnesses:
    """Search for values of unseen items, by the given values; each is searched for once."""

    def __init__(
        self,
        engine: Engine,
        bind: Bind,
        statistics: Statistics,
        limits: RunLimits,
        now: int | None,
        yield_now: YieldNow,
    ) -> None:
        self._engine = engine
        self._bind = bind
        self._statistics = statistics
        self._limits = limits
        self._now = now
        self._yield_now = yield_now
        self._plans: dict[Unseen, LoadedPlan] = {}
        self._values: dict[Unseen, dict[Symbols, Symbols]] = {}

    def find(self, unseen: Unseen, keys: Sequence[Symbols]) -> list[Symbols]:
        """Return, for the values of each key, those of the variables found; raises
        BudgetExceeded.
        """
        known = self._values.setdefault(unseen, {})
        missing = list(dict.fromkeys(key for key in keys if key not in known))
        while missing:
            self._search(unseen, missing[:KEYS_PER_RUN], known)
            missing = [key for key in missing if key not in known]
        return [known[key] for key in keys]

    def _search(
        self, unseen: Unseen, keys: Sequence[Symbols], known: dict[Symbols, Symbols]
    ) -> None:
        """Find the values for at least one of the keys, and for all of them if that is quick."""
        loaded = self._plan(unseen)
        run = loaded.open_run(self._engine, self._bind, self._limits, self._now)
        try:
            run.seed(array("I", (symbol for key in keys for symbol in key)), len(keys))
            fuel = FIRST_FUEL + FUEL_PER_KEY * len(keys)
            state, rows = run.step(fuel), run.relation(loaded.plan.answer)
            while state is RunState.PAUSED and not rows.counts().rows:
                self._yield_now()
                fuel = min(4 * fuel, MAX_FUEL)
                state = run.step(fuel)
            width, arity = len(unseen.inputs), rows.arity
            values, ids = rows.match([0] * arity)
            if not len(ids):
                raise EngineFault("an instance of a rule holds for no values of its variables")
            for start in range(0, len(values), arity):
                row = tuple(values[start : start + arity])
                known.setdefault(row[:width], row[width:])
            if state is RunState.DONE and not all(key in known for key in keys):
                raise EngineFault("an instance of a rule holds for no values of its variables")
        finally:
            run.close()

    def _plan(self, unseen: Unseen) -> LoadedPlan:
        loaded = self._plans.get(unseen)
        if loaded is None:
            columns = (*unseen.inputs, *unseen.outputs)
            seed = RelationSchema("", len(unseen.inputs), role=Role.GUARD)
            answer = RelationSchema("", len(columns), role=Role.PART)
            body = (ClauseAtom(seed, unseen.inputs), *unseen.items)
            clause = Clause(ClauseAtom(answer, columns), body)
            program = Program((clause,), answer, seed, answer, tuple(range(len(columns))))
            loaded = self._plans[unseen] = load(self._engine, program, self._statistics)
        return loaded

    def close(self) -> None:
        """Close the plans."""
        for loaded in self._plans.values():
            loaded.compiled.close()
        self._plans.clear()


class CompleteInstances:
    """Instances of a finished run with the values of all variables of their clauses."""

    def __init__(self, run: GroundRun, shortest: Shortest, witnesses: Witnesses) -> None:
        self._run = run
        self._chosen = shortest.chosen
        self._witnesses = witnesses

    def columns(self, block: GroundBlock, indexes: Iterable[int]) -> dict[Variable, list[int]]:
        """Return for each variable its values in the given instances of a block."""
        columns: dict[Variable, list[int]] = {}
        todo = [(block, list(indexes))]
        while todo:
            block, at = todo.pop()
            source, rows = block.source, block.rows
            width, count = len(source.variables), len(at)
            if at and at == list(range(at[0], at[0] + count)):
                for column, variable in enumerate(source.variables):
                    columns[variable] = rows[
                        at[0] * width + column : (at[0] + count) * width : width
                    ].tolist()
            else:
                starts = [index * width for index in at]
                for column, variable in enumerate(source.variables):
                    columns[variable] = [rows[start + column] for start in starts]
            for atom in source.parts:
                todo.append(self._part(atom, columns, count))
            for unseen in source.unseen:
                input_columns = [columns[variable] for variable in unseen.inputs]
                keys: list[Symbols] = (
                    list(zip(*input_columns, strict=True)) if input_columns else [()] * count
                )
                values = self._witnesses.find(unseen, keys)
                for column, variable in enumerate(unseen.outputs):
                    columns[variable] = [value[column] for value in values]
        return columns

    def instance(self, number: int) -> Instance:
        """Return one instance of the arrays, of a clause that does not aggregate."""
        block = self._run.block(number)
        columns = self.columns(block, (number - block.start,))
        return Instance(block.source, {variable: values[0] for variable, values in columns.items()})

    def _part(
        self, atom: ClauseAtom, columns: dict[Variable, list[int]], count: int
    ) -> tuple[GroundBlock, list[int]]:
        """Return the instances that provide a part; they are all of one block."""
        shared = [columns[arg] for arg in atom.args if isinstance(arg, Variable)]
        rows = array("I", (symbol for row in zip(*shared, strict=True) for symbol in row))
        numbers = [self._chosen[node] for node in self._run.nodes(atom.schema, rows, count)]
        block = self._run.block(numbers[0])
        return block, [number - block.start for number in numbers]


def valued_variables(source: InstanceRelation) -> tuple[Variable, ...]:
    """Return the variables of a clause whose instances have values for them."""
    clause = source.whole
    items = (
        clause.head,
        *(item for item in clause.body if not (isinstance(item, ClauseAtom) and item.absent)),
    )
    return tuple(
        dict.fromkeys(
            variable for item in items for variable in item.variables() if not variable.anonymous
        )
    )
