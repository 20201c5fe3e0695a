"""`kbcore serve`: run the server in the foreground until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from kbcore.config.settings import SETTINGS, Config
from kbcore.errors import KBError
from kbserver.cli.shared.exits import describe_os_error, exit_status, fail
from kbserver.cli.shared.groups import command

CANNOT_LISTEN = 71
"""Exit status if the server cannot listen: a system error in the terms of sysexits."""

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
        help = setting.help[0].upper() + setting.help[1:]
        if permitted.startswith("one of "):
            help += f" ({permitted})"
        command = click.option(flag, name, metavar=metavar, help=help)(command)
    return command


@command("serve")
@options
def serve(**flags: str | None) -> None:
    """Run the server until it receives SIGTERM or SIGINT.

    Options override the environment variables of the same name (--storage-dir: STORAGE_DIR). See
    `kbcore config check --all` for all settings.
    """
    try:
        config = Config.from_env().updated(
            {name: text for name, text in flags.items() if text is not None}
        )
        sys.exit(_serve(config))
    except KBError as error:
        fail(error.message, exit_status(error))
    except OSError as error:
        fail(f"cannot start: {describe_os_error(error)}", CANNOT_LISTEN)


def _serve(config: Config) -> int:
    """Let gevent replace the blocking calls of the standard library before anything else runs."""
    from gevent import monkey  # no other command needs it

    monkey.patch_all()
    from kbserver.serve import run  # must see the patched library

    return run(config)
