"""Test blocks of rule files: `test "name" { fact(a). ?- p(?x) = [b, c]. }`, and fixtures.

A fixture is a block of facts, or a file: `fixture "name" from "facts.csv" as fact.`

A text with blocks is read in two parts: the blocks here, and the rest by the parser of the
language, in a copy in which white space stands for the blocks. So both keep their positions.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.ir.terms import BodyItem, Variable
from kbplanner.ir.values.instants import instant, milliseconds
from kbplanner.pacing import YieldNow, go_on, may_have, paced
from kbplanner.syntax.diagnostics import Diagnostic, Problem, syntax_error
from kbplanner.syntax.lowering import Lowering
from kbplanner.syntax.parser import Parsed, parse_clause, parse_valid
from kbplanner.syntax.reader import StatementReader, report_problems
from kbplanner.syntax.scanner import (
    Token,
    block_header_size,
    file_fixture_size,
    scan_block,
    scan_statement,
)
from kbplanner.syntax.statements import (
    FactStatement,
    GoalStatement,
    RuleStatement,
    Statement,
    TextSpan,
)

MAX_ERRORS = 1000

TABLES, JSON_LINES = (".csv", ".tsv"), ".jsonl"
"""Endings of the names of files that fixtures are read from."""

FIXTURE_PATH = re.compile(r"[^/\\:\x00-\x1f][^\\:\x00-\x1f]*")
"""Paths that begin at no root of any system."""

_BLOCK = re.compile(r"(?:^|[\s.}/])(?:test|fixture)\b")
_EXPECTED = 'a test has facts and queries: "fact(a).", "?- p(?x) = [b, c].", "?- not p(d)."'


@dataclass(frozen=True, slots=True)
class Expectation:
    """A query of a test, and its expected result.

    `answers` are the expected values of `variables`, in any order; None if any answer will do.
    `rule` is the name of a rule that must conclude an answer; None if any will do.
    """

    statement: GoalStatement
    variables: tuple[Variable, ...]
    answers: tuple[tuple[str, ...], ...] | None = None
    rule: str | None = None

    @property
    def body(self) -> tuple[BodyItem, ...]:
        """The items of the query."""
        return self.statement.body


@dataclass(frozen=True, slots=True)
class FixtureFile:
    """The file of a fixture: its path in the folder of the test file, and the predicate of all rows
    of a CSV file; None: the first cell of a row is the predicate.
    """

    path: str
    predicate: str | None = None


@dataclass(frozen=True, slots=True)
class TestBlock:
    """A test or a fixture: its facts as text, its queries, and the fixtures that it uses.

    `file` is the file of a fixture that is read from one. `at` is the instant of the test in epoch
    milliseconds, None for the present.
    """

    kind: str
    name: str
    span: TextSpan
    fixtures: tuple[str, ...] = ()
    facts: tuple[FactStatement, ...] = ()
    facts_text: str = ""
    expectations: tuple[Expectation, ...] = ()
    at: int | None = None
    file: FixtureFile | None = None


@dataclass(frozen=True, slots=True)
class BlockSource:
    """A text of a rule file: its statements outside of blocks, its blocks, and its errors.

    `program` is the text with white space for the blocks.
    """

    program: str
    parsed: Parsed
    blocks: list[TestBlock] = field(default_factory=list)

    @property
    def statements(self) -> list[Statement]:
        """All statements, those of the blocks included."""
        inner: list[Statement] = []
        for block in self.blocks:
            inner += [*block.facts, *(each.statement for each in block.expectations)]
        return [*self.parsed.statements, *inner]


def read_source(
    text: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    max_errors: int = MAX_ERRORS,
    yield_now: YieldNow = go_on,
    known: Mapping[str, RuleStatement] | None = None,
) -> BlockSource:
    """Read a text with test blocks; its errors are in `parsed`. Its statements may have labels,
    which the caller checks. Rules whose text is in `known` are not read again.

    `yield_now` is called about once a millisecond.
    """
    if not may_have(text, _BLOCK, len(".fixture"), yield_now):
        parsed = parse_valid(
            text, limits, max_errors=max_errors, labelled=True, yield_now=yield_now, known=known
        )
        return BlockSource(text, parsed)
    reader = _BlockReader(text, limits, max_errors, yield_now)
    blocks = list(reader.blocks())
    program = reader.program()
    parsed = parse_valid(
        program, limits, max_errors=max_errors, labelled=True, yield_now=yield_now, known=known
    )
    errors = [*parsed.errors, *reader.errors][:max_errors]
    names = parsed.unread_names | reader.unread_names
    return BlockSource(program, replace(parsed, errors=errors, unread_names=names), blocks)


def checked_source(text: str, limits: Limits = DEFAULT_LIMITS) -> BlockSource:
    """Read a text with test blocks; raises RuleSyntaxError with all its errors."""
    source = read_source(text, limits)
    if source.parsed.errors:
        raise syntax_error(source.parsed.errors)
    return source


class _BlockReader:
    """Reader of the blocks of one text."""

    def __init__(self, text: str, limits: Limits, max_errors: int, yield_now: YieldNow) -> None:
        self.errors: list[Diagnostic] = []
        self.unread_names: set[str] = set()
        self._text = text
        self._limits = limits
        self._max_errors = max_errors
        self._yield_now = yield_now
        self._line_ends = [match.start() for match in paced(re.finditer("\n", text), yield_now)]
        self._ranges: list[tuple[int, int]] = []

    def blocks(self) -> Iterator[TestBlock]:
        """Yield the blocks; errors are collected."""
        position = 0
        while len(self.errors) < self._max_errors:
            self._yield_now()
            tokens, end = scan_statement(self._text, position, self._yield_now)
            if not tokens:
                return
            first = next((at for at in range(len(tokens)) if _begins_block(tokens, at)), None)
            if first is None:
                position = end
                continue
            if size := file_fixture_size(tokens, first):
                own = tokens[first : first + size]
                position = own[-1].end
                self._ranges.append((own[0].start, position))
                if (fixture := self._file_fixture(own)) is not None:
                    yield fixture
                continue
            header = tokens[first : first + block_header_size(tokens, first)]
            statements, close, position = scan_block(self._text, header[-1].end, self._yield_now)
            self._ranges.append((header[0].start, position))
            if close is None:
                message, hint = "the block has no end", 'add "}" after its last statement'
                self._report("unclosed-bracket", message, hint, header[-1])
            yield self._block(header, statements)

    def _file_fixture(self, tokens: list[Token]) -> TestBlock | None:
        """Return a fixture that is read from a file; None if it has a mistake."""
        lowering = Lowering(self._text, self._limits, self._yield_now)
        parts = [lowering.text(token) for token in tokens if token.type in ("STRING", "IDENT")]
        _, name, _, *rest = parts
        problem = None
        if tokens[-1].type != "_END" or len(rest) not in (1, 3):
            problem = "expected the path of a file in quotes, as and a predicate, and a period"
        elif not FIXTURE_PATH.fullmatch(rest[0]) or ".." in rest[0].split("/"):
            problem = "the file of a fixture is in the folder of the test file, or in one below"
        elif not rest[0].endswith((*TABLES, JSON_LINES)):
            problem = f"the name of the file ends in {', '.join((*TABLES, JSON_LINES))}"
        elif len(rest) == 3 and rest[0].endswith(JSON_LINES):
            problem = "each line of a file of JSON lines has its own predicate"
        elif len(rest) == 3 and (wrong := self._limits.predicate_problem(rest[2])):
            problem = wrong
        self._report_problems(lowering.problems)
        if problem is not None:
            hint = 'such as fixture "orders" from "orders.csv" as order.'
            self._report("bad-test", problem, hint, tokens[0], tokens[-1])
        if problem is not None or lowering.problems:
            return None
        file = FixtureFile(rest[0], rest[2] if len(rest) == 3 else None)
        return TestBlock("fixture", name, self._span(tokens[0].start, tokens[1].end), file=file)

    def program(self) -> str:
        """Return the text with white space for the blocks."""
        parts, position = [], 0
        for start, end in paced(self._ranges, self._yield_now, 100):
            blank = re.sub(r"[^\n]", " ", self._text[start:end])
            parts += [self._text[position:start], blank]
            position = end
        return "".join([*parts, self._text[position:]])

    def _block(self, header: list[Token], statements: Sequence[list[Token]]) -> TestBlock:
        facts: list[FactStatement] = []
        expectations: list[Expectation] = []
        kind = header[0].value
        for tokens in paced(statements, self._yield_now, 1):
            statement = self._statement(tokens)
            if isinstance(statement, FactStatement):
                facts.append(statement)
            elif isinstance(statement, Expectation) and kind == "test":
                expectations.append(statement)
            elif statement is not None:
                message = "a fixture has facts only" if kind == "fixture" else _EXPECTED
                self._report("bad-test", message, None, tokens[0], tokens[-1])
        lowering = Lowering(self._text, self._limits, self._yield_now)
        at = self._instant(header, lowering)
        name, *fixtures = (
            lowering.text(token)
            for number, token in enumerate(header)
            if token.type == "STRING" and header[number - 1].value != "at"
        )
        self._report_problems(lowering.problems)
        if kind == "test" and not any(tokens[0].type == "_GOAL" for tokens in statements):
            message, hint = "the test has no query", 'add one, such as "?- p(?x) = [b, c]."'
            self._report("bad-test", message, hint, header[0], header[1])
        facts_text = "\n".join(
            self._text[tokens[0].start : tokens[-1].end]
            for tokens in statements
            if tokens[0].type != "_GOAL"
        )
        span = self._span(header[0].start, header[1].end)
        return TestBlock(
            kind, name, span, tuple(fixtures), tuple(facts), facts_text, tuple(expectations), at
        )

    def _instant(self, header: Sequence[Token], lowering: Lowering) -> int | None:
        """Return the instant after `at` in the header of a test, in epoch milliseconds."""
        token = header[3] if header[2].value == "at" else None
        if token is None:
            return None
        named = instant(lowering.text(token)) if token.type == "STRING" else None
        if header[0].value == "fixture":
            message = "a fixture has no time; write it at the tests that use the fixture"
            self._report("bad-test", message, None, header[2], token)
        elif named is None:
            message, hint = "expected a date or an instant after at", 'such as "2026-03-01"'
            self._report("bad-test", message, hint, token)
        else:
            return milliseconds(named)
        return None

    def _statement(self, tokens: list[Token]) -> Statement | Expectation | None:
        if tokens[0].type != "_GOAL":
            return self._parsed(tokens[0].start, tokens[-1].end)
        cut, answers, rule = len(tokens), None, None
        lowering = Lowering(self._text, self._limits, self._yield_now)
        last = len(tokens) - (tokens[-1].type == "_END")
        for at in range(1, last):
            if tokens[at].type == "EQ" and at + 1 < last and tokens[at + 1].type == "_LSQB":
                cut, answers = at, _answers(tokens[at + 1 : last], lowering)
                if answers is None:
                    message = "expected a list of values, such as [b, c] or [(a, b), (c, d)]"
                    self._report("bad-test", message, None, tokens[at + 1], tokens[last - 1])
                    return None
                break
            if tokens[at].type == "IDENT" and tokens[at].value == "because":
                names = tokens[at + 1 : last]
                if [token.type for token in names] not in (["_AT", "IDENT"], ["_AT", "STRING"]):
                    if names and names[0].type == "_AT":
                        message = 'expected the name of a rule after "because @"'
                        self._report("bad-test", message, None, names[0])
                        return None
                    continue
                cut, rule = at, lowering.text(names[1])
                break
        end = tokens[cut - 1].end
        statement = self._parsed(tokens[0].start, end)
        if not isinstance(statement, GoalStatement):
            return statement
        variables = tuple(
            dict.fromkeys(
                variable
                for item in statement.body
                for variable in item.variables()
                if not variable.anonymous
            )
        )
        expectation = Expectation(statement, variables, answers, rule)
        if answers is not None and not self._fits(expectation, tokens[cut + 1]):
            return None
        self._report_problems(lowering.problems)
        return expectation

    def _fits(self, expectation: Expectation, at: Token) -> bool:
        count = len(expectation.variables)
        if not count:
            message, hint = "the query has no variables", 'write "?- p(a)." or "?- not p(a)."'
            self._report("bad-test", message, hint, at)
            return False
        for values in expectation.answers or ():
            if len(values) != count:
                names = ", ".join(map(str, expectation.variables))
                message = f"an answer has a value for each of {names}, found {len(values)}"
                self._report("bad-test", message, None, at)
                return False
        return True

    def _parsed(self, start: int, end: int) -> Statement | None:
        """Read a statement at its place in the text."""
        span = self._span(start, end)
        piece = self._text[start:end]
        reader = StatementReader(
            piece,
            parse_clause,
            self._limits,
            position=(span.line, span.column),
            yield_now=self._yield_now,
        )
        statements = list(reader.statements())
        self.errors += reader.errors
        self.unread_names |= reader.unread_names
        return statements[0] if statements else None

    def _span(self, start: int, end: int) -> TextSpan:
        first, last = (bisect_left(self._line_ends, at) for at in (start, end))
        return TextSpan(
            first + 1, start - self._line_start(first), last + 1, end - self._line_start(last)
        )

    def _line_start(self, line: int) -> int:
        """Return the offset before the first character of a line, counted from 0."""
        return self._line_ends[line - 1] if line else -1

    def _report(
        self, code: str, message: str, hint: str | None, first: Token, last: Token | None = None
    ) -> None:
        end = (last or first).end
        self._report_problems([Problem(code, message, hint, first.start, end)])

    def _report_problems(self, problems: Sequence[Problem]) -> None:
        self._yield_now()
        room = self._max_errors - len(self.errors)
        self.errors += report_problems(self._text, problems[:room])


def _begins_block(tokens: list[Token], at: int) -> bool:
    return bool(block_header_size(tokens, at) or file_fixture_size(tokens, at))


def _answers(tokens: Sequence[Token], lowering: Lowering) -> tuple[tuple[str, ...], ...] | None:
    """Return the tuples of `[b, c]` or `[(a, b), (c, d)]`; None if the tokens are no such list."""
    if tokens[-1].type != "_RSQB":
        return None
    inner = tokens[1:-1]
    answers: list[tuple[str, ...]] = []
    at = 0
    while at < len(inner):
        if answers:
            if inner[at].type != "_COMMA":
                return None
            at += 1
        values, at = _tuple(inner, at, lowering)
        if not values:
            return None
        answers.append(values)
    return tuple(answers)


def _tuple(tokens: Sequence[Token], at: int, lowering: Lowering) -> tuple[tuple[str, ...], int]:
    """Return one value, or several in parentheses, and the index behind them; () for a mistake."""
    if at >= len(tokens) or tokens[at].type != "_LPAR":
        value, at = _value(tokens, at, lowering)
        return (() if value is None else (value,)), at
    values: list[str] = []
    while at < len(tokens):
        value, at = _value(tokens, at + 1, lowering)
        if value is None or at >= len(tokens):
            return (), at
        values.append(value)
        if tokens[at].type == "_RPAR":
            return tuple(values), at + 1
        if tokens[at].type != "_COMMA":
            return (), at
    return (), at


def _value(tokens: Sequence[Token], at: int, lowering: Lowering) -> tuple[str | None, int]:
    negative = at < len(tokens) and tokens[at].type == "MINUS"
    at += negative
    if at < len(tokens) and tokens[at].type in (
        ("NUMBER",) if negative else ("IDENT", "STRING", "NUMBER")
    ):
        return "-" * negative + lowering.text(tokens[at]), at + 1
    return None, at
