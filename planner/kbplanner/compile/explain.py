"""Plans as text for people: one line per operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kbplanner.compile.plan import (
    AntiJoin,
    CallStep,
    CaptureStep,
    ColumnKind,
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
    Scan,
    Step,
    TextTest,
)
from kbplanner.ir.operators import (
    AGGREGATES,
    COMPARISONS,
    GENERATOR_LIST,
    OPERATIONS,
    SUBSTRING_TESTS,
)
from kbplanner.ir.program import AggregateClause, Clause, ClauseItem, Computation, Program
from kbplanner.ir.terms import Aggregate, Apply, Comparison
from kbplanner.syntax.printer import print_expression, print_item, print_term


def explain(plan: Plan) -> str:
    """Return the plan as text, stratum by stratum, with rules by number."""
    return "\n".join(_lines(plan))


COMPILED = "(made by the compiler)"
"""Shown for a rule that the compiler made, or whose text is not available."""


def show(program: Program) -> str:
    """Return a program between passes as text, one clause per line, in its order."""
    return "\n".join(_clause(clause) for clause in program.clauses)


def _clause(clause: Clause) -> str:
    body = ", ".join(_item(item) for item in clause.body)
    return f"{_item(clause.head)} :- {body}." + (f"  % rule {clause.rule}" if clause.rule else "")


def _item(item: ClauseItem) -> str:
    if isinstance(item, Comparison):
        return print_item(item)
    if isinstance(item, AggregateClause):
        return f"{item.target} := {print_term(Aggregate(item.function, item.variable))}"
    if isinstance(item, Computation):
        value = (
            print_term(item.args[0])
            if item.function == "="
            else print_expression(Apply(item.function, item.args))
        )
        return f"{item.target} := {value}"
    args = ", ".join(print_term(arg) for arg in item.args)
    return f"{'absent ' if item.absent else ''}{item.schema}({args})"


def _lines(plan: Plan) -> Iterator[str]:
    seed = "nothing" if plan.seed is None else str(plan.slots[plan.seed])
    yield f"answer {answer_name(plan)}, seeded by {seed}"
    for number, stratum in enumerate(plan.strata, 1):
        names = ", ".join(str(plan.slots[slot]) for slot in stratum.relations)
        yield f"stratum {number}{' (recursive)' if stratum.recursive else ''}: {names}"
        for join in stratum.plans:
            yield f"  rule {join.rule}: {COMPILED}" if join.rule else f"  {COMPILED}"
            for step in join.steps:
                yield f"    {step_text(step, join, plan)}"


def answer_name(plan: Plan) -> str:
    """Return the name of the answer relation."""
    return str(plan.slots[plan.answer]).removeprefix("answer ")


def atom_text(plan: Plan, join: JoinPlan, slot: int, columns: Sequence[ColumnOperand]) -> str:
    """Return what a step reads as an atom with the rule's variables, `_` for ignored columns."""
    parts = [
        "_" if column.kind is ColumnKind.ANY else join.names[column.register] for column in columns
    ]
    name = str(replace(plan.slots[slot], restrictions=())).rsplit("/", 1)[0]
    return f"{name}({', '.join(parts)})"


def mask(columns: Sequence[ColumnOperand]) -> str:
    """Return `b` for each column that is looked up by, `f` for each that is read."""
    return "".join("b" if column.kind is ColumnKind.KEY else "f" for column in columns)


def step_text(step: Step, join: JoinPlan, plan: Plan) -> str:
    """Return a step as one line."""
    if isinstance(step, (Scan, Probe, MemberStep)):
        name = type(step).__name__.removesuffix("Step").lower()
        return f"{name} {plan.slots[step.slot]} {step.view.name.lower()} {_columns(step.columns, join.names)}"
    if isinstance(step, Intersect):
        return f"intersect {step_text(step.probe, join, plan)[6:]}, {step_text(step.other, join, plan)[6:]}"
    if isinstance(step, GroupStep):
        folds = ", ".join(
            f"{join.names[fold.to]} = {AGGREGATES[fold.function]} of {fold.column + 1}"
            for fold in step.folds
        )
        return f"group {plan.slots[step.slot]} {_columns(step.columns, join.names)} {folds}"
    if isinstance(step, AntiJoin):
        return f"absent {plan.slots[step.slot]} {_columns(step.columns, join.names)}"
    if isinstance(step, Filter):
        test = f"{join.names[step.left]} {COMPARISONS[step.op % 8]} {join.names[step.right]}"
        return f"filter {'not ' if step.op >= 8 else ''}{test}"
    if isinstance(step, TextTest):
        test = f"{join.names[step.left]} {SUBSTRING_TESTS[step.op % 8]} {join.names[step.right]}"
        return f"test {'not ' if step.op >= 8 else ''}{test}"
    if isinstance(step, Match):
        return f"match {'not ' if step.negated else ''}{join.names[step.text]} {print_term(step.pattern)}"
    if isinstance(step, CallStep):
        args = ", ".join(join.names[register] for register in step.args)
        return f"call {join.names[step.to]} = {OPERATIONS[step.function]} ({args})"
    if isinstance(step, Generate):
        args = ", ".join(join.names[register] for register in step.args)
        return f"generate {join.names[step.to]} = {GENERATOR_LIST[step.function].name} ({args})"
    if isinstance(step, CaptureStep):
        text, pattern = join.names[step.text], print_term(step.pattern)
        return f"capture {join.names[step.to]} = {text} {pattern} group {step.group}"
    if isinstance(step, Equal):
        return f"equal {join.names[step.to]} = {join.names[step.source]}"
    if isinstance(step, Copy):
        return f"copy {join.names[step.to]} = {join.names[step.source]}"
    return f"emit {plan.slots[step.slot]} ({', '.join(join.names[register] for register in step.registers)})"


def _columns(columns: Sequence[ColumnOperand], names: Mapping[int, str]) -> str:
    marks = {ColumnKind.KEY: "=", ColumnKind.LOAD: "", ColumnKind.SAME: "same "}
    parts = [
        "_" if c.kind is ColumnKind.ANY else marks[c.kind] + names[c.register] for c in columns
    ]
    return f"({', '.join(parts)})"
