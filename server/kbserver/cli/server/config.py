"""`kbcore config`: settings, checked before a start."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kbcore.config.lint import doubts
from kbcore.config.settings import SETTINGS, Setting, environment
from kbcore.config.storage_urls import redacted
from kbcore.errors import ConfigError
from kbcore.node.settings_check import DEFAULT, Effective, effective, plugin_problems
from kbserver import hookspecs
from kbserver.cli.server.serve import options

UNUSABLE = 78
"""The exit status of settings that cannot be used, by the names of sysexits; that of `kbcore serve` as well."""


@click.group("config")
def command() -> None:
    """Settings, checked before a start."""


@command.command("check")
@click.option(
    "--env-file",
    metavar="FILE",
    help="NAME=VALUE lines, as systemd has them, instead of the environment",
)
@click.option("--all", "every", is_flag=True, help="show settings that have their default, too")
@click.option("--strict", is_flag=True, help="end with 1 where there are warnings")
@options
def check(env_file: str | None, every: bool, strict: bool, **flags: str | None) -> None:
    """Check all settings as a start would, plugins included, and show those that are set, without secrets.

    Settings are shown by source: the environment or FILE, flags (those of `kbcore serve`), and with --all the defaults. The
    plugins that settings choose are opened and closed; the storage is not opened, and no model is asked.

    Ends with 0 where a server could start with them. Otherwise shows every problem and ends with 78.
    """
    try:
        environ = environment() if env_file is None else read_env_file(env_file)
    except ConfigError as error:
        click.echo(f"ERROR: {error.message}", err=True)
        sys.exit(UNUSABLE)
    flags_set = {name: text for name, text in flags.items() if text is not None}
    settings = effective(environ, flags_set, "environment" if env_file is None else env_file)
    _show(settings, every)
    problems = settings.problems + plugin_problems(settings.config, hookspecs)
    warnings = list(doubts(settings.config, environ, ours=env_file is not None))
    for warning in warnings:
        click.echo(f"WARNING: {warning}", err=True)
    for problem in problems:
        click.echo(f"ERROR: {problem}", err=True)
    if problems:
        click.echo(
            f"a server would not start: {len(problems)} errors, {len(warnings)} warnings", err=True
        )
        sys.exit(UNUSABLE)
    click.echo(f"settings can be used, {len(warnings)} warnings", err=True)
    sys.exit(1 if strict and warnings else 0)


def _show(found: Effective, every: bool) -> None:
    """Print settings as NAME=VALUE lines below a comment line with their source."""
    by_source: dict[str, list[str]] = {}
    for setting in SETTINGS:
        source = found.sources.get(setting.name, DEFAULT)
        if every or source != DEFAULT:
            line = f"{setting.name}={shown(setting, getattr(found.config, setting.field))}"
            by_source.setdefault(source, []).append(line)
    for source in sorted(by_source, key=lambda source: source == DEFAULT):
        click.echo(f"# {source}")
        for line in by_source[source]:
            click.echo(line)


def read_env_file(path: str) -> dict[str, str]:
    """The settings of a file of NAME=VALUE lines; `#` begins a comment line, quotes around a value are taken off.

    Raises ConfigError.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", ";")):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigError(
                f"{path}, line {number}: not NAME=VALUE"
            )  # the line itself may be half a secret
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name.strip()] = value
    return found


def shown(setting: Setting, value: object) -> str:
    """Give what may be shown of the value of a setting."""
    if setting.secret:
        return "(not shown)" if value else ""
    if setting.name == "STORAGE_URL":
        return redacted(str(value)) if value else ""
    if isinstance(value, tuple):
        return ("/" if setting.name.startswith("RATE_LIMIT") else ",").join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
