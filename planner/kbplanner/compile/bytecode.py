"""Encoding of plans as words, the format the engine verifies and runs; see csrc/BYTECODE.md."""

from __future__ import annotations

from array import array
from enum import IntEnum

from kbplanner.compile.plan import (
    AntiJoin,
    CallStep,
    CaptureStep,
    ColumnOperand,
    Copy,
    Equal,
    Filter,
    Generate,
    GroupStep,
    Intersect,
    JoinPlan,
    Match,
    MemberStep,
    Plan,
    Probe,
    RelationView,
    Scan,
    Step,
    TextTest,
)
from kbplanner.ir.values.pattern import compile_pattern
from kbplanner.pacing import YieldNow, go_on, paced

MAGIC = 0x4B425031
VERSION = 1
NO_SLOT = 0xFFFFFFFF


class Opcode(IntEnum):
    """Instruction numbers; a test compares them with the engine's own table."""

    END = 0
    COMPONENT = 1
    RULE = 2
    SCAN = 3
    PROBE = 4
    MEMBER = 5
    ABSENT = 6
    COMPARE = 7
    COPY = 8
    EMIT = 9
    CALL = 10
    AGGREGATE = 11
    TEST = 12
    MATCHES = 13
    EQUAL = 14
    INTERSECT = 15
    CAPTURE = 16
    GENERATE = 17


RULES_PER_YIELD = 5
"""Join plans encoded between two calls of `yield_now`: a tenth of a millisecond, more if they are
long.
"""


def encode(plan: Plan, yield_now: YieldNow = go_on) -> array[int]:
    """Return the bytecode of a plan, as unsigned 32-bit words.

    `yield_now` is called about once a millisecond.
    """
    words = [
        MAGIC,
        VERSION,
        len(plan.slots),
        len(plan.parameters),
        plan.registers,
        len(plan.strata),
    ]
    words += [NO_SLOT if plan.seed is None else plan.seed, plan.answer]
    kinds = zip(plan.slots, plan.derived, plan.demand, plan.best, strict=True)
    for schema, derived, demand, best in kinds:
        kind = int(derived) + int(demand) if best is None else KIND_OF[best]
        words += [schema.arity, kind + len(schema.adornment) if best == "first" else kind]
    for stratum in paced(plan.strata, yield_now, RULES_PER_YIELD):
        words += [Opcode.COMPONENT, int(stratum.recursive), len(stratum.plans)]
        for join in paced(stratum.plans, yield_now, RULES_PER_YIELD):
            words += _rule(join)
    words.append(Opcode.END)
    return array("I", words)


def _rule(join: JoinPlan) -> list[int]:
    steps = [word for step in join.steps for word in _step(step)]
    return [Opcode.RULE, join.rule, len(steps), *steps]


KIND_OF = {"min": 3, "max": 4, "classes": 5, "first": 6}
"""Kinds of slots that keep the best row of each group, the classes of names, or the first row with
a key; to the last kind the number of columns of the key is added.
"""

_READS = {Scan: Opcode.SCAN, Probe: Opcode.PROBE, MemberStep: Opcode.MEMBER}


def _step(step: Step) -> list[int]:
    if isinstance(step, (Scan, Probe, MemberStep)):
        return [
            _READS[type(step)],
            step.slot,
            step.view,
            *(_column(column) for column in step.columns),
        ]
    if isinstance(step, Intersect):
        return [Opcode.INTERSECT, *_step(step.probe)[1:], *_step(step.other)[1:]]
    if isinstance(step, AntiJoin):
        return [Opcode.ABSENT, step.slot, *(_column(column) for column in step.columns)]
    if isinstance(step, Filter):
        return [Opcode.COMPARE, step.op, step.left, step.right]
    if isinstance(step, GroupStep):
        folds = [word for fold in step.folds for word in (fold.function, fold.column, fold.to)]
        columns = [_column(column) for column in step.columns]
        return [Opcode.AGGREGATE, step.slot, RelationView.DELTA, *columns, len(step.folds), *folds]
    if isinstance(step, TextTest):
        return [Opcode.TEST, step.op, step.left, step.right]
    if isinstance(step, Match):
        program = compile_pattern(step.pattern)
        return [Opcode.MATCHES, int(step.negated), step.text, len(program), *program]
    if isinstance(step, CallStep):
        return [Opcode.CALL, step.function, step.to, len(step.args), *step.args]
    if isinstance(step, Generate):
        return [Opcode.GENERATE, step.function, step.to, len(step.args), *step.args]
    if isinstance(step, CaptureStep):
        program = compile_pattern(step.pattern, step.group)
        return [Opcode.CAPTURE, step.to, step.text, len(program), *program]
    if isinstance(step, Equal):
        return [Opcode.EQUAL, step.to, step.source]
    if isinstance(step, Copy):
        return [Opcode.COPY, step.to, step.source]
    return [Opcode.EMIT, step.slot, *step.registers]


def _column(column: ColumnOperand) -> int:
    return column.kind << 30 | column.register
