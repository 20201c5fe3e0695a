"""`kbcore serve`: run the server in the foreground until it is told to stop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from kbcore.config.settings import SETTINGS, Config
from kbcore.errors import KBError
from kbserver.cli.shared.exits import EXIT_CODES

CANNOT_LISTEN = 71

Command = Callable[..., Any]

_HELP = {setting.name: setting.help for setting in SETTINGS}


_OPTIONS = (
    click.option("--host", "HOST", metavar="ADDRESS", help=_HELP["HOST"]),
    click.option("--port", "PORT", metavar="NUMBER", help=_HELP["PORT"]),
    click.option("--storage-dir", "STORAGE_DIR", metavar="FOLDER", help=_HELP["STORAGE_DIR"]),
    click.option(
        "--fsync-policy",
        "FSYNC_POLICY",
        metavar="POLICY",
        help=_HELP["FSYNC_POLICY"] + ": always, interval, never",
    ),
    click.option(
        "--storage-backend", "STORAGE_BACKEND", metavar="NAME", help=_HELP["STORAGE_BACKEND"]
    ),
    click.option("--storage-url", "STORAGE_URL", metavar="URL", help=_HELP["STORAGE_URL"]),
    click.option(
        "--log-level",
        "LOG_LEVEL",
        metavar="LEVEL",
        help=_HELP["LOG_LEVEL"] + ": DEBUG, INFO, WARN, ERROR",
    ),
    click.option(
        "--log-format", "LOG_FORMAT", metavar="FORM", help=_HELP["LOG_FORMAT"] + ": text, json"
    ),
)


def options(command: Command) -> Command:
    """Add the flags that stand for settings, by the names of the settings."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("serve")
@options
def command(**flags: str | None) -> None:
    """Serve facts, rules and questions over HTTP.

    A flag wins over the environment setting of the same name (--storage-dir over STORAGE_DIR), which wins over the default.
    """
    from kbserver.start import serve  # imports gevent, which no other command needs

    try:
        config = Config.from_env().updated(
            {name: text for name, text in flags.items() if text is not None}
        )
        sys.exit(serve(config))
    except KBError as error:
        _stop(error.message, EXIT_CODES.get(type(error), 1))
    except OSError as error:
        _stop(f"cannot start: {error}", CANNOT_LISTEN)


def _stop(message: str, status: int) -> None:
    click.echo(f"kbcore: {message}", err=True)
    sys.exit(status)
