"""The job of a bulk run: rules and a goal, compiled, and the Parquet files of its facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kbcore.bulk.files import PARQUET, TableName, table_files
from kbcore.errors import InvalidInput
from kbcore.plug.ports import BulkFacts
from kbplanner.compile.bulkplan import BulkPlan, UnfitForBulk, bulk_plan
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Rule
from kbplanner.passes.check import check_fact, check_rule
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.parser import parse_goal, parse_program
from kbplanner.syntax.statements import FactStatement, GoalStatement, RuleStatement, Statement

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BulkRules:
    """Rules and the facts between them, from the text of a file; `lines` are those of the rules."""

    source: str
    rules: RuleSet
    facts: Mapping[RelationSchema, tuple[Row, ...]]
    lines: Mapping[Rule, int]
    goals: tuple[int, ...] = ()
    """Lines of goals, which a bulk run leaves out."""


@dataclass(frozen=True, slots=True)
class BulkJob:
    """A compiled goal and the facts it reads; `notes` are remarks for the user."""

    plan: BulkPlan
    facts: tuple[BulkFacts, ...]
    notes: tuple[str, ...] = field(default=())


def read_rules(text: str, source: str) -> BulkRules:
    """Read rules and facts; `source` names the text in messages.

    Raises RuleSyntaxError, and InvalidInput for what a bulk run does not have: scopes, and facts
    with a time.
    """
    rules: list[Rule] = []
    facts: dict[RelationSchema, dict[Row, None]] = {}
    lines: dict[Rule, int] = {}
    goals: list[int] = []
    for statement in parse_program(text, final_dot=False):
        _check(statement, source)
        if isinstance(statement, RuleStatement):
            rules.append(statement.rule)
            lines.setdefault(statement.rule, statement.span.line)
        elif isinstance(statement, GoalStatement):
            goals.append(statement.span.line)
        elif isinstance(statement, FactStatement):
            atom = statement.atom
            row = tuple(arg for arg in atom.args if isinstance(arg, str))
            facts.setdefault(_schema(atom), {})[row] = None
    rows = {schema: tuple(rows) for schema, rows in facts.items()}
    return BulkRules(source, RuleSet(rules), rows, lines, tuple(goals))


def _check(statement: Statement, source: str) -> None:
    problem = None
    if isinstance(statement, RuleStatement):
        if statement.rule.scope is not None:
            problem = "a bulk run has no scopes; remove the scope of the rule"
    elif isinstance(statement, FactStatement):
        notes = statement.annotations
        if (notes.ttl, notes.scope, notes.valid_from, notes.valid_until) != (None,) * 4:
            problem = "a bulk run has neither scopes nor times; remove them from the fact"
    try:
        if isinstance(statement, RuleStatement):
            check_rule(statement.rule)
        elif isinstance(statement, FactStatement):
            check_fact(statement.atom)
    except InvalidInput as error:
        problem = error.message
    if problem is not None:
        raise InvalidInput(f"{source}:{statement.span.line}: {problem}")


def read_goal(text: str) -> Atom:
    """Read a goal of one atom. Raises RuleSyntaxError, and InvalidInput for other goals."""
    literal = parse_goal(text).literal
    if literal.negated:
        raise InvalidInput(
            "the goal of a bulk run is an atom without `not`; write a rule and use its head"
        )
    return literal.atom


def plan_job(rules: BulkRules, goal: Atom, *folders: Path) -> BulkJob:
    """Compile a goal, and find the facts in folders of Parquet files.

    Raises InvalidInput naming the rule that cannot be evaluated, or the folder.
    """
    files: dict[TableName, tuple[str, ...]] = {}
    for folder in folders:
        for table, paths in table_files(folder, [PARQUET]).items():
            files[table] = files.get(table, ()) + tuple(map(str, paths))
    names = {(schema.predicate, schema.positive) for schema in rules.facts}
    names |= {(table.predicate, table.positive) for table in files}
    denied = {
        schema for schema in rules.rules.deniable if (schema.predicate, schema.positive) in names
    }
    try:
        plan = bulk_plan(rules.rules, goal, denied)
    except UnfitForBulk as error:
        line = next(
            (
                f"{rules.source}:{line}"
                for rule, line in rules.lines.items()
                if str(_schema(rule.head)) in error.predicates
            ),
            rules.source,
        )
        raise InvalidInput(f"{line}: {error.message}") from error
    notes = [
        f"{rules.source}:{line}: the goal is not evaluated; state it with --goal"
        for line in rules.goals[:1]
    ]
    if plan.may_not_end:
        notes.append(
            "rules compute values in a recursion: the run may not end; --max-rows sets a limit"
        )
    where = "".join(f" in {folder}" for folder in folders[:1])
    facts = []
    for relation, schema in plan.stored.items():
        table = TableName(schema.predicate, schema.positive)
        sources = files.get(table, ()) + files.get(replace(table, arity=schema.arity), ())
        rows = rules.facts.get(schema, ())
        facts.append(BulkFacts(relation, str(schema), schema.arity, sources, rows))
        if not (sources or rows or schema in rules.rules.derived):
            notes.append(f"no facts for {schema}{where}: the relation is empty")
    _refuse_mixed_arities(plan, files)
    return BulkJob(plan, tuple(facts), tuple(notes))


def _refuse_mixed_arities(plan: BulkPlan, files: Mapping[TableName, Sequence[str]]) -> None:
    """Refuse a file that would serve one predicate name with several numbers of arguments."""
    arities: dict[TableName, int] = {}
    for schema in plan.stored.values():
        table = TableName(schema.predicate, schema.positive)
        if table in files and arities.setdefault(table, schema.arity) != schema.arity:
            raise InvalidInput(
                f"{files[table][0]}: the rules read {schema.predicate} with {arities[table]} and "
                f"with {counted(schema.arity, 'argument')}; a file has facts of one number of arguments, as "
                f"{replace(table, arity=schema.arity)}{PARQUET} says in its name"
            )


def _schema(atom: Atom) -> RelationSchema:
    return RelationSchema(atom.predicate, atom.arity, atom.positive)
