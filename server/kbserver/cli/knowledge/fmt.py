"""`kbcore fmt`: put files of facts, rules and queries into the canonical layout."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from pathlib import Path

import click

from kbcore.errors import RuleSyntaxError
from kbplanner.authoring.formatter import format_text
from kbserver.cli.shared.exits import Failed, describe_os_error, problem_text, reports_errors
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.rule_files import STDIN, read_text

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
@reports_errors
def fmt(files: tuple[str, ...], check: bool, diff: bool) -> None:
    """Format files of facts, rules and queries.

    Rewrites each file in the canonical layout, in place; the file - is standard input, written to
    standard output. Only white space changes, and comments are kept. A file with syntax errors
    stays as it is. Exit status: 0 if all files are formatted, 1 with --check if a file would
    change, 2 if a file cannot be formatted.
    """
    failed = changed = False
    for file in files:
        try:
            text = read_text(file)
            formatted = format_text(text)
        except Failed as error:
            click.echo(f"kbcore: {error}", err=True)
            failed = True
            continue
        except RuleSyntaxError as error:
            for problem in error.errors:
                click.echo(problem_text(problem, _name(file)), err=True)
            failed = True
            continue
        changed = changed or formatted != text
        if not (check or diff):
            failed = not _write(file, text, formatted) or failed
        elif formatted != text:
            if check:
                click.echo(f"would reformat {_name(file)}", err=diff)
            if diff:
                click.echo(_diff(_name(file), text, formatted), nl=False)
    if failed:
        sys.exit(NOT_FORMATTED)
    if check and changed:
        sys.exit(WOULD_CHANGE)


def _name(file: str) -> str:
    return "<stdin>" if file == STDIN else file


def _write(file: str, text: str, formatted: str) -> bool:
    """Write the result; return False, with a message, if a file cannot be written."""
    if file == STDIN:
        click.echo(formatted, nl=False)
    elif formatted != text:
        try:
            _replace(Path(os.path.realpath(file)), formatted)
        except OSError as error:
            click.echo(f"kbcore: {file}: {describe_os_error(error)}", err=True)
            return False
        click.echo(f"reformatted {file}", err=True)
    return True


def _replace(path: Path, text: str) -> None:
    """Replace the content of a file, so that a crash leaves either the old or the new content."""
    mode = path.stat().st_mode
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
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
