"""Runs of the tests of rule files, each in a transaction of its own, in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kbcore.clock import SystemClock
from kbcore.config.settings import Config
from kbcore.embed import KnowledgeBase
from kbcore.errors import InvalidInput, KBError
from kbcore.language.files import Batch, read_file
from kbcore.node.opening import open_runtime
from kbplanner.authoring.blocks import (
    BlockSource,
    Expectation,
    FixtureFile,
    TestBlock,
)
from kbplanner.check.texts import ReadText
from kbplanner.ir.terms import (
    Aggregate,
    Atom,
    BodyItem,
    Comparison,
    Literal,
    Rule,
    Term,
    Variable,
    extremum_of,
)
from kbplanner.ir.unify import substituted, unify
from kbplanner.syntax.parser import imported_sets
from kbplanner.syntax.printer import print_constant, print_item, print_rule
from kbplanner.syntax.reader import IMPORT
from kbplanner.syntax.statements import GoalStatement, RuleStatement, TextSpan

MAX_LISTED = 10
"""Number of answers that a failure lists."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A file with its name and text, as read, and its folder (None: it is in none)."""

    name: str
    text: str
    source: BlockSource
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class TestFailure:
    """An expectation that was not met: its place and lines of explanation."""

    line: int
    column: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TestResult:
    """A test that has run. `error` is set if it could not run to its end."""

    __test__ = False

    file: str
    block: TestBlock
    failures: tuple[TestFailure, ...]
    seconds: float
    error: str | None = None

    @property
    def has_passed(self) -> bool:
        """Return True if all expectations were met."""
        return not self.failures and self.error is None


@dataclass(slots=True)
class RuleCoverage:
    """A rule, and how far the rows of any test got in it.

    `derived` is True if it derived a fact; `reached` are the indexes of the body items that a row
    reached.
    """

    file: str
    span: TextSpan
    rule: Rule
    items: tuple[TextSpan, ...]
    derived: bool = False
    reached: set[int] = field(default_factory=set)


def run_of(
    texts: Iterable[tuple[str, ReadText]],
    now: int | None = None,
    folder_of: Callable[[str], Path | None] = lambda name: None,
) -> TestRun:
    """Return the run of the tests of files that belong together, given by name; `now` as
    for TestRun. `folder_of` returns the folder of a file by its name.
    """
    files = [RuleFile(name, read.text, read.source, folder_of(name)) for name, read in texts]
    return TestRun(files, now)


class _RollBack(Exception):
    """Ends a transaction without a commit."""


class _Clock(SystemClock):
    """A clock that is `at` an instant, None for the present; seconds go on, for time limits."""

    def __init__(self, at: int | None) -> None:
        self._at = at

    def now_ms(self) -> int:
        """Return the instant in epoch milliseconds."""
        return super().now_ms() if self._at is None else self._at


class TestRun:
    """Runs the tests of files that belong together.

    `now` is the instant (epoch milliseconds) of tests that name none; None: the present.
    `replaced` has texts in place of statements, given by their file and span.
    """

    __test__ = False

    def __init__(
        self,
        files: Sequence[RuleFile],
        now: int | None = None,
        replaced: Mapping[tuple[str, TextSpan], str] | None = None,
    ) -> None:
        self._files = files
        self._now = now
        self._program = "\n".join(_storable(file, replaced or {}) for file in files)
        if any(file.source.parsed.is_strict for file in files):
            self._program = f"@strict.\n{self._program}"
        self._fixtures = {
            block.name: (file, block)
            for file in files
            for block in file.source.blocks
            if block.kind == "fixture"
        }
        self._read: dict[str, list[Batch]] = {}
        self.coverage = [
            RuleCoverage(file.name, statement.span, statement.rule, statement.items)
            for file in files
            for statement in file.source.parsed.statements
            if isinstance(statement, RuleStatement) and statement.items  # others are declared
        ]

        imports = list(dict.fromkeys(name for file in files for name in file.source.parsed.imports))
        imported = "".join(f"{IMPORT} {print_constant(name)}.\n" for name in imports)
        self._program = imported + self._program
        self._rules = [entry.rule for entry in self.coverage] + [
            statement.rule
            for parsed in imported_sets(imports).values()
            for statement in parsed.statements
            if isinstance(statement, RuleStatement)
        ]

    def with_rule(self, entry: RuleCoverage, text: str) -> TestRun:
        """Return a run of the same tests with a text in place of a rule."""
        return TestRun(self._files, self._now, {(entry.file, entry.span): text})

    def fails(self, changed: Atom, filter_text: str | None = None) -> bool | None:
        """Return True if a test fails whose queries depend on the predicate of an atom; None if the
        rules of all files cannot be stored together.
        """
        rules = self._rules
        name = changed.predicate, changed.arity
        tests = (each for each in self.tests(filter_text) if name in _needed(rules, each[1]))
        with ExitStack() as opened:
            program = self._stored(self._now, opened)
            if isinstance(program, str):
                return None
            results = self._results(tests, {self._now: program}, opened)
            return not all(result.has_passed for result in results)

    def tests(self, filter_text: str | None = None) -> Iterator[tuple[str, TestBlock]]:
        """Yield the tests, those whose name contains `filter_text`, each with its file."""
        for file in self._files:
            for block in file.source.blocks:
                if block.kind == "test" and (filter_text is None or filter_text in block.name):
                    yield file.name, block

    def results(
        self, tests: Iterable[tuple[str, TestBlock]], *, coverage: bool = False
    ) -> Iterator[TestResult]:
        """Run tests, and note the coverage of the rules on request.

        The program is stored, and its rules are compiled, once for all tests of one instant. A test
        adds its facts in a transaction that is rolled back.
        """
        with ExitStack() as opened:
            yield from self._results(tests, {}, opened, coverage=coverage)

    def _results(
        self,
        tests: Iterable[tuple[str, TestBlock]],
        programs: dict[int | None, KnowledgeBase | str],
        opened: ExitStack,
        *,
        coverage: bool = False,
    ) -> Iterator[TestResult]:
        """Run tests; `programs` has the knowledge bases by their instant."""
        for file, block in tests:
            at = self._now if block.at is None else block.at
            if at not in programs:
                programs[at] = self._stored(at, opened)
            yield self._result(programs[at], file, block, coverage)

    def _stored(self, at: int | None, opened: ExitStack) -> KnowledgeBase | str:
        """Return a knowledge base with the program in which it is `at`, or why it is refused."""
        runtime = open_runtime(Config().with_storage(None, None), clock=_Clock(at))
        opened.callback(runtime.close)
        kb = KnowledgeBase(runtime, owns_runtime=False)
        try:
            kb.load(f"{self._program}\n")
        except KBError as problem:
            return problem.message
        return kb

    def _result(
        self, program: KnowledgeBase | str, file: str, block: TestBlock, coverage: bool
    ) -> TestResult:
        begin = time.perf_counter()
        failures: list[TestFailure] = []
        error = None
        try:
            if isinstance(program, str):
                raise InvalidInput(program)
            with suppress(_RollBack), program.transaction() as kb:
                self._add_facts(kb, block)
                for expectation in block.expectations:
                    lines = list(self._problem(kb, expectation))
                    if lines:
                        span = expectation.statement.span
                        failures.append(TestFailure(span.line, span.column, tuple(lines)))
                if coverage:
                    self._cover(kb, block)
                raise _RollBack
        except KBError as problem:
            error = problem.message
        return TestResult(file, block, tuple(failures), time.perf_counter() - begin, error)

    def _add_facts(self, kb: KnowledgeBase, block: TestBlock) -> None:
        """Store the facts of a test and of its fixtures."""
        fixtures = [self._fixtures[name] for name in block.fixtures]
        text = "\n".join([*(each.facts_text for _, each in fixtures), block.facts_text])
        if text.strip():
            kb.load(text + "\n")
        for file, fixture in fixtures:
            if fixture.file is None:
                continue
            if fixture.name not in self._read:
                self._read[fixture.name] = _facts_of(file, fixture.file)
            for batch in self._read[fixture.name]:
                if batch.facts:
                    kb.kb.assert_facts(batch.facts)
                if batch.rows:
                    kb.kb.assert_rows(batch.rows)

    # ---- expectations ----

    def _problem(self, kb: KnowledgeBase, expectation: Expectation) -> Iterator[str]:
        """Yield the explanation of an expectation that is not met."""
        if expectation.answers is not None:
            yield from _answers_problem(kb, expectation, expectation.answers)
            return
        goal = _goal(expectation.body)
        item = expectation.body[0]
        if len(expectation.body) == 1 and isinstance(item, Literal) and item.negated:
            atom = _goal([Literal(item.atom)])
            if kb.ask(atom, limit=1):
                yield f"expected: {goal}"
                yield f"found:    {atom}"
                yield from kb.explain(atom, limit=1).rstrip("\n").split("\n")
        elif not kb.ask(goal, limit=1):
            yield f"expected: {goal}"
            yield "found:    no answer"
            yield from kb.why_not(goal).text.rstrip("\n").split("\n")
        elif expectation.rule is not None and not self._is_concluded_by(kb, expectation):
            yield f"expected: {goal} because @{expectation.rule}"
            yield "found:    another reason"
            yield from kb.explain(goal, limit=1).rstrip("\n").split("\n")

    def _is_concluded_by(self, kb: KnowledgeBase, expectation: Expectation) -> bool:
        """Return True if a rule of the expected name concludes an answer of its atom."""
        item = expectation.body[0]
        if not isinstance(item, Literal):
            raise AssertionError("the check accepts atoms only")
        return any(
            _concludes(kb, entry.rule, item.atom)
            for entry in self.coverage
            if entry.rule.name == expectation.rule
        )

    # ---- coverage ----

    def _cover(self, kb: KnowledgeBase, block: TestBlock) -> None:
        """Note how far the rules get that the queries of a test need."""
        needed = _needed(self._rules, block)
        for entry in self.coverage:
            if entry.derived or (entry.rule.head.predicate, entry.rule.head.arity) not in needed:
                continue
            order = _evaluation_order(entry.rule.body)
            for position, index in enumerate(order):
                entry.reached.add(index)
                prefix = [entry.rule.body[each] for each in order[: position + 1]]
                if not kb.ask(_goal(prefix), limit=1):
                    break
            else:
                entry.derived = True


def _facts_of(file: RuleFile, fixture: FixtureFile) -> list[Batch]:
    """Read the facts of a file of a fixture; raises InvalidInput."""
    if file.folder is None:
        raise InvalidInput(f"{fixture.path}: {file.name} is in no folder, so it has no such file")
    folder = file.folder.resolve()
    path = (folder / fixture.path).resolve()
    if not path.is_relative_to(folder):
        raise InvalidInput(f"{fixture.path} is outside of the folder of {file.name}")
    try:
        batches = list(read_file(path, predicate=fixture.predicate))
    except OSError as error:
        raise InvalidInput(f"{fixture.path}: {error.strerror}") from error
    if any(batch.rules for batch in batches):
        raise InvalidInput(f"{fixture.path}: a fixture has facts only")
    return batches


def _storable(file: RuleFile, replaced: Mapping[tuple[str, TextSpan], str]) -> str:
    """Return the text of a file without its blocks and queries, with some statements replaced."""
    lines = file.source.program.split("\n")
    return "\n".join(
        replaced.get((file.name, statement.span), _stretch(lines, statement.span))
        for statement in file.source.parsed.statements
        if not isinstance(statement, GoalStatement)
    )


def _stretch(lines: Sequence[str], span: TextSpan) -> str:
    """Return the text of a span."""
    if span.line == span.end_line:
        return lines[span.line - 1][span.column - 1 : span.end_column - 1]
    first, *middle = lines[span.line - 1 : span.end_line - 1]
    return "\n".join(
        [first[span.column - 1 :], *middle, lines[span.end_line - 1][: span.end_column - 1]]
    )


def _goal(items: Iterable[BodyItem]) -> str:
    return ", ".join(print_item(item) for item in items)


def _answers_problem(
    kb: KnowledgeBase, expectation: Expectation, expected: tuple[tuple[str, ...], ...]
) -> Iterator[str]:
    names = [variable.name for variable in expectation.variables]
    answers = {
        tuple(str(row[name]) for name in names) for row in kb.ask(_goal(expectation.body)).dicts()
    }
    missing = sorted(set(expected) - answers)
    if not missing and answers == set(expected):
        return
    yield f"expected: {_shown(sorted(set(expected)))}"
    yield f"found:    {_shown(sorted(answers))}"
    if unexpected := sorted(answers - set(expected)):
        yield f"not expected: {_shown(unexpected)}"
    for values in missing[:MAX_LISTED]:
        bindings: dict[Variable, Term] = dict(zip(expectation.variables, values, strict=True))
        goal = _goal(substituted(item, bindings) for item in expectation.body)
        yield from kb.why_not(goal).text.rstrip("\n").split("\n")


def _shown(answers: Sequence[tuple[str, ...]]) -> str:
    texts = [
        print_constant(values[0])
        if len(values) == 1
        else f"({', '.join(print_constant(value) for value in values)})"
        for values in answers[:MAX_LISTED]
    ]
    more = f", and {len(answers) - MAX_LISTED} more" if len(answers) > MAX_LISTED else ""
    return f"[{', '.join(texts)}{more}]"


def _concludes(kb: KnowledgeBase, rule: Rule, goal: Atom) -> bool:
    """Return True if a rule concludes an answer of a goal."""
    if any(isinstance(arg, Aggregate) for arg in rule.head.args):
        text = print_rule(rule, bare=True)
        return any(
            proof.proof["step"]["rule"] == text for proof in kb.prove(print_item(Literal(goal)))
        )
    if extremum_of(rule.head) is None:
        return _holds(kb, rule, goal)
    # The body can hold for other values than the one that is kept.
    rows = kb.ask(print_item(Literal(goal)))
    return any(_holds(kb, rule, Atom(goal.predicate, row, goal.positive)) for row in rows)


def _holds(kb: KnowledgeBase, rule: Rule, goal: Atom) -> bool:
    """Return True if the body of a rule holds where its head is the goal."""
    values = unify(rule.head, goal)
    if values is None:
        return False
    return bool(kb.ask(_goal(substituted(item, values) for item in rule.body), limit=1))


def _needed(rules: Sequence[Rule], block: TestBlock) -> set[tuple[str, int]]:
    """Return the predicates that the queries of a test depend on."""
    bodies: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for rule in rules:
        head = (rule.head.predicate, rule.head.arity)
        bodies.setdefault(head, set()).update(_predicates(rule.body))
    pending = [each for expectation in block.expectations for each in _predicates(expectation.body)]
    needed: set[tuple[str, int]] = set()
    while pending:
        predicate = pending.pop()
        if predicate not in needed:
            needed.add(predicate)
            pending += bodies.get(predicate, ())
    return needed


def _predicates(body: Iterable[BodyItem]) -> Iterator[tuple[str, int]]:
    for item in body:
        if isinstance(item, Literal):
            yield item.atom.predicate, item.atom.arity


def _evaluation_order(body: Sequence[BodyItem]) -> list[int]:
    """Return the indexes of body items, so that each has its variables bound by those before it."""
    order: list[int] = []
    bound: set[str] = set()
    waiting = list(range(len(body)))
    while waiting:
        index = next((each for each in waiting if _is_bound(body[each], bound)), waiting[0])
        waiting.remove(index)
        order.append(index)
        bound.update(variable.name for variable in body[index].variables())
    return order


def _is_bound(item: BodyItem, bound: set[str]) -> bool:
    if isinstance(item, Literal):
        if not item.negated:
            return True
    elif item.op == "=" and not item.negated and _computes(item, bound):
        return True
    return all(variable.anonymous or variable.name in bound for variable in item.variables())


def _computes(item: Comparison, bound: set[str]) -> bool:
    """Return True for `?x = ...` whose other side has values."""
    for alone, other in ((item.left, item.right), (item.right, item.left)):
        if isinstance(alone, Variable):
            variables = Comparison("=", other, "").variables()
            if all(variable.name in bound for variable in variables):
                return True
    return False


def covered(entries: Sequence[RuleCoverage]) -> Mapping[str, tuple[int, int]]:
    """Return the covered and all rules, and the reached and all body items."""
    return {
        "rules": (sum(entry.derived for entry in entries), len(entries)),
        "literals": (
            sum(len(entry.reached) for entry in entries),
            sum(len(entry.rule.body) for entry in entries),
        ),
    }


def share_covered(entries: Sequence[RuleCoverage]) -> float:
    """Return the covered rules and reached body items in percent of all; 100 without rules."""
    counts = covered(entries).values()
    total = sum(all_ for _, all_ in counts)
    return 100 * sum(reached for reached, _ in counts) / total if total else 100.0
