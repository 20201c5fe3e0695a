"""`kbcore config`: check of the settings before a start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from kbcore.config.lint import key_problems, warnings_for, worker_problems
from kbcore.config.settings import SETTINGS, Config, environment
from kbcore.errors import ConfigError
from kbcore.node.settings_check import (
    DEFAULT,
    Effective,
    effective,
    machine_problems,
    machine_warnings,
    plugin_problems,
)
from kbplanner.syntax.diagnostics import counted, printable
from kbserver import hookspecs
from kbserver.cli.server.serve import options
from kbserver.cli.shared.exits import EXIT_CODES
from kbserver.cli.shared.groups import CommandGroup

INVALID = EXIT_CODES[ConfigError]


@click.group("config", cls=CommandGroup)
def config() -> None:
    """Check the settings before a start."""


@config.command("check")
@click.option(
    "--env-file",
    metavar="FILE",
    help="Read NAME=VALUE lines, as in a systemd environment file, instead of the environment",
)
@click.option("--all", "every", is_flag=True, help="Also show settings that have their default")
@click.option("--strict", is_flag=True, help="Exit with status 1 if there are warnings")
@options
def check(env_file: str | None, every: bool, strict: bool, **flags: str | None) -> None:
    """Check all settings, including those of plugins.

    Prints the settings without secrets, grouped by source: the environment or FILE, the options of
    `kbcore serve`, and with --all the defaults. The selected plugins are opened and closed, and
    STORAGE_DIR, HOST and DECISION_LOG must be usable on this machine; the storage is not opened,
    and no model is called.

    Exits with 0 if a server could start with these settings. Otherwise prints every problem and
    exits with 78.
    """
    try:
        environ = environment() if env_file is None else read_env_file(env_file)
    except ConfigError as error:
        click.echo(f"ERROR: {printable(error.message)}", err=True)
        sys.exit(INVALID)
    flags_set = {name: text for name, text in flags.items() if text is not None}
    certificates = import_module("kbserver.http.certificates")  # a help text needs no TLS
    settings = effective(environ, flags_set, "environment" if env_file is None else env_file)
    _show(settings, every)
    problems = [
        *settings.problems,
        *plugin_problems(settings.config, hookspecs),
        *key_problems(settings.config),
        *_token_problems(settings.config),
        *worker_problems(settings.config),
        *machine_problems(settings.config),
        *certificates.tls_problems(settings.config),
    ]
    warnings = [
        *warnings_for(settings.config, environ, only_settings=env_file is not None),
        *machine_warnings(settings.config),
        *certificates.tls_warnings(settings.config),
    ]
    for warning in warnings:
        click.echo(f"WARNING: {printable(warning)}", err=True)
    for problem in problems:
        click.echo(f"ERROR: {printable(problem)}", err=True)
    if problems:
        click.echo(
            f"the server would not start: {counted(len(problems), 'error')},"
            f" {counted(len(warnings), 'warning')}",
            err=True,
        )
        sys.exit(INVALID)
    click.echo(f"the settings are valid, {counted(len(warnings), 'warning')}", err=True)
    sys.exit(1 if strict and warnings else 0)


def _show(settings: Effective, every: bool) -> None:
    """Print settings as NAME=VALUE lines below a comment line with their source."""
    by_source: dict[str, list[str]] = {}
    for setting in SETTINGS:
        source = settings.sources.get(setting.name, DEFAULT)
        if every or source != DEFAULT:
            value = setting.parser.format(getattr(settings.config, setting.field))
            variable = settings.variables.get(setting.name, setting.name)
            by_source.setdefault(source, []).append(f"{variable}={value}")
    for source in sorted(by_source, key=lambda source: source == DEFAULT):
        click.echo(f"# {source}")
        for line in by_source[source]:
            click.echo(printable(line))


def read_env_file(path: str) -> dict[str, str]:
    """Return the settings in a file of NAME=VALUE lines.

    Lines that start with `#` or `;` are comments; quotes around a value are removed. Raises
    ConfigError.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a text file") from error
    settings: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", ";")):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            # The line is not shown: it may contain a secret.
            raise ConfigError(f"{path}, line {number}: must be NAME=VALUE")
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        settings[name.strip()] = value
    return settings


def _token_problems(config: Config) -> Iterator[str]:
    """Yield why access tokens could not be validated on this machine."""
    if config.oauth_issuer:
        from kbserver.security.issuer_keys import jwt_library

        try:
            jwt_library()
        except ConfigError as error:
            yield error.message
