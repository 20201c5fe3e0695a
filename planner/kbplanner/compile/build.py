"""Translation of clauses to join plans: the one step from rules to operators.

Each clause becomes one join plan for every relation that it reads. In that plan this read sees the
rows that are new in the round, reads before it (in the clause's order) see the rows from before the
round, and reads after it see all rows. This is semi-naive evaluation; it serves the first run, each
round of a recursion, and the continuation after new facts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from kbplanner.compile.plan import (
    NOW,
    AntiJoin,
    CallStep,
    CaptureStep,
    ColumnKind,
    ColumnOperand,
    Copy,
    Equal,
    ExternalDemand,
    Filter,
    Fold,
    Generate,
    GroupStep,
    Intersect,
    JoinPlan,
    Match,
    MemberStep,
    Plan,
    Probe,
    ProjectStep,
    Read,
    RelationView,
    Scan,
    Step,
    StratumPlan,
    TextTest,
)
from kbplanner.errors import BudgetExceeded, EngineFault
from kbplanner.ir.limits import MAX_REGISTERS
from kbplanner.ir.operators import (
    AGGREGATES,
    COMPARISONS,
    GENERATOR,
    MEMBERSHIP,
    OPERATIONS,
    SUBSTRING_TESTS,
    TRUE,
)
from kbplanner.ir.program import (
    CLAUSES_PER_YIELD,
    REWRITES_PER_YIELD,
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    Program,
    equated,
)
from kbplanner.ir.schema import REPLACING, ROLE_OF_EXTREMUM, RelationSchema, Role
from kbplanner.ir.terms import ANONYMOUS, Comparison, Expr, Term, Variable
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.passes.order import Statistics, order_items
from kbplanner.passes.stratify import strata


def build(program: Program, statistics: Statistics, yield_now: YieldNow = go_on) -> Plan:
    """Build the plan of a rewritten program; join orders follow `statistics`.

    `yield_now` is called about once a millisecond. Raises BudgetExceeded for too many constants.
    """
    if program.answer is None:
        raise EngineFault("a program without an answer relation cannot be built")
    builder = _Builder(program, yield_now)
    _check_registers(builder.registers)
    heads = program.heads()
    order = {schema: number for number, schema in enumerate(heads)}
    stages = []
    for part in paced(strata(program, yield_now), yield_now, 1):
        clauses = [
            clause
            for schema in sorted(part.relations, key=order.__getitem__)
            for clause in heads[schema]
        ]
        builder.growing = part.relations
        plans = [
            plan
            for clause in paced(clauses, yield_now, REWRITES_PER_YIELD)
            for plan in builder.join_plans(clause, statistics)
        ]
        relations = tuple(sorted(builder.slot(schema) for schema in part.relations))
        stages.append(StratumPlan(part.recursive, tuple(plans), relations))
    _check_registers(builder.registers)
    return Plan(
        slots=tuple(builder.slots),
        derived=tuple(schema.role is not Role.STORED for schema in builder.slots),
        demand=tuple(schema.role is Role.DEMAND for schema in builder.slots),
        best=tuple(_KEPT.get(schema.role) for schema in builder.slots),
        parameters=tuple(builder.constants),
        registers=builder.registers,
        strata=tuple(stages),
        seed=None if program.seed is None else builder.slot(program.seed),
        answer=builder.slot(program.answer),
        answer_columns=program.answer_columns,
        adornment=program.goal.adornment,
        external=tuple(
            ExternalDemand(slot, schema.stored, schema.adornment)
            for slot, schema in enumerate(builder.slots)
            if schema.role is Role.DEMAND
            and schema.source is Role.DERIVED
            and schema.stored.derived in program.external
        ),
    )


def _check_registers(count: int) -> None:
    """Raise BudgetExceeded for more registers than a plan may have."""
    if count > MAX_REGISTERS:
        raise BudgetExceeded(
            f"the rules that a goal depends on have more than {MAX_REGISTERS} different constants",
            "planConstants",
            MAX_REGISTERS,
        )


def _constants(item: ClauseItem) -> Iterator[str]:
    """Yield the constants of a head or an item of a body."""
    if isinstance(item, (ClauseAtom, Computation)):
        yield from (arg for arg in item.args if isinstance(arg, str))
    elif isinstance(item, Comparison):
        yield from (side for side in (item.left, item.right) if isinstance(side, str))


def _register_constants(item: ClauseItem) -> Iterator[str]:
    """Yield the constants that the steps of a head or an item of a body read from registers."""
    if isinstance(item, Computation):
        if item.function == "now":
            yield NOW
        if item.generates:
            yield TRUE
        if item.function == "capture":
            item = replace(item, args=item.args[:1])  # the rest is in the step
    yield from _constants(item)


_KEPT = {role: function for function, role in ROLE_OF_EXTREMUM.items()} | {
    Role.CLASSES: "classes",
    Role.FIRST: "first",
}
_IDENTICAL = COMPARISONS.index("==")


class _Builder:
    def __init__(self, program: Program, yield_now: YieldNow) -> None:
        self._yield_now = yield_now
        schemas: dict[RelationSchema, None] = {}
        constants: dict[str, None] = {}
        # Only where goals alone fill it: where rules ask as well, its rows share values as those of
        # any demand do.
        asked = {clause.head.schema for clause in program.clauses}
        self._seed = None if program.seed in asked else program.seed
        for clause in paced(program.clauses, yield_now, CLAUSES_PER_YIELD):
            for item in (clause.head, *clause.body):
                if isinstance(item, ClauseAtom):
                    schemas[item.schema] = None
                constants.update(dict.fromkeys(_register_constants(item)))
        for extra in (program.seed, program.answer):
            if extra is not None:
                schemas[extra] = None
        # Stored relations first: their slots are bound from outside, in slot order.
        self.slots = sorted(schemas, key=lambda schema: schema.role is not Role.STORED)
        self._slot = {schema: index for index, schema in enumerate(self.slots)}
        self.constants = {text: index for index, text in enumerate(constants)}
        self.registers = len(constants)
        self.growing: Collection[RelationSchema] = ()

    def slot(self, schema: RelationSchema) -> int:
        return self._slot[schema]

    def join_plans(self, clause: Clause, statistics: Statistics) -> list[JoinPlan]:
        reads = list(clause.atoms())
        if clause.aggregates:
            return [self._grouping(clause, reads[0])]
        if not reads:
            return [self._join_plan(clause, order_items(clause.body, (), statistics), {})]
        plans = []
        for index, driver in enumerate(reads):
            if index:
                self._yield_now()  # bodies can be long: each driver has an order of its own
            views = {
                id(atom): RelationView.DELTA
                if i == index
                else RelationView.OLD
                if i < index
                else RelationView.FULL
                for i, atom in enumerate(reads)
            }
            items = order_items(clause.body, (), statistics, first=driver, seed=self._seed)
            plans.append(self._join_plan(clause, items, views))
        return plans

    def _grouping(self, clause: Clause, source: ClauseAtom) -> JoinPlan:
        registers: dict[Variable, int] = {}
        folds = [item for item in clause.body if isinstance(item, AggregateClause)]
        targets = {item.target for item in folds}
        group = {arg for arg in clause.head.args if arg not in targets}
        args = tuple(arg if arg in group else ANONYMOUS for arg in source.args)
        columns = self._columns(ClauseAtom(source.schema, args), registers)
        operators = []
        for item in folds:
            registers[item.target] = len(self.constants) + len(registers)
            column = 0 if item.variable is None else source.args.index(item.variable)
            operators.append(Fold(AGGREGATES.index(item.function), column, registers[item.target]))
        return self._finished(
            clause, [GroupStep(self._slot[source.schema], columns, tuple(operators))], registers
        )

    def _join_plan(
        self, clause: Clause, items: Iterable[ClauseItem], views: dict[int, RelationView]
    ) -> JoinPlan:
        registers: dict[Variable, int] = {}
        steps: list[Step] = []
        for item in items:
            if isinstance(item, Comparison):
                steps.append(self._filter(item, registers))
            elif isinstance(item, Computation):
                steps.extend(self._computation(item, registers))
            elif isinstance(item, ClauseAtom) and item.absent:
                steps.append(AntiJoin(self._slot[item.schema], self._columns(item, registers)))
            elif isinstance(item, ClauseAtom):
                read = self._read(item, views[id(item)], registers)
                both = (
                    _intersection(steps[-1], read)
                    if steps and self._is_settled(item.schema) and self._may_intersect(steps[-1])
                    else None
                )
                if both is None:
                    steps.append(read)
                elif isinstance(item, ClauseAtom):
                    steps[-1] = both
        return self._finished(clause, steps, registers)

    def _finished(
        self, clause: Clause, steps: list[Step], registers: dict[Variable, int]
    ) -> JoinPlan:
        head = tuple(self._register(arg, registers) for arg in clause.head.args)
        steps.append(ProjectStep(self._slot[clause.head.schema], head))
        self.registers = max(self.registers, len(self.constants) + len(registers))
        texts = (text for item in (clause.head, *clause.body) for text in _constants(item))
        names = {self.constants[text]: text for text in texts if text in self.constants}
        if TRUE in self.constants:
            names[self.constants[TRUE]] = TRUE
        if NOW in self.constants:
            names[self.constants[NOW]] = "now()"
        names.update({index: str(variable) for variable, index in registers.items()})
        return JoinPlan(clause.rule, tuple(steps), names)

    def _is_settled(self, schema: RelationSchema) -> bool:
        """Return True if an index pays off for one rule: not on demand, nor on a relation that
        grows or replaces rows.
        """
        return (
            schema.role not in (Role.DEMAND, Role.REACH, *REPLACING) and schema not in self.growing
        )

    def _may_intersect(self, last: Step) -> bool:
        """Return False for a read of a relation that replaces rows."""
        return not isinstance(last, Probe) or self.slots[last.slot].role not in REPLACING

    def _read(self, atom: ClauseAtom, view: RelationView, registers: dict[Variable, int]) -> Read:
        slot = self._slot[atom.schema]
        columns = self._columns(atom, registers)
        keys = sum(1 for column in columns if column.kind is ColumnKind.KEY)
        if keys and keys == len(columns):
            return MemberStep(slot, view, columns)
        return (Probe if keys else Scan)(slot, view, columns)

    def _columns(
        self, atom: ClauseAtom, registers: dict[Variable, int]
    ) -> tuple[ColumnOperand, ...]:
        known = set(registers)
        columns = []
        for arg in atom.args:
            if isinstance(arg, str):
                columns.append(ColumnOperand(ColumnKind.KEY, self.constants[arg]))
            elif arg.anonymous:
                columns.append(ColumnOperand(ColumnKind.ANY))
            elif arg in known:
                columns.append(ColumnOperand(ColumnKind.KEY, registers[arg]))
            elif arg in registers:
                columns.append(ColumnOperand(ColumnKind.SAME, registers[arg]))
            else:
                registers[arg] = len(self.constants) + len(registers)
                columns.append(ColumnOperand(ColumnKind.LOAD, registers[arg]))
        return tuple(columns)

    def _filter(self, item: Comparison, registers: dict[Variable, int]) -> Step:
        equation = equated(item, registers)
        if equation is not None:
            target, source = equation
            known = self._register(source, registers)
            registers[target] = len(self.constants) + len(registers)
            return Equal(registers[target], known)
        if item.op == "matches":
            return Match(self._register(item.left, registers), str(item.right), item.negated)
        if item.op in SUBSTRING_TESTS:
            op = SUBSTRING_TESTS.index(item.op) + (8 if item.negated else 0)
            return TextTest(
                op, self._register(item.left, registers), self._register(item.right, registers)
            )
        op = COMPARISONS.index(item.op) + (8 if item.negated else 0)
        return Filter(
            op, self._register(item.left, registers), self._register(item.right, registers)
        )

    def _computation(self, item: Computation, registers: dict[Variable, int]) -> list[Step]:
        """Return the step that computes, or an equality step if the target is already bound."""
        captures = item.function == "capture"
        own = item.args[:1] if captures else item.args
        args = tuple(self._register(arg, registers) for arg in own)
        known = item.target in registers
        if known and item.function == "=":
            return [Filter(_IDENTICAL, registers[item.target], args[0])]
        target = Variable(f"{item.target.name}'") if known else item.target
        to = registers[target] = len(self.constants) + len(registers)
        if item.function == "now":
            args = (self.constants[NOW],)
        if item.generates:
            return self._generated(item, args, to, registers)
        if item.function in ("=", "now"):
            copy: list[Step] = [Copy(to, args[0])]
            return [*copy, Filter(_IDENTICAL, registers[item.target], to)] if known else copy
        call: Step = CallStep(OPERATIONS.index(item.function), to, args)
        if captures:
            call = CaptureStep(to, args[0], str(item.args[1]), int(str(item.args[2])))
        return [call, Filter(_IDENTICAL, registers[item.target], to)] if known else [call]

    def _generated(
        self,
        item: Computation,
        args: tuple[int, ...],
        to: int,
        registers: Mapping[Variable, int],
    ) -> list[Step]:
        """Return the step that yields values, or those that test the target if it is bound."""
        if registers[item.target] == to:
            return [Generate(tuple(GENERATOR).index(item.function), to, args)]
        test = OPERATIONS.index(MEMBERSHIP[item.function])
        call = CallStep(test, to, (registers[item.target], *args))
        return [call, Filter(_IDENTICAL, to, self.constants[TRUE])]

    def _register(self, term: Term | Expr | object, registers: dict[Variable, int]) -> int:
        if isinstance(term, str):
            return self.constants[term]
        if isinstance(term, Variable) and term in registers:
            return registers[term]
        raise EngineFault(f"nothing binds {term} where it is used")


def _intersection(last: Step, read: Read) -> Intersect | None:
    """Return the two reads as one, if the second only tests the one value that the first loads."""
    if not isinstance(last, Probe) or not isinstance(read, MemberStep):
        return None
    loads = [column.register for column in last.columns if column.kind is ColumnKind.LOAD]
    keys = [column.register for column in read.columns]
    plain = all(column.kind in (ColumnKind.LOAD, ColumnKind.KEY) for column in last.columns)
    if not plain or len(loads) != 1 or keys.count(loads[0]) != 1 or len(keys) < 2:
        return None
    meeting = ColumnOperand(ColumnKind.SAME, loads[0])
    columns = tuple(meeting if column.register == loads[0] else column for column in read.columns)
    return Intersect(last, Probe(read.slot, read.view, columns))
