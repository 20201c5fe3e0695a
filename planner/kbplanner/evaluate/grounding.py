"""Ground programs of goals: compile them, run them, and read a finished run as arrays.

A run fills the relations that `passes/instances.py` adds to a goal's program; this module turns the
rows into a `Ground`. A node is a row of a relation of conclusions: its number is an offset for the
relation plus the row's id.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kbplanner.compile.plan import Plan
from kbplanner.compile.rules import RuleSet, RuleSlice
from kbplanner.engine.backend import NO_ROW, Engine, Run, RunLimits, YieldNow
from kbplanner.engine.ground import Ground
from kbplanner.evaluate.evaluate import ends_without_demand
from kbplanner.evaluate.loaded import Bind, Drive, LoadedPlan, bound_columns, load
from kbplanner.evaluate.race import Race
from kbplanner.ir.program import ClauseAtom
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import HeadTerm, Rule, Variable
from kbplanner.lru import LruCache
from kbplanner.pacing import current_yield, paced
from kbplanner.passes import OPTIONAL, rewrite
from kbplanner.passes.first import recursions
from kbplanner.passes.instances import GroundProgram, GroupRelation, InstanceRelation, instances
from kbplanner.passes.linearise import as_paths
from kbplanner.passes.magic import demand_can_cost_more
from kbplanner.passes.order import Statistics


@dataclass(frozen=True, slots=True)
class GroundForm:
    """The form of a ground program.

    Without `confidence_sources` it is for proofs: rules keep their shape, and it serves many
    bindings. With them it is for the confidence that conclusions inherit from facts of these stored
    relations, however they are reached. With `as_paths` transitive relations grow by single steps:
    then they have few instances, but the proofs of pairs are paths and not the lowest ones. For
    proofs, other recursions with several recursive premises then have one instance for each
    conclusion: the one that is found first.
    """

    confidence_sources: frozenset[RelationSchema] | None = None
    as_paths: bool = True


LOWEST = GroundForm(as_paths=False)
PATHS = GroundForm()

PlanKey = tuple[RuleSlice, RelationSchema, str, GroundForm]


@dataclass(frozen=True, slots=True, eq=False)
class GroundGoal:
    """A ground program for one predicate and binding pattern, its loaded plan, and the slot of each
    relation. Its clauses number `rules` from 1. `may_outgrow` if it depends on a recursion with
    several recursive premises, whose instances can be many more than its conclusions. `full` is the
    same goal without demand, where demand can cost more than it saves.
    """

    rules: tuple[Rule, ...]
    program: GroundProgram
    loaded: LoadedPlan
    slots: Mapping[RelationSchema, int]
    may_outgrow: bool
    full: GroundGoal | None = None

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.loaded.plan


class GroundPlans:
    """Compiled ground programs of one engine."""

    def __init__(self, engine: Engine, capacity: int = 64) -> None:
        self._engine = engine
        self._plans: LruCache[PlanKey, GroundGoal] = LruCache(capacity)

    def get(
        self,
        rules: RuleSet,
        goal: RelationSchema,
        adornment: str,
        denied: frozenset[RelationSchema],
        statistics: Statistics,
        form: GroundForm,
    ) -> GroundGoal:
        """Return the ground program for a goal on a stored schema that has rules."""
        relation, sources = rules.conclusions(goal), form.confidence_sources
        slice_ = rules.proof_slice(denied, relation, allow_rewriting=sources is not None)
        # Rewritten linear recursion applies other rules, which matters where rules have a
        # confidence.
        if sources is not None and any(rule.confidence is not None for rule in slice_.rules):
            slice_ = rules.proof_slice(denied, relation, allow_rewriting=False)
        key = (slice_, relation, adornment, form)
        cached = self._plans.get(key)
        if cached is not None and not cached.loaded.is_outdated(statistics):
            return cached
        clauses = as_paths(slice_.clauses) if form.as_paths else slice_.clauses
        skip = OPTIONAL if sources is None else {"restrict", "equivalence", "project"}
        yield_now = current_yield()
        rewritten = rewrite(
            clauses, relation, adornment, statistics, skip=skip, yield_now=yield_now
        )
        full, keeps_first = None, form == PATHS and bool(recursions(clauses))
        if (
            keeps_first
            and demand_can_cost_more(rewritten, yield_now)
            and ends_without_demand(rewritten, slice_)
        ):
            marks = "f" * relation.arity
            all_rows = rewrite(
                clauses, relation, marks, statistics, skip=skip, full=True, yield_now=yield_now
            )
            full = self._goal(
                slice_, instances(all_rows, yield_now=yield_now, first=True), statistics, None
            )
        program = instances(rewritten, sources, yield_now, first=keeps_first)
        compiled = self._goal(slice_, program, statistics, full)
        self._plans.put(key, compiled)
        return compiled

    def _goal(
        self,
        slice_: RuleSlice,
        program: GroundProgram,
        statistics: Statistics,
        full: GroundGoal | None,
    ) -> GroundGoal:
        loaded = load(self._engine, program.program, statistics, current_yield())
        slots = {schema: slot for slot, schema in enumerate(loaded.plan.slots)}
        return GroundGoal(
            slice_.rules, program, loaded, slots, bool(recursions(slice_.clauses)), full
        )


CONCLUDED = (Role.DERIVED, Role.STEP, *BEST)
"""Roles of relations that have the conclusions of a predicate."""

INSTANCES_PER_YIELD = 5_000
"""Instances read between two calls of `yield_now`: about a millisecond."""


@dataclass(frozen=True, slots=True)
class GroundBlock:
    """The instances of one clause: their rows, and the number of the first."""

    source: InstanceRelation
    start: int
    count: int
    rows: array[int]

    def part(self, first: int, end: int) -> GroundBlock:
        """Return its instances from index `first` to before `end`."""
        width = len(self.source.variables)
        return GroundBlock(
            self.source, self.start + first, end - first, self.rows[first * width : end * width]
        )


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a clause: its clause, and the symbols of all its variables."""

    source: InstanceRelation
    binding: Mapping[Variable, int]


@dataclass(frozen=True, slots=True)
class _Arrays:
    heads: array[int] = field(default_factory=lambda: array("I"))
    ends: array[int] = field(default_factory=lambda: array("I"))
    premises: array[int] = field(default_factory=lambda: array("I"))


class GroundRun:
    """A run of a ground program, and the arrays read from it: `ground` is set by `read`. Close it
    after use.
    """

    def __init__(
        self, engine: Engine, goal: GroundGoal, bind: Bind, limits: RunLimits, now: int | None
    ) -> None:
        self.engine = engine
        self.goal = goal
        self._open = partial(_open, engine, bind, limits, now)
        self.run = self._open(goal)
        self._limits = limits
        self.ground = Ground(0, array("I"), array("I"), array("I"))
        self._offsets: dict[RelationSchema, int] = {}
        self.blocks: list[GroundBlock] = []
        self.parts = 0
        self._starts: list[int] = []
        self._seeds = array("I")
        self._seed_count = 0

    @property
    def has_all_rows(self) -> bool:
        """True if the run has all conclusions of the goal's relation, not only those it was
        asked.
        """
        return "b" not in self.goal.plan.adornment

    def seed(self, rows: array[int], count: int) -> None:
        """Ask for these whole rows of the goal; only the columns that its adornment binds are
        used.
        """
        plan = self.goal.plan
        if plan.seed is not None:
            seeds = bound_columns(plan, rows, count)
            self.run.seed(seeds, count)
            self._seeds, self._seed_count = seeds, count

    def read(self, drive: Drive, yield_now: YieldNow) -> Ground:
        """Run to the end, and return the ground program; `yield_now` is called between pieces of
        the reading.

        It has the instances of `blocks`, of which the first `parts` are those of parts of clauses,
        one for each group, and at the end one for each seed.
        """
        self._finish(drive)
        nodes = 0
        program = self.goal.program
        seed_relation = program.seed_relation
        concluded = dict.fromkeys(i.clause.head.schema for i in program.instances)
        concluded.update((atom.schema, None) for i in program.instances for atom in i.premises)
        concluded.update(
            (schema, None) for group in program.groups for schema in (group.schema, group.bindings)
        )
        if seed_relation is not None:
            concluded[seed_relation] = None
        for schema in concluded:
            self._offsets[schema] = nodes
            nodes += self.run.relation(self.goal.slots[schema]).counts().rows
        arrays = _Arrays()
        for source in (source for source in program.instances if source.is_part):
            self._add(source, arrays, yield_now)
        self.parts = len(arrays.heads)
        for source in (source for source in program.instances if _is_free(source)):
            self._add(source, arrays, yield_now)
        for group in program.groups:
            self._add_groups(group, arrays, yield_now)
        free = len(arrays.heads)
        for source in (
            source for source in program.instances if not (source.is_part or _is_free(source))
        ):
            self._add(source, arrays, yield_now)
        heads, ends, premises = arrays.heads, arrays.ends, arrays.premises
        if seed_relation is not None:  # the seeds of a rewritten goal hold without premises
            heads.extend(self.nodes(seed_relation, self._seeds, self._seed_count))
            ends.extend(array("I", [len(premises)]) * self._seed_count)
        self.ground = Ground(nodes, heads, ends, premises, free)
        return self.ground

    def _finish(self, drive: Drive) -> None:
        """Step the run to its end; with a goal without demand, step both until one ends.

        Their steps are compared and not their times, on which proofs should not depend.
        """
        full = self.goal.full
        if full is None:
            drive(self.run)
            return
        facts = sum(full.loaded.sizes.values())
        race = Race(self.run, partial(self._open, full), self._limits, facts, now=lambda: 0.0)
        try:
            drive(race)
        except BaseException:
            race.close()
            raise
        winner, _ = race.finish()
        if winner is not self.run:
            self.goal, self.run = full, winner

    def _add(self, source: InstanceRelation, arrays: _Arrays, yield_now: YieldNow) -> None:
        """Add the instances of a clause to the arrays."""
        rows, ids = self.run.relation(self.goal.slots[source.schema]).match(
            [0] * source.schema.arity, yield_now=yield_now
        )
        block = GroundBlock(source, len(arrays.heads), len(ids), rows)
        self._starts.append(block.start)
        self.blocks.append(block)
        for first in range(0, block.count, INSTANCES_PER_YIELD):
            yield_now()
            self._add_piece(
                block.part(first, min(first + INSTANCES_PER_YIELD, block.count)), arrays
            )

    def _add_piece(self, block: GroundBlock, arrays: _Arrays) -> None:
        source = block.source
        arrays.heads.extend(self._nodes(block, source.clause.head))
        width, count, before = len(source.premises), block.count, len(arrays.premises)
        if not width:
            arrays.ends.extend(array("I", [before]) * count)
            return
        flat = array("I", bytes(4 * width * count))
        for index, atom in enumerate(source.premises):
            flat[index::width] = self._nodes(block, atom)
        arrays.ends.extend(range(before + width, before + width * count + 1, width))
        arrays.premises.extend(flat)

    def _add_groups(self, group: GroupRelation, arrays: _Arrays, yield_now: YieldNow) -> None:
        """Add for each group an instance whose premises are all its bindings."""
        rows, ids = self.run.relation(self.goal.slots[group.bindings]).match(
            [0] * group.bindings.arity, yield_now=yield_now
        )
        members: dict[tuple[int, ...], list[int]] = {}
        arity, offset = group.bindings.arity, self._offsets[group.bindings]
        for i, index in paced(enumerate(ids), yield_now):
            members.setdefault(tuple(rows[i * arity : i * arity + group.width]), []).append(
                offset + index
            )
        rows, ids = self.run.relation(self.goal.slots[group.schema]).match(
            [0] * group.schema.arity, yield_now=yield_now
        )
        arity, offset = group.schema.arity, self._offsets[group.schema]
        for i, index in paced(enumerate(ids), yield_now, 1000):
            arrays.heads.append(offset + index)
            arrays.premises.extend(members[tuple(rows[i * arity : i * arity + group.width])])
            arrays.ends.append(len(arrays.premises))

    def answers(self, rows: array[int], count: int) -> array[int]:
        """Return the node numbers of answers of the goal, given as whole rows."""
        plan = self.goal.plan
        arity, width = len(plan.adornment), plan.slots[plan.answer].arity
        answers = array("I", bytes(4 * width * count))
        for index, column in enumerate(plan.answer_columns):
            if column is not None:
                answers[column::width] = rows[index::arity]
        return self.nodes(plan.slots[plan.answer], answers, count)

    def nodes(self, schema: RelationSchema, rows: array[int], count: int) -> array[int]:
        """Return the node numbers of conclusions that hold."""
        ids = self.run.relation(self.goal.slots[schema]).locate(rows, count)
        offset = self._offsets[schema]
        return array("I", [offset + index for index in ids]) if offset else ids

    def lowest_nodes(
        self, schema: RelationSchema, rows: array[int], count: int, heights: array[int]
    ) -> array[int]:
        """Return the node numbers of conclusions that hold, of each the lowest node.

        A conclusion has a node in each version of its relation that has it, and their proofs may
        differ. If each premise is proved by its lowest node, the heights of the nodes of a proof
        fall from each conclusion to its premises, so that it has no cycle. Of nodes equally low
        that of `schema` is chosen.
        """
        lowest = self.nodes(schema, rows, count)
        for version, offset in self._offsets.items():
            if (
                version == schema
                or version.role not in CONCLUDED
                or version.derived != schema.derived
            ):
                continue
            ids = self.run.relation(self.goal.slots[version]).locate(rows, count)
            for index, row in enumerate(ids):
                if row != NO_ROW and heights[offset + row] < heights[lowest[index]]:
                    lowest[index] = offset + row
        return lowest

    def block(self, number: int) -> GroundBlock:
        """Return the block of a single instance, of a clause that does not aggregate."""
        return self.blocks[bisect_right(self._starts, number) - 1]

    def column(self, block: GroundBlock, atom: ClauseAtom) -> array[int]:
        """Return the rows of an atom of the clause, one for each instance of its block."""
        return gather(atom.args, block, self.engine)

    def close(self) -> None:
        """Close the run."""
        self.run.close()

    def _nodes(self, block: GroundBlock, atom: ClauseAtom) -> array[int]:
        return self.nodes(atom.schema, self.column(block, atom), block.count)


def _open(engine: Engine, bind: Bind, limits: RunLimits, now: int | None, goal: GroundGoal) -> Run:
    return goal.loaded.open_run(engine, bind, limits, now)


def gather(args: Sequence[HeadTerm], block: GroundBlock, engine: Engine) -> array[int]:
    """Return the values of terms in each instance of a block, as rows."""
    columns_by_variable = {variable: index for index, variable in enumerate(block.source.variables)}
    width, arity = len(columns_by_variable), len(args)
    rows = array("I", bytes(4 * arity * block.count))
    for index, arg in enumerate(args):
        if isinstance(arg, Variable):
            rows[index::arity] = block.rows[columns_by_variable[arg] :: width]
        elif isinstance(arg, str):
            rows[index::arity] = array("I", [engine.find(arg)]) * block.count
    return rows


def _is_free(source: InstanceRelation) -> bool:
    """Return True if the clause only copies stored facts or collects the input of an aggregate."""
    gathers = source.clause.head.schema.role is Role.BINDINGS
    return not source.is_part and (gathers or not (source.clause.rule or source.premises))
