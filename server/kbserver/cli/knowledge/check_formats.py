"""Output of `kbcore check`: text, JSON, SARIF 2.1.0 and workflow commands of GitHub Actions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click

from kbcore import __version__
from kbplanner.check.codes import BY_CODE, CODES
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.exits import problem_text
from kbtypes.results import Finding

TEXT = "text"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file, its lines, and the findings to report."""

    name: str
    lines: Sequence[str]
    findings: Sequence[Finding]


def as_text(files: Sequence[CheckedFile]) -> Iterator[str]:
    """Yield a line for each finding, on a terminal with the source, and a closing count."""
    on_terminal = sys.stdout.isatty()
    counts = {"error": 0, "warning": 0}
    for file in files:
        for finding in file.findings:
            counts[finding.severity] += 1
            problem = finding.as_json()
            if on_terminal:
                problem["source"] = file.lines[finding.line - 1].rstrip("\r")
            elif finding.hint:
                problem["hint"] = None
                problem["message"] = f"{finding.message} ({finding.hint})"
            yield problem_text(problem, file.name)
    if sum(counts.values()):
        parts = [counted(count, kind) for kind, count in counts.items() if count]
        where = f" in {counted(len(files), 'file')}"
        yield click.style(", ".join(parts) + where, bold=True)


def as_json(files: Sequence[CheckedFile]) -> Iterator[str]:
    """Yield a JSON array of objects, one for each finding."""
    yield json.dumps(findings_json(files), ensure_ascii=False, indent=2)


def findings_json(files: Sequence[CheckedFile]) -> list[dict[str, Any]]:
    """Return an object for each finding."""
    keys = ("line", "column", "endColumn", "severity", "code", "message", "hint")
    rows = []
    for file in files:
        for finding in file.findings:
            members = finding.as_json()
            rows.append({"file": file.name, **{key: members[key] for key in keys}})
    return rows


def as_sarif(files: Sequence[CheckedFile]) -> Iterator[str]:
    """Yield a SARIF log with one run."""
    rules = [
        {
            "id": code.code,
            "name": code.name,
            "shortDescription": {"text": code.title},
            "fullDescription": {"text": code.explanation},
            "defaultConfiguration": {"level": code.severity},
        }
        for code in CODES
    ]
    driver = {"name": "kbcore", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(file.name, each) for file in files for each in file.findings],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    yield json.dumps(log, ensure_ascii=False, indent=2)


def _result(file: str, finding: Finding) -> dict[str, Any]:
    hint = f" ({finding.hint})" if finding.hint else ""
    region = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line,
        "endColumn": finding.end_column,
    }
    location = {"artifactLocation": {"uri": quote(file)}, "region": region}
    return {
        "ruleId": finding.code,
        "ruleIndex": CODES.index(BY_CODE[finding.code]),
        "level": finding.severity,
        "message": {"text": finding.message + hint},
        "locations": [{"physicalLocation": location}],
    }


def as_github(files: Sequence[CheckedFile]) -> Iterator[str]:
    """Yield a workflow command for each finding, which annotates a pull request."""
    for file in files:
        for finding in file.findings:
            hint = f" ({finding.hint})" if finding.hint else ""
            title = f"{finding.code} {BY_CODE[finding.code].title}"
            yield (
                f"::{finding.severity} file={_property(file.name)},line={finding.line},"
                f"col={finding.column},endColumn={finding.end_column},"
                f"title={_property(title)}::{_data(finding.message + hint)}"
            )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


FORMATS: dict[str, Callable[[Sequence[CheckedFile]], Iterator[str]]] = {
    TEXT: as_text,
    "json": as_json,
    "sarif": as_sarif,
    "github": as_github,
}
