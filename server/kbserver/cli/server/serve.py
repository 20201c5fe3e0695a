"""`kbcore serve`: run the server in the foreground until it is stopped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn

import click

from kbcore.config.lint import key_problems, worker_problems
from kbcore.config.settings import PREFIX, SETTINGS, Config, environment
from kbcore.errors import ConfigError, KBError
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
    "TLS_CERT": "FILE",
    "TLS_KEY": "FILE",
    "WORKERS": "NUMBER",
    "CLUSTER_URL": "URL",
    "ADVERTISE_URL": "URL",
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
@click.option("--worker", hidden=True)
def serve(worker: str | None, **flags: str | None) -> None:
    """Run the server until it receives SIGTERM or SIGINT.

    Options override the environment variables of the same name (--storage-dir: STORAGE_DIR). See
    `kbcore config check --all` for all settings.
    """
    used = {name: text for name, text in flags.items() if text is not None}
    try:
        config = Config.from_env().updated(used)
        for problem in (*key_problems(config), *worker_problems(config)):
            raise ConfigError(problem)
        if worker is not None:
            sys.exit(_serve(config, worker))
        sys.exit(_supervise(config, used) if config.workers > 1 else _serve(config))
    except KBError as error:
        _fail(error.message, exit_status(error), used)
    except OSError as error:
        _fail(f"cannot start: {describe_os_error(error)}", CANNOT_LISTEN, used)


def _fail(message: str, status: int, used: Mapping[str, str]) -> NoReturn:
    """End a start that failed; the message is a log line where LOG_FORMAT is json."""
    name = "LOG_FORMAT"
    environ = environment()
    texts = (used.get(name), *(environ.get(each) for each in (PREFIX + name, name)))
    if next((text for text in texts if text), "") != "json":
        fail(message, status)
    logs = import_module("kbserver.logs")  # only here: a start loads it after gevent has patched
    click.echo(logs.start_line(logging.ERROR, message), err=True)
    sys.exit(status)


def _serve(config: Config, worker: str | None = None) -> int:
    """Let gevent replace the blocking calls of the standard library before anything else runs."""
    from gevent import monkey  # no other command needs it

    monkey.patch_all()
    from kbserver.serve import run  # must see the patched library
    from kbserver.workers.worker import Worker

    return run(config, worker=None if worker is None else Worker.decode(worker))


def _supervise(config: Config, flags: Mapping[str, str]) -> int:
    """Start several processes that serve, with the same options as this one."""
    supervisor = import_module("kbserver.workers.supervisor")
    words = [f"--{name.lower().replace('_', '-')}={text}" for name, text in flags.items()]
    command = supervisor.worker_command(words)
    announce = import_module("kbserver.logs").announcer(config.log_format, config.secrets())
    status: int = supervisor.supervise(config, command, announce)
    return status
