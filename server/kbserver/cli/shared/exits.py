"""Failures of commands: their text on standard error and their exit statuses.

Imports neither an HTTP client nor the storage.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from kbcore.errors import (
    ConfigError,
    Forbidden,
    KBError,
    LoadError,
    LogCorrupted,
    NotReady,
    ReadOnlyFollower,
    RuleSyntaxError,
    StorageBusy,
    StorageFailed,
    Unauthorized,
)
from kbplanner.check.codes import code_of
from kbplanner.syntax.diagnostics import counted, padding, printable, printable_lines, width

EXIT_CODES: dict[type[KBError], int] = {
    LogCorrupted: 65,
    NotReady: 69,
    StorageFailed: 74,
    StorageBusy: 75,
    Unauthorized: 77,
    Forbidden: 77,
    ReadOnlyFollower: 77,
    ConfigError: 78,
}
"""Exit statuses in the terms of sysexits: data error, service unavailable, input/output error,
temporary failure, permission denied, configuration error. Other errors exit with 1.
"""

UNAVAILABLE = EXIT_CODES[NotReady]
"""Exit status if no server answers."""

STATUS_OF_CODE = {
    kind.code: EXIT_CODES[kind] for kind in (NotReady, Unauthorized, Forbidden, ReadOnlyFollower)
}
"""Exit status for an error code that only one kind of error has; for the answers of servers."""

EXIT_STATUSES: dict[int, str] = {
    0: "success",
    1: "no answer, a refused request, a question answered with no, or another error",
    2: "wrong use of the command: an unknown option, a missing argument",
    65: "damaged data: `fsck`, `storage check`, or a storage that cannot be opened",
    UNAVAILABLE: "no answer from the server, or the server is not ready",
    71: "`serve`: cannot listen on the address",
    74: "the storage failed: an input/output error",
    75: "the storage is in use by another process",
    77: "not permitted: a missing or wrong API key, a role that does not suffice, or a write to a "
    "follower",
    78: "a setting that is not valid",
}
"""Every exit status of the commands, for the documentation."""

SHOWN_BEFORE_COLUMN = 80
"""Characters of a very long source line that an error shows before its column."""

Problem = Mapping[str, Any]
"""One syntax error, as in `details.errors` of an error answer."""


class Failed(Exception):
    """Failure of a command: a message for the user, and an exit status.

    `problems` are syntax errors, which are shown in place of the message; they are in the text that
    `source` names, and `suffix` is added to their count. `code` is the error code of the server, if
    it answered with one.
    """

    def __init__(
        self,
        message: str,
        status: int = 1,
        *,
        code: str | None = None,
        problems: Sequence[Problem] = (),
        source: str = "input",
        suffix: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.problems = problems
        self.source = source
        self.suffix = suffix

    def in_file(self, file: str, suffix: str) -> Failed:
        """Return the failure of a file: its message names the file, and ends in a suffix."""
        return Failed(
            f"{file}: {self}{suffix}",
            self.status,
            code=self.code,
            problems=self.problems,
            source=file,
            suffix=suffix,
        )


def fail(message: str, status: int = 1) -> NoReturn:
    """Print a message on standard error and exit."""
    click.echo(f"kbcore: {printable_lines(message)}", err=True)
    sys.exit(status)


def exit_status(error: Exception) -> int:
    """Return the exit status for an error."""
    if isinstance(error, Failed):
        return error.status
    return next((status for kind, status in EXIT_CODES.items() if isinstance(error, kind)), 1)


def as_failure(error: Failed | KBError) -> Failed:
    """Return an error of the core as a failure of a command."""
    if isinstance(error, Failed):
        return error
    problems: Sequence[Problem] = ()
    if isinstance(error, RuleSyntaxError):
        problems = error.errors
    elif isinstance(error, LoadError):
        problems = [{"line": error.line, "code": "invalid", "message": error.problem}]
    return Failed(error.message, exit_status(error), code=error.code, problems=problems)


@contextmanager
def errors_in(
    source: str, suffix: str = "", *, before: str = "", added: str = ""
) -> Iterator[None]:
    """Name the text that syntax errors are in; `suffix` follows their count.

    The text that was sent lacks its beginning `before`, and begins with `added` instead, which the
    user did not type. Errors are shown at their place in what the user typed.
    """
    try:
        yield
    except ReadOnlyFollower:
        raise
    except (Failed, KBError) as error:
        failure = as_failure(error)
        raise Failed(
            str(failure),
            failure.status,
            code=failure.code,
            problems=[_as_typed(problem, before, added) for problem in failure.problems],
            source=source,
            suffix=suffix,
        ) from error


def _as_typed(problem: Problem, before: str, added: str) -> Problem:
    """Return a syntax error with its place in what the user typed."""
    if problem["line"] != 1 or not (before or added):
        return {**problem, "line": problem["line"] + before.count("\n")}
    typed_line = before.rpartition("\n")[2]
    shift = len(typed_line) - len(added)
    moved = {key: problem[key] + shift for key in ("column", "endColumn") if problem.get(key)}
    text = (problem.get("source") or "")[len(added) :]
    line = problem["line"] + before.count("\n")
    return {**problem, **moved, "line": line, "source": typed_line + text}


def report(error: Failed | KBError) -> NoReturn:
    """Print a failure and exit."""
    sys.exit(print_failure(error))


def print_failure(error: Failed | KBError | OSError) -> int:
    """Print a failure on standard error, and return the exit status for it."""
    if isinstance(error, OSError):
        error = Failed(describe_os_error(error))
    failure = as_failure(error)
    if not failure.problems:
        click.echo(f"kbcore: {printable_lines(str(failure))}", err=True)
        return failure.status
    for problem in failure.problems:
        click.echo(problem_text(problem, failure.source), err=True)
    count = len(failure.problems)
    click.echo(f"kbcore: {counted(count, 'error')}{failure.suffix}", err=True)
    return failure.status


def problem_text(problem: Problem, source: str) -> str:
    """Return a syntax error as compilers print it, with its line and a mark below the place."""
    column = problem.get("column")
    location = f"{printable(source)}:{problem['line']}:" + (f"{column}:" if column else "")
    severity = problem.get("severity", "error")
    color = "yellow" if severity == "warning" else "red"
    code = code_of(problem["code"])
    kind = click.style(
        f"{severity}[{code.code if code else problem['code']}]:", fg=color, bold=True
    )
    lines = [f"{click.style(location, bold=True)} {kind} {printable(problem['message'])}"]
    if column and (text := problem.get("source")):
        gutter = f"{problem['line']:>5} | "
        begin = column - 1
        if text.startswith("…") and begin > SHOWN_BEFORE_COLUMN:
            begin = SHOWN_BEFORE_COLUMN + 1
        end = begin + max(1, (problem.get("endColumn") or 0) - column)
        marks = click.style("^" * max(1, width(text[begin:end])), fg=color, bold=True)
        lines.append(gutter + printable(text))
        lines.append(" " * (len(gutter) - 2) + "| " + padding(text[:begin]) + marks)
    if hint := problem.get("hint"):
        lines.append(f"        {click.style('hint:', bold=True)} {printable(hint)}")
    return "\n".join(lines)


def reports_errors(function: Callable[..., None]) -> Callable[..., None]:
    """Print the errors of a command as one line, and exit with a status of EXIT_STATUSES."""

    @functools.wraps(function)
    def command(**options: Any) -> None:
        try:
            function(**options)
        except OSError as error:
            fail(describe_os_error(error))
        except (Failed, KBError) as error:
            report(error)

    return command


def describe_os_error(error: OSError) -> str:
    """Return a system error as text: the file, if known, and the reason."""
    reason = error.strerror or "input/output error"
    reason = reason[0].lower() + reason[1:]
    return f"{error.filename}: {reason}" if error.filename else reason
