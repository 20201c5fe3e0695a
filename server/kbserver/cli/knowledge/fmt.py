"""`kbcore fmt`: put files of facts, rules and queries into the canonical layout."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kbcore.errors import RuleSyntaxError
from kbcore.system_calls import sync_file
from kbplanner.authoring.formatter import format_text
from kbplanner.check.codes import code_of
from kbserver.cli.shared.exits import (
    Failed,
    Problem,
    describe_os_error,
    problem_text,
    reports_errors,
)
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import print_json
from kbserver.cli.shared.rule_files import STDIN, STDIN_NAME, read_text

WOULD_CHANGE = 1
NOT_FORMATTED = 2
"""Exit statuses: with --check, a file is not in the canonical layout; a file cannot be
formatted.
"""


@command("fmt", "kbcore fmt rules.kb", "kbcore fmt --check --diff *.kb")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--check", is_flag=True, help="Write nothing; name the files that would change, and exit with 1"
)
@click.option("--diff", is_flag=True, help="Write nothing; print what would change")
@click.option("--json", "as_json", is_flag=True, help="Print the result of each file as JSON")
@reports_errors
def fmt(files: tuple[str, ...], check: bool, diff: bool, as_json: bool) -> None:
    """Format files of facts, rules and queries.

    Rewrites each file in the canonical layout, in place; the file - is standard input, written to
    standard output. Only white space changes, and comments are kept. A file with syntax errors
    stays as it is. Exit status: 0 if all files are formatted, 1 with --check if a file would
    change, 2 if a file cannot be formatted.
    """
    writes = not (check or diff)
    if as_json and writes and STDIN in files:
        raise Failed("--json takes the place of the text of -; use it with --check", NOT_FORMATTED)
    outcomes: list[_FormattedFile] = []
    for file in files:
        outcome = _formatted(file, writes, diff)
        outcomes.append(outcome)
        if not as_json:
            _show(outcome, check, diff)
    if as_json:
        print_json([outcome.as_json() for outcome in outcomes])
    results = {outcome.result for outcome in outcomes}
    if FAILED in results:
        sys.exit(NOT_FORMATTED)
    if check and WOULD_REFORMAT in results:
        sys.exit(WOULD_CHANGE)


UNCHANGED, REFORMATTED, WOULD_REFORMAT, FAILED = (
    "unchanged",
    "reformatted",
    "would reformat",
    "failed",
)
"""Results of a file."""


_MEMBERS = ("line", "column", "endColumn", "code", "message", "hint")


@dataclass(frozen=True, slots=True)
class _FormattedFile:
    """The result of a file. `error` is set if it cannot be read or written, `problems` if it has
    syntax errors. `text` is the result for standard output.
    """

    name: str
    result: str
    problems: Sequence[Problem] = ()
    error: str | None = None
    diff: str | None = None
    text: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the members of the outcome; `errors` only for a file that has failed."""
        errors: list[dict[str, Any]] = []
        for problem in self.problems:
            code = code_of(problem["code"])
            members = {key: problem.get(key) for key in _MEMBERS}
            errors.append({**members, "code": problem["code"] if code is None else code.code})
        if self.error is not None:
            errors.append({"message": self.error})
        return {
            "file": self.name,
            "result": self.result,
            **({"errors": errors} if errors else {}),
            **({"diff": self.diff} if self.diff is not None else {}),
        }


def _formatted(file: str, writes: bool, with_diff: bool) -> _FormattedFile:
    """Format a file, and write it if that was asked for."""
    name = STDIN_NAME if file == STDIN else file
    try:
        text = read_text(file)
        formatted = format_text(text)
        if writes and file != STDIN and formatted != text:
            _replace(Path(os.path.realpath(file)), formatted)
    except Failed as error:
        return _FormattedFile(name, FAILED, error=str(error))
    except RuleSyntaxError as error:
        return _FormattedFile(name, FAILED, error.errors)
    except OSError as error:
        return _FormattedFile(name, FAILED, error=f"{file}: {describe_os_error(error)}")
    if file == STDIN and writes:
        return _FormattedFile(name, UNCHANGED, text=formatted)
    if formatted == text:
        return _FormattedFile(name, UNCHANGED)
    if writes:
        return _FormattedFile(name, REFORMATTED)
    return _FormattedFile(
        name, WOULD_REFORMAT, diff=_diff(name, text, formatted) if with_diff else None
    )


def _show(outcome: _FormattedFile, check: bool, diff: bool) -> None:
    """Print the result of a file."""
    for problem in outcome.problems:
        click.echo(problem_text(problem, outcome.name), err=True)
    if outcome.error is not None:
        click.echo(f"kbcore: {outcome.error}", err=True)
    if outcome.text is not None:
        click.echo(outcome.text, nl=False)
    if outcome.result == REFORMATTED:
        click.echo(f"reformatted {outcome.name}", err=True)
    if outcome.result == WOULD_REFORMAT and check:
        click.echo(f"would reformat {outcome.name}", err=diff)
    if outcome.diff is not None:
        click.echo(outcome.diff, nl=False)


def _replace(path: Path, text: str) -> None:
    """Replace the content of a file, so that a crash leaves either the old or the new content."""
    mode = path.stat().st_mode
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            sync_file(file.fileno())
        Path(temporary).chmod(mode & 0o7777)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _diff(name: str, text: str, formatted: str) -> str:
    lines = difflib.unified_diff(
        text.splitlines(keepends=True),
        formatted.splitlines(keepends=True),
        name,
        f"{name} formatted",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
