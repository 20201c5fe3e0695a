"""`kbcore test`: run the tests of rule files."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import click

from kbcore.language.rule_review import check_programs
from kbplanner.authoring.blocks import read_source
from kbplanner.check.texts import ReadText
from kbplanner.ir.values.instants import instant, milliseconds
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.knowledge.check_formats import CheckedFile, as_text, findings_json
from kbserver.cli.knowledge.rule_mutants import mutation_results
from kbserver.cli.knowledge.rule_test_reports import (
    coverage_json,
    coverage_lines,
    failure_lines,
    junit,
    mutant_line,
    mutants_json,
    summary,
    tests_json,
)
from kbserver.cli.knowledge.rule_tests import TestResult, TestRun, run_of, share_covered
from kbserver.cli.shared.exits import Failed, describe_os_error, reports_errors
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import print_json
from kbserver.cli.shared.rule_files import NOT_RUN, STDIN, STDIN_NAME, read_text

PASSED, FAILED, BROKEN = 0, 1, 2
"""Exit statuses: all tests have passed, a test has failed, a file has errors or there is no
test.
"""

WATCH_SECONDS = 0.5
"""Time between two looks at the files with --watch."""


@command("test", "kbcore test rules.kb rules_test.kb", "kbcore test --coverage rules.kb")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--filter", "filter_text", metavar="TEXT", help="Run tests whose name contains TEXT")
@click.option(
    "--coverage", is_flag=True, help="Report rules and body literals that no test has used"
)
@click.option(
    "--junit", "junit_file", metavar="FILE", help="Write the results to FILE as JUnit XML"
)
@click.option(
    "--min-coverage",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Fail if the tests reach fewer rules and body literals; implies --coverage",
)
@click.option(
    "--mutate", is_flag=True, help="Change the rules one by one, and report what no test notices"
)
@click.option(
    "--now",
    "now_text",
    metavar="INSTANT",
    help="The present of tests that name none with at, such as 2026-03-01",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON")
@click.option(
    "--watch",
    is_flag=True,
    help="Run the tests again whenever a file changes, or one that a fixture reads",
)
@reports_errors
def test(files: tuple[str, ...], now_text: str | None, watch: bool, **options: Any) -> None:
    """Run the tests of rule files.

    Tests are blocks in the files, such as: test "name" { fact(a). ?- p(?x) = [b, c]. } The files
    belong together: each test runs with the facts and rules of all files and with facts of its own,
    in memory. The file - is standard input. Exit status: 0 if all tests pass; 1 if a test fails,
    the coverage is below --min-coverage, or no test notices a change of --mutate; 2 if a file has
    errors or no test was found.
    """
    if watch and STDIN in files:
        raise Failed("standard input cannot be watched", NOT_RUN)
    chosen = _Options(now=_instant(now_text), **options)
    if not watch:
        sys.exit(_run(files, chosen))
    for _ in changes(files):
        try:
            _run(files, chosen)
        except Failed as error:
            click.echo(f"kbcore: {error}", err=True)


def changes(files: Sequence[str]) -> Iterator[None]:
    """Yield once, and again after each change of a file, or of a file that a fixture reads."""
    seen: list[tuple[int, int] | None] = []
    while True:
        stamps = [_stamp(file) for file in [*files, *_fixture_files(files)]]
        if stamps != seen:
            seen = stamps
            yield
        else:
            time.sleep(WATCH_SECONDS)


def _fixture_files(files: Sequence[str]) -> list[str]:
    """Return the files that fixtures read; none for a file that cannot be read."""
    paths: list[str] = []
    for file in files:
        try:
            text = Path(file).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        paths += (
            str(Path(file).parent / block.file.path)
            for block in _source(text).blocks
            if block.file is not None
        )
    return paths


_source = lru_cache(maxsize=256)(read_source)


def _folder_of(name: str) -> Path | None:
    return None if name == STDIN_NAME else Path(name).parent


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of one run; `now` in epoch milliseconds."""

    filter_text: str | None
    coverage: bool
    junit_file: str | None
    min_coverage: float | None
    mutate: bool
    now: int | None
    as_json: bool


def _instant(text: str | None) -> int | None:
    if text is None:
        return None
    named = instant(text)
    if named is None:
        raise Failed(f"--now: {text!r} is no date and no instant, such as 2026-03-01", NOT_RUN)
    return milliseconds(named)


def _run(files: Sequence[str], options: _Options) -> int:
    """Run the tests of files, print the results, and return the exit status."""
    texts = [ReadText.of(read_text(file)) for file in files]
    names = [STDIN_NAME if file == STDIN else file for file in files]
    checked = [
        CheckedFile(
            name, read.text.split("\n"), [each for each in findings if each.severity == "error"]
        )
        for name, read, findings in zip(names, texts, check_programs(texts), strict=True)
    ]
    if any(each.findings for each in checked):
        if options.as_json:
            print_json({**tests_json([]), "errors": findings_json(checked)})
        for line in as_text(checked):
            click.echo(line, err=True)
        return BROKEN
    run = run_of(zip(names, texts, strict=True), options.now, _folder_of)
    if not options.as_json:
        return _tested(run, options, {}, click.echo)
    report: dict[str, Any] = {}
    try:
        return _tested(run, options, report, lambda line: None)
    finally:
        if report:
            print_json(report)


def _tested(
    run: TestRun, options: _Options, report: dict[str, Any], echo: Callable[[str], None]
) -> int:
    """Run tests, print lines about them and add to the report; return the exit status."""
    covers = options.coverage or options.min_coverage is not None
    results: list[TestResult] = []
    for result in run.results(run.tests(options.filter_text), coverage=covers):
        results.append(result)
        if not result.has_passed:
            for line in failure_lines(result):
                echo(line)
    report.update(tests_json(results))
    if not results:
        matching = (
            "" if options.filter_text is None else f" whose name contains {options.filter_text!r}"
        )
        raise Failed(f"no test{matching}", BROKEN)
    if covers:
        report["coverage"] = coverage_json(run.coverage)
        for line in coverage_lines(run.coverage):
            echo(line)
    echo(summary(results))
    if options.junit_file is not None:
        try:
            Path(options.junit_file).write_text(junit(results), encoding="utf-8")
        except OSError as error:
            raise Failed(describe_os_error(error), NOT_RUN) from error
    if not all(result.has_passed for result in results):
        return FAILED
    status = PASSED
    if options.min_coverage is not None and share_covered(run.coverage) < options.min_coverage:
        share = share_covered(run.coverage)
        click.echo(f"the coverage of {share:.1f} % is below {options.min_coverage:g} %", err=True)
        status = FAILED
    if options.mutate:
        survivors, count = [], 0
        for mutant, is_noticed in mutation_results(run, options.filter_text):
            count += 1
            if not is_noticed:
                survivors.append(mutant)
                echo(mutant_line(mutant))
        report["mutants"] = mutants_json(count, survivors)
        echo(f"mutation: {count - len(survivors)} of {counted(count, 'change')} noticed")
        status = FAILED if survivors else status
    return status
