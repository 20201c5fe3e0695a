"""`kbcore serve`: run the server in the foreground until it is stopped."""

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

_METAVARS = {
    "HOST": "ADDRESS",
    "PORT": "NUMBER",
    "STORAGE_DIR": "FOLDER",
    "FSYNC_POLICY": "POLICY",
    "STORAGE_BACKEND": "NAME",
    "STORAGE_URL": "URL",
    "LOG_LEVEL": "LEVEL",
    "LOG_FORMAT": "FORMAT",
}
"""Settings that have a flag, with the name of its value in the help."""


def options(command: Command) -> Command:
    """Add a flag for each setting in _METAVARS; the parameters have the names of the settings."""
    settings = {setting.name: setting for setting in SETTINGS}
    for name, metavar in reversed(_METAVARS.items()):
        setting = settings[name]
        flag = f"--{name.lower().replace('_', '-')}"
        permitted = setting.parser.permitted
        help = f"{setting.help} ({permitted})" if permitted.startswith("one of ") else setting.help
        command = click.option(flag, name, metavar=metavar, help=help)(command)
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
