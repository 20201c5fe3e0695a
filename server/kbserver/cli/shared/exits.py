"""Failures of commands and their exit statuses; imports neither an HTTP client nor the storage."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from kbcore.errors import (
    ConfigError,
    KBError,
    LogCorrupted,
    NotReady,
    ReadOnlyFollower,
    StorageBusy,
    StorageFailed,
)

EXIT_CODES: dict[type[KBError], int] = {
    LogCorrupted: 65,
    NotReady: 69,
    StorageFailed: 74,
    StorageBusy: 75,
    ReadOnlyFollower: 77,
    ConfigError: 78,
}
"""Exit statuses in the terms of sysexits: data error, service unavailable, input/output error,
temporary failure, permission denied, configuration error. Other errors exit with 1.
"""


class Failed(Exception):
    """Failure of a command; the message is for the user."""


def fail(message: str, status: int = 1) -> NoReturn:
    """Print a message on standard error and exit."""
    click.echo(f"kbcore: {message}", err=True)
    sys.exit(status)


def exit_status(error: Exception) -> int:
    """Return the exit status for an error."""
    return next((status for kind, status in EXIT_CODES.items() if isinstance(error, kind)), 1)


def reports_errors(function: Callable[..., None]) -> Callable[..., None]:
    """Print the errors of a command as one line, and exit with a status of EXIT_CODES."""

    @functools.wraps(function)
    def command(**options: Any) -> None:
        try:
            function(**options)
        except OSError as error:
            fail(describe_os_error(error))
        except (Failed, KBError) as error:
            fail(str(error), exit_status(error))

    return command


def describe_os_error(error: OSError) -> str:
    """Return a system error as text: the file, if known, and the reason."""
    reason = error.strerror or "input/output error"
    reason = reason[0].lower() + reason[1:]
    return f"{error.filename}: {reason}" if error.filename else reason
