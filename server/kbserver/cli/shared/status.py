"""With which status commands on storage end when they cannot do what they were asked, and the one line they say then."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from kbcore.errors import KBError
from kbserver.cli.shared.exits import EXIT_CODES
from kbserver.cli.shared.target import Failed


def ends_with_status(function: Callable[..., None]) -> Callable[..., None]:
    """Turn errors into a line and an exit status: one of EXIT_CODES, or 1."""

    @functools.wraps(function)
    def command(**given: Any) -> None:
        try:
            function(**given)
        except (Failed, KBError, OSError) as error:
            click.echo(f"kbcore: {error}", err=True)
            sys.exit(
                next((status for kind, status in EXIT_CODES.items() if isinstance(error, kind)), 1)
            )

    return command
