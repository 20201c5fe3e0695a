"""Output of `kbcore test`: lines of text and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET  # nosec B405: writes, never parses

import click

from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.printer import print_item
from kbserver.cli.knowledge.rule_tests import RuleCoverage, TestResult, covered


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
    for entry in entries:
        if entry.derived:
            continue
        name = f"@{entry.rule.name}" if entry.rule.name else entry.rule.head.predicate
        yield f"{entry.file}:{entry.span.line}:{entry.span.column}: {name} derived no fact"
        for index, (item, span) in enumerate(zip(entry.rule.body, entry.items, strict=True)):
            if index not in entry.reached:
                text = print_item(item)
                yield f"{entry.file}:{span.line}:{span.column}: no row reached {text}"
    counts = covered(entries)
    rules, items = counts["rules"], counts["literals"]
    yield (
        f"coverage: {rules[0]} of {counted(rules[1], 'rule')}, "
        f"{items[0]} of {counted(items[1], 'body literal')}"
    )


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
