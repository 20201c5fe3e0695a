"""Output of `kbcore test`: lines of text, JSON and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as ET  # nosec B405: writes, never parses

import click

from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.printer import print_item
from kbplanner.syntax.statements import TextSpan
from kbserver.cli.knowledge.rule_mutants import Mutant
from kbserver.cli.knowledge.rule_tests import (
    RuleCoverage,
    TestResult,
    covered,
    share_covered,
)


def failure_lines(result: TestResult) -> Iterator[str]:
    """Yield the lines about a test that has not passed."""
    failed = click.style("FAILED", fg="red", bold=True)
    where = f"{result.file}:{result.block.span.line}"
    yield f"{failed} {where}: {result.block.name}"
    if result.error is not None:
        yield from (f"    {line}" for line in result.error.split("\n"))
    for failure in result.failures:
        yield f"  {result.file}:{failure.line}:{failure.column}:"
        yield from (f"    {line}" for line in failure.lines)


def summary(results: Sequence[TestResult]) -> str:
    """Return the closing count."""
    failed = sum(not result.has_passed for result in results)
    seconds = sum(result.seconds for result in results)
    text = f"{len(results) - failed} passed"
    if failed:
        text = f"{failed} failed, {text}"
    color = "red" if failed else "green"
    return click.style(f"{text} in {seconds:.2f} s", fg=color, bold=True)


def coverage_lines(entries: Sequence[RuleCoverage]) -> Iterator[str]:
    """Yield what the tests did not cover, and the counts."""
    for entry, span, what in _uncovered(entries):
        yield f"{entry.file}:{span.line}:{span.column}: {what}"
    counts = covered(entries)
    rules, items = counts["rules"], counts["literals"]
    yield (
        f"coverage: {rules[0]} of {counted(rules[1], 'rule')}, "
        f"{items[0]} of {counted(items[1], 'body literal')}"
    )


def _uncovered(entries: Sequence[RuleCoverage]) -> Iterator[tuple[RuleCoverage, TextSpan, str]]:
    """Yield each rule that the tests did not cover, the place and what is missing there."""
    for entry in entries:
        if entry.derived:
            continue
        name = f"@{entry.rule.name}" if entry.rule.name else entry.rule.head.predicate
        yield entry, entry.span, f"{name} derived no fact"
        for index, (item, span) in enumerate(zip(entry.rule.body, entry.items, strict=True)):
            if index not in entry.reached:
                yield entry, span, f"no row reached {print_item(item)}"


def tests_json(results: Sequence[TestResult]) -> dict[str, Any]:
    """Return the results as JSON: the counts, and each test with what it did not meet."""
    passed = sum(result.has_passed for result in results)
    return {
        "passed": passed,
        "failed": len(results) - passed,
        "tests": [
            {
                "file": result.file,
                "line": result.block.span.line,
                "name": result.block.name,
                "passed": result.has_passed,
                "seconds": round(result.seconds, 6),
                "error": result.error,
                "failures": [
                    {
                        "line": failure.line,
                        "column": failure.column,
                        "message": "\n".join(failure.lines),
                    }
                    for failure in result.failures
                ],
            }
            for result in results
        ],
    }


def coverage_json(entries: Sequence[RuleCoverage]) -> dict[str, Any]:
    """Return the coverage as JSON: the share in percent, the counts, and what is not covered."""
    counts = {
        name: {"covered": reached, "total": total}
        for name, (reached, total) in covered(entries).items()
    }
    uncovered = [
        {"file": entry.file, "line": span.line, "column": span.column, "message": what}
        for entry, span, what in _uncovered(entries)
    ]
    return {"percent": round(share_covered(entries), 1), **counts, "uncovered": uncovered}


def mutants_json(count: int, survivors: Sequence[Mutant]) -> dict[str, Any]:
    """Return the changes of rules as JSON: their number, and those that no test has noticed."""
    listed = [
        {
            "file": mutant.file,
            "line": mutant.span.line,
            "column": mutant.span.column,
            "change": mutant.change,
        }
        for mutant in survivors
    ]
    return {"count": count, "noticed": count - len(survivors), "survivors": listed}


def mutant_line(mutant: Mutant) -> str:
    """Return the line about a change that no test has noticed."""
    return f"{mutant.file}:{mutant.span.line}:{mutant.span.column}: no test fails {mutant.change}"


def junit(results: Sequence[TestResult]) -> str:
    """Return the results as JUnit XML, with a suite for each file."""
    root = ET.Element("testsuites")
    for file in dict.fromkeys(result.file for result in results):
        own = [result for result in results if result.file == file]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=file,
            tests=str(len(own)),
            failures=str(sum(bool(result.failures) and not result.error for result in own)),
            errors=str(sum(result.error is not None for result in own)),
            time=f"{sum(result.seconds for result in own):.3f}",
        )
        for result in own:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=file,
                name=result.block.name,
                file=file,
                line=str(result.block.span.line),
                time=f"{result.seconds:.3f}",
            )
            if result.error is not None:
                ET.SubElement(case, "error", message=_printable(result.error.split("\n")[0]))
                continue
            for failure in result.failures:
                location = f"{file}:{failure.line}:{failure.column}"
                element = ET.SubElement(
                    case, "failure", message=_printable(f"{location}: {failure.lines[0]}")
                )
                element.text = _printable("\n".join(failure.lines))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Replace the control characters that XML cannot hold."""
    return "".join(char if char >= " " or char in "\t\n" else "\ufffd" for char in text)
