"""Files of facts and rules, read in batches of bounded size: rule text, JSON lines, or CSV.

- `.kb`: the rule language. Facts, rules and goals; goals are passed to the caller.
- `.jsonl`: one JSON object per line, a fact `{"predicate", "args", ...}`, a rule
  `{"head", "body", ...}`, either as text in the rule language, `{"text": ...}`, or a rule set,
  `{"ruleSet": {"name", "version", "text", ...}}`.
- `.csv`, `.tsv`: one fact per line, the predicate followed by its arguments; arguments only if the
  caller names a predicate. A header row is skipped, and the delimiter recognized (`csv_rows.py`).

Errors name the line. Batches before the error are returned, nothing after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from kbcore.errors import InvalidInput, LoadError
from kbcore.language import dumped_sets
from kbcore.language.csv_rows import (
    BATCH_ROWS,
    CsvBatch,
    CsvHeader,
    Delimiter,
    HeaderMode,
    csv_batches,
    without_mark,
)
from kbcore.language.dumped_sets import DumpedSet, DumpText
from kbcore.state.facts import Fact, FactRows
from kbcore.state.names import check_name
from kbcore.strict_json import NotJson, parse_json
from kbcore.timestamps import duration, instant
from kbplanner.check.lint import lint
from kbplanner.errors import RuleSyntaxError
from kbplanner.ir.limits import DEFAULT_LIMITS, metadata_problem, plain_texts, text_problem
from kbplanner.ir.phrases import Declaration, Definition
from kbplanner.ir.terms import Atom, Rule
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.passes.check import check_fact, check_rule, check_statements
from kbplanner.syntax.arity import rule_statement
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.jsonform import atom_from_json, rule_from_json
from kbplanner.syntax.parser import parse_program, parse_stream
from kbplanner.syntax.statements import (
    NO_ANNOTATIONS,
    DeclarationStatement,
    FactStatement,
    GoalStatement,
    RuleStatement,
    Statement,
    TextSpan,
)

FORMATS = (".kb", ".jsonl", ".csv", ".tsv")

MAX_GROUPS = 16
"""Maximum number of predicates in a CSV batch for which rows are grouped by predicate."""

MAX_JSON_DEPTH = 64
"""Maximum depth of a line, as of request bodies by default."""

_CHUNK = 1 << 16

STATEMENTS_PER_YIELD = 50
RULES_PER_YIELD = 8
"""Statements read, and rules checked, between two calls of `yield_now`: about a millisecond."""


@dataclass(slots=True)
class Batch:
    """A batch of consecutive facts, rules and goals of a file; `line` is the last line read for it.

    `rows` are the facts of a CSV file in bulk form. `header` is the decision on the first row of a
    CSV file, in its first batch. `statements` are the rules with their positions; `warnings` are
    about single rules.
    """

    facts: list[Fact] = field(default_factory=list)
    rows: list[FactRows] = field(default_factory=list)
    rules: list[Definition] = field(default_factory=list)
    goals: list[GoalStatement] = field(default_factory=list)
    line: int = 0
    header: CsvHeader | None = None
    warnings: list[RuleWarning] = field(default_factory=list)
    statements: list[RuleStatement] = field(default_factory=list)
    spans: list[TextSpan] = field(default_factory=list)
    """Of facts in the rule language, their places, in the same order."""
    rule_set: DumpedSet | None = None
    """A rule set of a dump, which is alone in its batch."""

    def __bool__(self) -> bool:
        return bool(
            self.facts or self.rows or self.rules or self.goals or self.header or self.rule_set
        )


def read_file(
    path: Path,
    *,
    scope: str | None = None,
    predicate: str | None = None,
    header: HeaderMode = "auto",
    delimiter: Delimiter = "auto",
) -> Iterator[Batch]:
    """Read a file by the ending of its name.

    `scope` applies to facts and rules without a scope. For CSV files, `predicate` is the predicate
    of every row, `header` says whether the first row is a header ("auto" detects one), and
    `delimiter` is the name of the sign between cells ("auto" recognizes it).

    Raises LoadError or RuleSyntaxError at the position of the error, OSError if the file cannot be
    read.
    """
    if path.suffix not in FORMATS:
        raise InvalidInput(f"{path.name}: the name must end in {', '.join(FORMATS)}")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            yield from read_text(
                file,
                path.suffix,
                scope=scope,
                predicate=predicate,
                header=header,
                delimiter=delimiter,
            )
    except LoadError as error:
        raise error.in_file(path.name) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path.name}: not UTF-8 at byte {error.start}") from error


def read_text(
    file: TextIO,
    kind: str,
    *,
    scope: str | None = None,
    predicate: str | None = None,
    header: HeaderMode = "auto",
    delimiter: Delimiter = "auto",
) -> Iterator[Batch]:
    """Read an open file as one of FORMATS; the other arguments are those of `read_file`."""
    if kind == ".kb":
        return read_dump(without_mark(iter(lambda: file.read(_CHUNK), "")), scope)
    if kind == ".jsonl":
        return _json_lines(file, scope)
    if kind == ".tsv" and delimiter == "auto":
        delimiter = "tab"
    return _csv_facts_of(csv_batches(file, header, predicate, delimiter), scope, predicate)


def read_dump(chunks: Iterable[str], scope: str | None = None) -> Iterator[Batch]:
    """Read text in the rule language as `read_statements`, but the rule sets of a dump as such."""
    text = DumpText(chunks)
    while True:
        yield from read_statements(text.statements(), scope)
        rule_set = text.rule_set(scope)
        if rule_set is None:
            return
        yield Batch(rule_set=rule_set, line=rule_set.line - 1)


def read_statements(
    chunks: Iterable[str], scope: str | None = None, yield_now: YieldNow = go_on
) -> Iterator[Batch]:
    """Read text in the rule language, in chunks cut anywhere; `yield_now` is called about once a
    millisecond.
    """
    statements = parse_stream(chunks, yield_now=yield_now, labelled=True)
    return batches(statements, scope, yield_now)


def batches(
    statements: Iterable[Statement], scope: str | None = None, yield_now: YieldNow = go_on
) -> Iterator[Batch]:
    """Make batches of statements, in order; arguments and errors as for `read_statements`."""
    batch = Batch()
    for statement in paced(statements, yield_now, STATEMENTS_PER_YIELD):
        batch.line = statement.span.end_line
        if isinstance(statement, FactStatement):
            batch.facts.append(fact_of(statement, scope))
            batch.spans.append(statement.span)
        elif isinstance(statement, RuleStatement):
            rule = rule_of(statement, scope)
            batch.rules.append(rule)
            batch.statements.append(replace(statement, rule=rule))
        elif isinstance(statement, DeclarationStatement):
            batch.rules.append(declaration_of(statement, scope))
        else:
            batch.goals.append(statement)
        if len(batch.facts) >= BATCH_ROWS or len(batch.rules) >= BATCH_ROWS:
            batch.warnings = rule_warnings(batch.statements, yield_now)
            yield batch
            batch = Batch()
    batch.warnings = rule_warnings(batch.statements, yield_now)
    if batch:
        yield batch


def rule_warnings(
    statements: Sequence[Statement], yield_now: YieldNow = go_on
) -> list[RuleWarning]:
    """Check the rules of a text and return the warnings, in the order of the text.

    `yield_now` is called about once a millisecond. Raises RuleSyntaxError.
    """
    warnings = [
        *check_statements(paced(statements, yield_now, RULES_PER_YIELD)),
        *lint(paced(statements, yield_now, RULES_PER_YIELD)),
    ]
    return sorted(
        warnings,
        key=lambda warning: (
            (0, 0) if warning.span is None else (warning.span.line, warning.span.column)
        ),
    )


def fact_of(statement: FactStatement, scope: str | None = None) -> Fact:
    """Return the fact of a statement, in `scope` unless it names a scope."""
    check_fact(statement.atom)
    atom, notes, line = statement.atom, statement.annotations, statement.span.line
    args = tuple(arg for arg in atom.args if isinstance(arg, str))
    if notes is NO_ANNOTATIONS:
        return Fact(atom.predicate, args, atom.positive, scope)
    return Fact(
        atom.predicate,
        args,
        atom.positive,
        notes.scope or scope,
        _time(notes.ttl, "ttl", line, duration),
        _time(notes.valid_from, "validFrom", line),
        _time(notes.valid_until, "validUntil", line),
        notes.confidence,
        notes.metadata or {},
        labels=notes.labels,
    )


def _time(
    value: int | str | None, name: str, line: int, read: Callable[[Any], int] = instant
) -> int | None:
    try:
        return None if value is None else read(value)
    except ValueError as error:
        raise LoadError(line, f"{name}: {error}") from error


def declaration_of(statement: DeclarationStatement, scope: str | None = None) -> Declaration:
    """Return what a statement declares; `scope` applies if it names none."""
    return replace(statement.declaration, scope=statement.declaration.scope or scope)


def rule_of(statement: RuleStatement, scope: str | None = None) -> Rule:
    """Return the rule of a statement, in `scope` unless it names a scope."""
    return _scoped(statement.rule, scope)


def _scoped(rule: Rule, scope: str | None) -> Rule:
    return rule if rule.scope or not scope else replace(rule, scope=scope)


def _json_lines(lines: Iterable[str], scope: str | None) -> Iterator[Batch]:
    batch = Batch()
    for number, line in enumerate(without_mark(lines), 1):
        if not line.strip():
            continue
        batch.line = number
        try:
            entry = _json_entry(line)
            if dumped_sets.MEMBER in entry:
                if batch:
                    yield batch
                    batch = Batch()
                value = entry[dumped_sets.MEMBER]
                if len(entry) > 1:
                    raise InvalidInput.at(dumped_sets.MEMBER, "is the only member of its object")
                rule_set = dumped_sets.from_entry(value, number, scope)
                yield Batch(rule_set=rule_set, line=number)
                continue
            clause = _json_clause(entry, scope)
            if isinstance(clause, Fact):
                batch.facts.append(clause)
            else:
                batch.rules.append(clause)
            if isinstance(clause, Rule):
                statement = rule_statement(clause, number)
                batch.statements.append(statement)
                batch.warnings += [
                    replace(each, span=statement.span) for each in check_rule(statement.rule)
                ]
                batch.warnings += lint([statement])
        except NotJson as error:
            message = error.message
            if error.problem:
                message = f"invalid JSON at column {error.column}: {error.problem}"
            raise LoadError(number, message) from error
        except LoadError:
            raise
        except (InvalidInput, ValueError) as error:
            raise LoadError(number, str(error)) from error
        if len(batch.facts) >= BATCH_ROWS or len(batch.rules) >= BATCH_ROWS:
            yield batch
            batch = Batch()
    if batch:
        yield batch


def _json_entry(line: str) -> dict[str, Any]:
    """Return the object of a line. Raises InvalidInput."""
    if line.lstrip().startswith("["):
        raise InvalidInput(
            "expected a JSON object, found an array: a .jsonl file has one object on each line,"
            " without brackets and commas around them"
        )
    try:
        document = line.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("half a surrogate pair is not a character") from error
    entry = parse_json(document, MAX_JSON_DEPTH, "the line")
    if not isinstance(entry, dict):
        raise InvalidInput("expected a JSON object")
    return entry


def _json_clause(entry: dict[str, Any], scope: str | None) -> Fact | Definition:
    """Return the fact or rule of a line."""
    if "text" in entry:
        if len(entry) > 1 or not isinstance(entry["text"], str):
            raise InvalidInput.at("text", "is a text and the only member of its object")
        statements = parse_program(entry["text"], final_dot=False, labelled=True)
        statement = statements[0] if len(statements) == 1 else None
        if isinstance(statement, FactStatement):
            return fact_of(statement, scope)
        if isinstance(statement, RuleStatement):
            return rule_of(statement, scope)
        if isinstance(statement, DeclarationStatement):
            return declaration_of(statement, scope)
        raise InvalidInput.at("text", "must be one fact, rule or declaration")
    if "head" in entry:
        return _scoped(rule_from_json(entry), scope)
    return _json_fact(entry, scope)


def _json_fact(entry: dict[str, Any], scope: str | None) -> Fact:
    atom = atom_from_json(entry)
    check_fact(atom)
    positive = atom.positive and not entry.get("negated") and entry.get("truthVal") is not False
    ttl, confidence, metadata = (entry.get(key) for key in ("ttl", "confidence", "metadata"))
    if ttl is not None:
        try:
            ttl = duration(ttl)
        except ValueError as error:
            raise InvalidInput.at("ttl", str(error)) from None
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if confidence is not None and not (is_number and 0 <= confidence <= 1):
        raise InvalidInput.at("confidence", "must be a number from 0 to 1")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidInput.at("metadata", "must be an object")
    if metadata and (problem := metadata_problem(metadata)):
        raise InvalidInput.at("metadata", problem)
    return Fact(
        atom.predicate,
        tuple(arg for arg in atom.args if isinstance(arg, str)),
        positive,
        _scope_of(entry) or scope,
        ttl,
        _json_instant(entry, "validFrom"),
        _json_instant(entry, "validUntil"),
        confidence,
        metadata or {},
    )


def _scope_of(entry: dict[str, Any]) -> str | None:
    return None if entry.get("scope") is None else check_name("scope", entry["scope"])


def _json_instant(entry: dict[str, Any], key: str) -> int | None:
    try:
        return None if entry.get(key) is None else instant(entry[key])
    except ValueError as error:
        raise InvalidInput.at(key, str(error)) from error


def plain_rows(predicate: str, rows: Sequence[Sequence[Any]], scope: str | None) -> FactRows | None:
    """Return rows of one relation in bulk form; None unless all are plain texts of one arity."""
    widths = set(map(len, rows))
    if (
        len(widths) != 1
        or 0 in widths
        or max(widths) > DEFAULT_LIMITS.args
        or str in set(map(type, rows))
    ):
        return None
    return bulk_rows(predicate, widths.pop(), list(chain.from_iterable(rows)), scope)


def bulk_rows(
    predicate: str, arity: int, args: list[Any], scope: str | None = None
) -> FactRows | None:
    """Return flat rows of one relation in bulk form.

    None if any value must be checked separately.
    """
    try:
        check_fact(Atom(predicate))
        return FactRows(predicate, arity, args, scope=scope) if plain_texts(args) else None
    except (
        InvalidInput,
        TypeError,
    ):  # the caller then converts values one by one and reports the exact error
        return None


def _csv_facts_of(
    parts: Iterable[tuple[CsvBatch, LoadError | None]], scope: str | None, predicate: str | None
) -> Iterator[Batch]:
    """Yield batches of bulk rows where all rows are plain.

    A batch with any other row is read row by row.
    """
    for part, error in parts:
        batch = _csv_facts(part, scope, predicate) if part.rows else Batch()
        batch.header = part.header
        if error is not None:
            raise error
        if batch:
            yield batch


def _csv_facts(part: CsvBatch, scope: str | None, predicate: str | None) -> Batch:
    lines, numbers = part.rows, part.lines
    names = [predicate] if predicate is not None else list(dict.fromkeys(row[0] for row in lines))
    grouped = [
        plain_rows(
            name,
            lines if predicate is not None else [row[1:] for row in lines if row[0] == name],
            scope,
        )
        for name in (names if len(names) <= MAX_GROUPS else [])
    ]
    rows = [group for group in grouped if group is not None]
    if rows and len(rows) == len(names):
        return Batch(rows=rows, line=numbers[-1])
    batch = Batch(line=numbers[-1])
    for row, number in zip(lines, numbers, strict=True):
        name, args = (predicate, row) if predicate is not None else (row[0], row[1:])
        _check_csv(name, args, number)
        batch.facts.append(Fact(name, tuple(args), scope=scope))
    return batch


def _check_csv(name: str, args: list[str], line: int) -> None:
    try:
        check_fact(Atom(name, tuple(args)))
    except RuleSyntaxError:
        raise
    except InvalidInput as error:
        raise LoadError(line, error.message) from error
    for text in (name, *args):
        problem = text_problem(text)
        if problem is not None:
            raise LoadError(line, problem)
    if len(args) > DEFAULT_LIMITS.args:
        raise LoadError(line, f"more than {DEFAULT_LIMITS.args} arguments")
