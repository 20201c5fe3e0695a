"""`kbcore test`: run the tests of rule files."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kbcore.language.rule_review import check_programs
from kbplanner.authoring.blocks import read_source
from kbserver.cli.knowledge.check_formats import CheckedFile, as_text
from kbserver.cli.knowledge.rule_test_reports import coverage_lines, failure_lines, junit, summary
from kbserver.cli.knowledge.rule_tests import RuleFile, TestResult, TestRun
from kbserver.cli.shared.exits import Failed, describe_os_error, reports_errors
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.rule_files import NOT_RUN, STDIN, read_text

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
@click.option("--watch", is_flag=True, help="Run the tests again whenever a file changes")
@reports_errors
def test(
    files: tuple[str, ...],
    filter_text: str | None,
    coverage: bool,
    junit_file: str | None,
    watch: bool,
) -> None:
    """Run the tests of rule files.

    Tests are blocks in the files, such as: test "name" { fact(a). ?- p(?x) = [b, c]. } The files
    belong together: each test runs with the facts and rules of all files and with facts of its own,
    in memory. The file - is standard input. Exit status: 0 if all tests pass, 1 if a test fails, 2
    if a file has errors or no test was found.
    """
    if watch and STDIN in files:
        raise Failed("standard input cannot be watched", NOT_RUN)
    if not watch:
        sys.exit(_run(files, filter_text, coverage, junit_file))
    for _ in changes(files):
        try:
            _run(files, filter_text, coverage, junit_file)
        except Failed as error:
            click.echo(f"kbcore: {error}", err=True)


def changes(files: Sequence[str]) -> Iterator[None]:
    """Yield once, and again after each change of a file."""
    seen: list[tuple[int, int] | None] = []
    while True:
        stamps = [_stamp(file) for file in files]
        if stamps != seen:
            seen = stamps
            yield
        else:
            time.sleep(WATCH_SECONDS)


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _run(
    files: Sequence[str], filter_text: str | None, coverage: bool, junit_file: str | None
) -> int:
    texts = [read_text(file) for file in files]
    names = ["<stdin>" if file == STDIN else file for file in files]
    checked = [
        CheckedFile(name, text.split("\n"), [each for each in findings if each.severity == "error"])
        for name, text, findings in zip(names, texts, check_programs(texts), strict=True)
    ]
    if any(each.findings for each in checked):
        for line in as_text(checked):
            click.echo(line, err=True)
        return BROKEN
    run = TestRun(
        [RuleFile(name, text, read_source(text)) for name, text in zip(names, texts, strict=True)]
    )
    results: list[TestResult] = []
    for result in run.results(run.tests(filter_text), coverage=coverage):
        results.append(result)
        if not result.has_passed:
            for line in failure_lines(result):
                click.echo(line)
    if not results:
        matching = "" if filter_text is None else f" whose name contains {filter_text!r}"
        raise Failed(f"no test{matching}", BROKEN)
    if coverage:
        for line in coverage_lines(run.coverage):
            click.echo(line)
    click.echo(summary(results))
    if junit_file is not None:
        try:
            Path(junit_file).write_text(junit(results), encoding="utf-8")
        except OSError as error:
            raise Failed(describe_os_error(error), NOT_RUN) from error
    return PASSED if all(result.has_passed for result in results) else FAILED
